"""Functions that read YAML files and reject ambiguous and unsafe content."""

import math
import reprlib
from pathlib import Path
from typing import Any

import yaml

from sipsched.errors import StableError

LARGEST_BYTES = 256 * 1024
"""Largest allowed size of a YAML file in bytes. The project's largest file has 13 kB. 256 kB take seconds to read."""
LONGEST_VALUE = 60
"""Largest number of characters of a wrong value that an error message shows."""


def read_yaml(path: Path) -> Any:
    """Read a YAML file, and raise an error for YAML features that are ambiguous or unsafe.

    Returns
    -------
    Any
        The document. All keys of its mappings are text.

    Raises
    ------
    StableError
        The file is missing, too large, not UTF-8 or not YAML. Or a mapping has a key twice, or the file has an alias, a
        tag, NaN or an infinity. The message names the file and the line.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise StableError(f"{path}: no such file") from None
    except OSError as error:
        raise StableError(f"{path}: cannot read: {error.strerror}") from None
    if len(data) > LARGEST_BYTES:
        raise StableError(
            f"{path}: {len(data)} bytes; a file of settings has at most {LARGEST_BYTES}"
        )
    try:
        return yaml.load(data.decode(), _StrictLoader)  # noqa: S506 # it is a SafeLoader
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise StableError(f"{path}: line {line} is not UTF-8 text") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line_of = f" line {mark.line + 1}" if mark else ""
        raise StableError(f"{path}:{line_of} is not YAML: {_line(error.problem)}") from None
    except RecursionError:
        raise StableError(f"{path}: is not YAML: nested too deeply") from None
    # A ReaderError has no line number. A ValueError comes from an impossible date or number, such as 2026-13-01.
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        raise StableError(f"{path}: is not YAML: {_line(error)}") from None


class _StrictLoader(yaml.SafeLoader):
    """A YAML loader that rejects aliases, tags, repeated keys, NaN and infinities."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        event = self.peek_event()  # type: ignore[no-untyped-call]
        if isinstance(event, yaml.AliasEvent):
            # Aliases are rejected, because nine lines of nested aliases can expand to gigabytes.
            raise _wrong(f"aliases are not read: write out what *{event.anchor} means", event)
        if getattr(event, "tag", None) is not None:
            raise _wrong(f"tags are not read: remove {event.tag}", event)
        return super().compose_node(parent, index)

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        mapping: dict[Any, Any] = {}
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise _wrong("a key has to be text", key)
            if key.value in mapping:
                raise _wrong(f"the key '{key.value}' exists twice", key)
            mapping[key.value] = self.construct_object(value, deep=deep)
        return mapping

    def construct_yaml_float(self, node: Any) -> float:
        value: float = super().construct_yaml_float(node)
        if not math.isfinite(value):
            raise _wrong(f"{node.value} is no number that a setting can have", node)
        return value


_StrictLoader.add_constructor("tag:yaml.org,2002:float", _StrictLoader.construct_yaml_float)


def _wrong(problem: str, at: Any) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=problem, problem_mark=at.start_mark)


def _line(problem: object) -> str:
    return " ".join(str(problem).split())


def tidy(instance: Any, what: str, *, empty: bool = True) -> Any:
    """Check the content of a YAML document, and return a copy in which floats such as 8.0 are replaced by int.

    Numbers become parts of file names, such as the names of search records. So 8.0 and 8 must lead to the same name.

    Parameters
    ----------
    what
        Name of the document, for error messages.
    empty
        Whether a key may have no value.

    Raises
    ------
    StableError
        A number is not finite, a key is not text, a value is missing, or the document is nested too deeply.
    """
    _check_numbers_and_keys(instance, _line(what), empty)
    try:
        return _with_integers(instance, {})
    except RecursionError:
        raise StableError(f"{_line(what)}: nested too deeply") from None


def _with_integers(value: Any, done: dict[int, Any]) -> Any:
    """Copy a document, and convert floats without a fraction into int.

    A mapping or list that occurs at several places of the document is copied only once. `done` has the copies by id.
    """
    if isinstance(value, float):
        return int(value) if value.is_integer() and abs(value) < 2**53 else value
    if not isinstance(value, (dict, list)):
        return value
    if id(value) not in done:
        done[id(value)] = (
            {key: _with_integers(item, done) for key, item in value.items()}
            if isinstance(value, dict)
            else [_with_integers(item, done) for item in value]
        )
    return done[id(value)]


def _check_numbers_and_keys(instance: Any, what: str, empty: bool) -> None:
    """Raise an error for numbers that are not finite, and for keys that are not text.

    YAML files were already checked by `read_yaml`. Values from Snakemake's option `--config` were not checked before.
    """
    seen: set[int] = set()
    rest = [(instance, "")]
    while rest:
        value, place = rest.pop()
        if value is None and not empty:
            raise StableError(
                f"{what}: {_line(place) or 'it'} has no value; add a value, or remove the key"
            )
        if isinstance(value, float) and not math.isfinite(value):
            raise StableError(
                f"{what}: {_line(place) or 'it'} must be a finite number, found {value}"
            )
        if not isinstance(value, (dict, list)) or id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, list):
            rest += [(item, f"{place}[{number}]") for number, item in enumerate(value)]
            continue
        for key, item in value.items():
            if not isinstance(key, str):
                raise StableError(
                    f"{what}: {_line(place) or 'it'} has a key that is not text: {shorten(key)}"
                )
            rest.append((item, f"{place}.{key}" if place else key))


def shorten(value: Any) -> str:
    """Return a wrong value as one short line of text, for error messages."""
    text = _repr(value)
    return text if len(text) <= LONGEST_VALUE else f"{text[:LONGEST_VALUE]}…"


def _repr(value: Any) -> str:
    short = reprlib.Repr()
    short.maxstring = short.maxother = short.maxlong = LONGEST_VALUE + 2
    return short.repr(value)
