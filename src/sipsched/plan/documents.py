"""Documents that a person or a program wrote: YAML read strictly, and checked against a schema."""

import functools
import math
import reprlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fastjsonschema
import yaml

from sipsched.errors import StableError
from sipsched.paths import SCHEMAS

LARGEST_BYTES = 256 * 1024
"""Of a YAML file; the largest that comes with the project has 13 kB, and 256 kB take seconds to read."""
LONGEST_VALUE = 60
"""Characters of a wrong value that a message shows."""


def read_yaml(path: Path) -> Any:
    """Read a YAML file, strictly.

    Returns
    -------
    Any
        Its document. Keys of mappings are text, whatever they look like.

    Raises
    ------
    StableError
        The file is missing, too large, not UTF-8 or not YAML; a mapping has a key twice; or it uses what
        no file here needs: aliases, tags, NaN and infinities. The message names file and line.
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
    # ReaderError, which has no mark; a date or number of the right form and wrong value
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        raise StableError(f"{path}: is not YAML: {_line(error)}") from None


class _StrictLoader(yaml.SafeLoader):
    """YAML without what makes it surprising: a thing is said once, where it stands."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        event = self.peek_event()  # type: ignore[no-untyped-call]
        if isinstance(event, yaml.AliasEvent):
            # nine lines of aliases of aliases are a document of gigabytes
            raise _wrong(f"aliases are not read: write out what *{event.anchor} means", event)
        if getattr(event, "tag", None) is not None:
            raise _wrong(f"tags are not read: leave out {event.tag}", event)
        return super().compose_node(parent, index)

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        found: dict[Any, Any] = {}
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise _wrong("a key has to be text", key)
            if key.value in found:
                raise _wrong(f"the key '{key.value}' is there twice", key)
            found[key.value] = self.construct_object(value, deep=deep)
        return found

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


def validate(instance: Any, schema: str, what: str, part: str | None = None) -> Any:
    """Check a document against `workflow/schemas/<schema>.schema.yaml`.

    Parameters
    ----------
    instance
        The document.
    schema
        Name of the schema.
    what
        Name of the document, for the error's text.
    part
        Of the schema's `$defs` the one that the document has to be like; None: the schema itself.

    Returns
    -------
    Any
        The document, whole numbers as int: to JSON Schema 8.0 is an integer, and to the name of a file not.

    Raises
    ------
    StableError
        Names the document, the key and what was expected there, in one line.
    """
    what = _line(what)
    _check_numbers_and_keys(instance, what)
    try:
        _compiled(schema, part)(instance)
    except fastjsonschema.JsonSchemaValueException as error:
        message = _line(error.message.removeprefix("data").lstrip(". "))
        raise StableError(f"{what}: {message}, found {shorten(error.value)}") from None
    try:
        return _with_integers(instance, {})
    except RecursionError:
        raise StableError(f"{what}: nested too deeply") from None


def _with_integers(value: Any, done: dict[int, Any]) -> Any:
    """Copy a document; what stands in several places is copied once."""
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


@functools.cache
def _compiled(schema: str, part: str | None) -> Callable[[Any], Any]:
    # fastjsonschema: importing jsonschema takes 1.2 s beside JupyterLab, in every job
    document = read_yaml(SCHEMAS / f"{schema}.schema.yaml")
    if part is not None:
        document = {name: document[name] for name in ("$schema", "$defs")} | document["$defs"][part]
    check: Callable[[Any], Any] = fastjsonschema.compile(document)
    return check


def _check_numbers_and_keys(instance: Any, what: str) -> None:
    """Refuse what JSON Schema does not know: NaN passes every bound, and a key may be a number."""
    seen: set[int] = set()
    rest = [(instance, "")]
    while rest:
        value, place = rest.pop()
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
    """Write a wrong value for a message: in one line, and not whole if it is long."""
    text = _repr(value)
    return text if len(text) <= LONGEST_VALUE else f"{text[:LONGEST_VALUE]}…"


def _repr(value: Any) -> str:
    short = reprlib.Repr()
    short.maxstring = short.maxother = short.maxlong = LONGEST_VALUE + 2
    return short.repr(value)
