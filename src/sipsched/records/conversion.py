"""Conversion of loose content into typed values."""

from typing import Any, TypeVar

from sipsched.errors import StableError

Part = TypeVar("Part")


def as_part(kind: type[Part], content: Any, where: str, remedy: str = "repeat the run") -> Part:
    """Convert mappings, lists and plain values into a typed value.

    Parameters
    ----------
    where
        Name of the source, for the error's text.
    remedy
        Advice, for the error's text.

    Raises
    ------
    StableError
        A key is missing or a value has another type; the message names the place.
    """
    # Imported here, because the import takes 30 ms, which the start of the workflow can save.
    import msgspec

    try:
        return msgspec.convert(content, kind)
    except msgspec.ValidationError as error:
        raise StableError(f"{where}: {error}; {remedy}") from error
