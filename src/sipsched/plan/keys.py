"""Functions that read YAML files into dataclasses. A dataclass describes the allowed keys and values of a file.

The type of a field has the bounds and the description of its key (`typing.Annotated`, `msgspec.Meta`). `read` checks a
document against these types, and `sipsched.plan.described` makes the table of keys from these types.
"""

import difflib
import re
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta

from sipsched.errors import StableError
from sipsched.plan.documents import read_yaml, shorten, tidy

Kind = TypeVar("Kind")

Name = Annotated[str, Meta(min_length=1)]
ModeName = Annotated[
    str,
    Meta(
        # Mode names become names of folders, and Linux limits the length of a folder's name.
        max_length=200,
        pattern=r"\A[a-z][a-z0-9_-]*([+][a-z_]+=[a-z0-9-]+)*(,[a-z][a-z0-9_-]*([+][a-z_]+=[a-z0-9-]+)*)*\Z",
        description="A mode of config/modes.yaml, with overrides (enhanced+migration_cost_ns=500000). A run compares "
        "modes that are joined by commas (default,batch,fifo); the first mode is the reference.",
    ),
]
Cores = Annotated[
    int,
    Meta(
        ge=1,
        le=1024,
        description="CPUs of the SPS for the proxy. The testbed's file lists the existing CPUs.",
    ),
]
Threads = Annotated[
    int,
    Meta(
        ge=1,
        le=250,
        description="Worker processes (the papers' server threads). The SPS needs memory for each worker.",
    ),
]
# ASSUME one thread of the load generator can start and answer 40,000 cps; at 60,000 cps, its sockets dropped messages
Cps = Annotated[
    int,
    Meta(ge=1, le=40_000, description="Calls per second. A call has six messages through the SPS."),
]
Repetitions = Annotated[int, Meta(ge=1, le=1000, description="Repetitions of a point.")]
Share = Annotated[float, Meta(gt=0, lt=1)]
ProbeChoice = Literal["auto", "exact", "tracepoint", "preload", "off"]


def read_named(kind: type[Kind], what: str, name: str, folder: Path) -> Kind:
    """Read `<folder>/<name>.yaml` into a dataclass.

    Parameters
    ----------
    what
        Kind of the file for error messages, such as `testbed`.

    Raises
    ------
    StableError
        The file does not exist; the message lists the existing files. For other errors, see `read_file`.
    """
    return read(kind, document_named(what, name, folder), str(folder / f"{name}.yaml"))


def document_named(what: str, name: str, folder: Path, above: tuple[str, ...] = ()) -> Any:
    """Return the content of `<folder>/<name>.yaml`, completed by the file that the key `based_on` names.

    A file inherits all keys of the file that `based_on` names. Mappings are merged key by key. Every other value in
    the file replaces the inherited value.

    Parameters
    ----------
    above
        Names of the files that are based on this file, to detect a circle.

    Raises
    ------
    StableError
        A file does not exist, is not strict YAML, or is based on itself.
    """
    path = folder / f"{name}.yaml"
    if not path.is_file():
        known = ", ".join(sorted(file.stem for file in folder.glob("*.yaml")))
        raise StableError(f"{what} '{name}': no file {path}; existing files: {known}")
    document = tidy(read_yaml(path), str(path), empty=False)
    base = document.get("based_on") if isinstance(document, dict) else None
    if not isinstance(base, str):
        return document
    if base in (*above, name):
        raise StableError(f"{path}: based_on: '{base}' is based on this file; remove one based_on")
    return _completed(document_named(what, base, folder, (*above, name)), document)


def _completed(base: Any, change: Any) -> Any:
    if not (isinstance(base, dict) and isinstance(change, dict)):
        return change
    return base | {key: _completed(base.get(key), value) for key, value in change.items()}


def read_file(hint: Any, path: Path) -> Any:
    """Read a YAML file as a value of a type: a dataclass, or a mapping from names to dataclasses.

    Raises
    ------
    StableError
        The file is not strict YAML, or a key has no value. For other errors, see `read`.
    """
    content = tidy(read_yaml(path), str(path), empty=False)
    return (read if is_dataclass(hint) else _value)(hint, content, str(path))


def read_value(hint: Any, value: Any, where: str) -> Any:
    """Check that the type `hint` allows a value, and return the value. For possible errors, see `read`."""
    return _converted(hint, value, where, "value")


def read(kind: type[Kind], content: Any, where: str, **given: Any) -> Kind:
    """Convert a mapping into an instance of a dataclass, and check all keys and values.

    Parameters
    ----------
    kind
        The dataclass; its fields are the keys.
    where
        File and key, for error messages.
    given
        Values of the fields that are not keys of the file, such as the name of an entry.

    Raises
    ------
    StableError
        A key is unknown or missing, or its type does not allow the value. The message is one line with the path of the
        key, the expectation, and the value.
    """
    check_keys(kind, content, where, given)
    types: dict[str, Any] = key_types(kind)  # type: ignore[arg-type]
    values = dict(given)
    for field in fields(kind):  # type: ignore[arg-type]
        if field.name in given:
            continue
        # `from` is a keyword of Python, so the field for the key `from` is called `from_`.
        hint, key = types[field.name], field.name.rstrip("_")
        if key in content:
            values[field.name] = _value(hint, content[key], place(where, key))
        elif field.default is MISSING and field.default_factory is MISSING:
            raise StableError(f"{place(where, key)} is missing: {describe(hint)}")
    return kind(**values)


