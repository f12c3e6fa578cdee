"""Errors, split by what the caller may do about them."""


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


class TransientError(SipschedError):
    """A lost link, a time-out, a run disturbed from outside: trying again may help."""


class LostError(TransientError):
    """A host that is not reached, or no longer: what else is to be done on its testbed may fare no better."""
