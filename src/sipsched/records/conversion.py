"""Functions that convert the mappings and lists of a JSON or YAML file into typed values."""

from typing import Any, TypeVar

import msgspec

from sipsched.errors import StableError
from sipsched.files import parse_json

_Part = TypeVar("_Part")


def as_part(kind: type[_Part], content: Any, where: str, remedy: str = "repeat the run") -> _Part:
    """Convert the mappings and lists of a JSON or YAML file into a value of the type `kind`.

    Parameters
    ----------
    where
        Name of the source of the content, for error messages.
    remedy
        Advice, for error messages.

    Raises
    ------
    StableError
        A key is missing, or a value has another type. The message names the key.
    """
    try:
        return msgspec.convert(content, kind)
    except msgspec.ValidationError as error:
        raise StableError(f"{where}: {error}; {remedy}") from error


def part_of_json(
    kind: type[_Part],
    text: str | bytes,
    where: str,
    remedy: str = "repeat the run",
    version: int | None = None,
) -> _Part:
    """Convert a JSON text into a value of the type `kind`.

    Parameters
    ----------
    where, remedy
        See `as_part`.
    version
        Required value of the key `version`; None for a text without this key.

    Raises
    ------
    StableError
        The text is not JSON, or has another version. A key is missing, or a value has another type.
    """
    try:
        content = parse_json(text.decode() if isinstance(text, bytes) else text)
    except ValueError as error:
        raise StableError(f"{where}: not JSON: {error}; {remedy}") from None
    actual = content.get("version") if isinstance(content, dict) else None
    if version not in (None, actual):
        raise StableError(f"{where}: expected version {version}, found {actual}; {remedy}")
    return as_part(kind, content, where, remedy)
