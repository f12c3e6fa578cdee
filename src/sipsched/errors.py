"""The exception classes of this package. The class of an exception shows whether another attempt can help."""

from pathlib import Path

MAKE_AGAIN = "delete it and run snakemake"
"""End of error messages about a damaged or outdated file that Snakemake can compute again."""
UNREACHABLE, DISK_FULL = "is unreachable", "disk full"
"""Words in error messages by which `sipsched.records.publishable` recognises unreachable hosts and full disks."""


class SipschedError(Exception):
    """The base class of all errors of this package. An error message is always a single line."""

    def __str__(self) -> str:
        """Return the message as one line.

        Line breaks become spaces, because the names of other programs can contain line breaks.
        """
        return " ".join(super().__str__().splitlines())

    def _render_traceback_(self) -> list[str]:
        """Return the error as one line, which a notebook shows instead of a traceback."""
        return [f"{type(self).__name__}: {self}"]


class StableError(SipschedError):
    """The error for a wrong configuration or a missing feature, where another attempt cannot help."""


class ComputedFileError(StableError):
    """The error for a damaged or outdated file that Snakemake can compute again.

    If the file is deleted, the workflow can compute it again.
    """

    def __init__(self, message: str, path: Path) -> None:
        """Store the error message and the path of the file."""
        super().__init__(message)
        self.path = path


class TransientError(SipschedError):
    """The error for a lost connection, a time-out or a disturbed measurement, where another attempt can help."""


class LostError(TransientError):
    """The error for an unreachable host. Other measurements on the same testbed may also fail."""
