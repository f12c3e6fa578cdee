"""Errors, classified by their remedy."""

from pathlib import Path


class SipschedError(Exception):
    """Base of all errors of this package. The message is one line."""

    def __str__(self) -> str:
        """Return the message in one line. A name from another program can contain line breaks."""
        return " ".join(super().__str__().splitlines())

    def _render_traceback_(self) -> list[str]:
        """Return the error as one line, which a notebook shows instead of a traceback."""
        return [f"{type(self).__name__}: {self}"]


class StableError(SipschedError):
    """A wrong configuration or a missing feature. Another attempt cannot help."""


class ComputedFileError(StableError):
    """A computed file that is damaged or has another version.

    After its deletion, the workflow can compute the file again.
    """

    def __init__(self, message: str, path: Path) -> None:
        """Store the message and the path of the file."""
        super().__init__(message)
        self.path = path


class TransientError(SipschedError):
    """A lost connection, a time-out or a disturbed run. Another attempt can help."""


class LostError(TransientError):
    """An unreachable host. Other jobs on its testbed may fail, too."""
