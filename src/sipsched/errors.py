"""Errors, split by what the caller may do about them."""

from pathlib import Path


class SipschedError(Exception):
    """Root of all errors that this package raises on purpose; its message is one line."""

    def __str__(self) -> str:
        """Give the message; a name in it may come from outside and hold line breaks."""
        return " ".join(super().__str__().splitlines())

    def _render_traceback_(self) -> list[str]:
        """Show a notebook's reader what to do, in one line, in the place of a traceback."""
        return [f"{type(self).__name__}: {self}"]


class StableError(SipschedError):
    """Wrong configuration or a missing feature: trying again changes nothing."""


class ComputedFileError(StableError):
    """A file that was computed from others is damaged or of another version: once it is gone it can be made again."""

    def __init__(self, message: str, path: Path) -> None:
        """Take what is wrong, and the file."""
        super().__init__(message)
        self.path = path


class TransientError(SipschedError):
    """A lost link, a time-out, a run disturbed from outside: trying again may help."""


class LostError(TransientError):
    """A host that is not reached, or no longer: what else is to be done on its testbed may fare no better."""
