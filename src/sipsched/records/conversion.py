"""A function that converts the mappings and lists of a JSON or YAML file into typed values."""

from typing import Any, TypeVar

from sipsched.errors import StableError

_Part = TypeVar("_Part")


def as_part(kind: type[_Part], content: Any, where: str, remedy: str = "repeat the run") -> _Part:
    """Convert the mappings and lists of a JSON or YAML file into a value of the type `kind`.

    Parameters
    ----------
    where
        Name of the source, for error messages.
    remedy
        Advice, for error messages.

    Raises
    ------
    StableError
        A key is missing, or a value has another type. The message names the key.
    """
    # Import msgspec only here, because the import takes 30 ms, and the start of the workflow does not need msgspec.
    import msgspec

    try:
        return msgspec.convert(content, kind)
    except msgspec.ValidationError as error:
        raise StableError(f"{where}: {error}; {remedy}") from error