def check_keys(kind: type, content: Any, where: str, given: Iterable[str] = ()) -> None:
    """Raise an error if the content is not a mapping, or if it has a key that the dataclass lacks.

    Raises
    ------
    StableError
        The message names the most similar key, or lists all keys.
    """
    if not isinstance(content, Mapping):
        raise StableError(f"{where}: expected keys and values, found {shorten(content)}")
    known = [name.rstrip("_") for name in key_types(kind) if name not in given]
    for key in content:
        if key not in known:
            close = difflib.get_close_matches(key, known, n=1)
            hint = f"did you mean '{close[0]}'?" if close else f"known keys: {', '.join(known)}"
            raise StableError(f"{where}: unknown key '{' '.join(key.split())}'; {hint}")


def place(where: str, key: str) -> str:
    """Return the path of a key for error messages, such as `file: a.b`."""
    return f"{where}{'.' if ': ' in where else ': '}{key}"


@cache
def key_types(kind: Hashable) -> dict[str, Any]:
    """Return the type of each key of a dataclass, with the bounds and the description of the key."""
    return get_type_hints(kind, include_extras=True)


def describe(hint: Any) -> str:
    """Return the description of a key, or an empty text if the key has no description."""
    texts = [meta.description for meta in getattr(hint, "__metadata__", ()) if meta.description]
    return texts[-1] if texts else ""


def bare(hint: Any) -> Any:
    """Return the type of a key without its bounds and its description."""
    return get_args(hint)[0] if get_origin(hint) is Annotated else hint


def options(hint: Any) -> list[Any]:
    """Return the alternative types of a key, without None."""
    hint = bare(hint)
    union = get_origin(hint) in (Union, UnionType)
    return [part for part in (get_args(hint) if union else (hint,)) if part is not type(None)]


def is_mapping(hint: Any) -> bool:
    """Return True if the value of a key is a mapping from names to entries, and not a dataclass with fixed keys."""
    return isinstance(get_origin(bare(hint)), type) and issubclass(get_origin(bare(hint)), Mapping)


def _value(hint: Any, value: Any, where: str) -> Any:
    for option in options(hint):
        if is_dataclass(bare(option)) and isinstance(value, Mapping | type(None)):
            return read(bare(option), value, where)
        if is_mapping(option) and isinstance(value, Mapping):
            _check_number_of_entries(hint, value, where)
            name, entry = get_args(bare(option))
            return {
                _converted(name, key, where, "name"): _value(entry, body, place(where, key))
                for key, body in value.items()
            }
        if is_mapping(option) and len(options(hint)) == 1:
            # A mapping without entries is wrong here. msgspec does not check this if the type also allows null.
            raise StableError(f"{where}: expected keys and values, found {shorten(value)}")
        entry = next(iter(get_args(bare(option))), None)
        if is_dataclass(entry) and isinstance(value, list) and value:
            return tuple(_value(entry, item, f"{where}[{i}]") for i, item in enumerate(value))
    if isinstance(value, list):
        for number, item in enumerate(value):
            if item in value[:number]:
                raise StableError(f"{where}: {shorten(item)} is listed twice")
    return _converted(hint, value, where, "value")


def _check_number_of_entries(hint: Any, value: Mapping[str, Any], where: str) -> None:
    least = max((meta.min_length or 0 for meta in getattr(hint, "__metadata__", ())), default=0)
    if len(value) < least:
        raise StableError(
            f"{where}: expected {least} or more entries, found {len(value)}. {describe(hint)}"
        )


def _converted(hint: Any, value: Any, where: str, what: str) -> Any:
    try:
        return msgspec.convert(value, hint)
    except msgspec.ValidationError as error:
        said, _, path = str(error).replace("`", "").partition(" - at ")
    except UnicodeEncodeError:
        # An escape sequence in YAML can encode half of a surrogate pair, which is not valid Unicode.
        said, path = "Expected Unicode text", ""
    wrong = value
    for index in re.findall(r"\[(\d+)\]", path):
        wrong = wrong[int(index)]
    choices = _choices(hint)
    if choices and said.startswith("Invalid enum value"):
        close = difflib.get_close_matches(str(wrong), choices, n=1)
        said = f"expected one of {', '.join(choices)}" + (
            f" (did you mean '{close[0]}'?)" if close else ""
        )
    suffix = path.removeprefix("$") if what == "value" else ""
    text = describe(hint)
    raise StableError(
        f"{where}{suffix}: {said[0].lower()}{said[1:]}, found {what if what == 'name' else ''}"
        f"{' ' if what == 'name' else ''}{shorten(wrong)}{f'. {text}' if text else ''}"
    )


def _choices(hint: Any) -> list[str]:
    """Return the words that are allowed as the value of a key."""
    if get_origin(hint) is Literal:
        return list(map(str, get_args(hint)))
    return [word for part in get_args(hint) for word in _choices(part)]
