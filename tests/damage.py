"""Hypothesis strategies that damage files from hosts and from users."""

import json
from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st

from sipsched.errors import StableError, TransientError

# Use the same examples in every test run, and do not shrink failing examples.
steady = settings(
    derandomize=True,
    max_examples=300,
    deadline=None,
    database=None,
    phases=(Phase.explicit, Phase.generate),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
few = settings(steady, max_examples=100)

JUNK: st.SearchStrategy[Any] = st.one_of(
    st.none(),
    st.booleans(),
    st.sampled_from([0, -1, 1, 2**63, 2**64 - 1, -(2**63), 10**30, 0.5, -0.0, 1e308]),
    st.sampled_from([float("nan"), float("inf"), float("-inf")]),
    st.integers(),
    st.text(max_size=8),
    st.sampled_from(["", "\n", "0", "-1", "nan", "a\nb", "\x00", "\ud800", "/", "١"]),
    st.lists(st.none(), max_size=2),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
)
"""Values that replace a correct value, and that have the wrong type or cannot come from a measurement."""


@st.composite
def damaged_bytes(draw: st.DrawFn, whole: bytes) -> bytes:
    """Return `whole` after one to three changes: bytes are cut off, flipped, deleted, repeated or inserted."""
    data = bytearray(whole)
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, max(0, len(data) - 1)))
        length = draw(st.integers(1, 64))
        match draw(st.sampled_from(["cut", "flip", "delete", "repeat", "insert"])):
            case "cut":
                del data[at:]
            case "flip" if data:
                data[at] ^= draw(st.integers(1, 255))
            case "delete":
                del data[at : at + length]
            case "repeat":
                data[at:at] = data[at : at + length]
            case _:
                data[at:at] = draw(st.binary(max_size=16))
    return bytes(data)


@st.composite
def damaged_text(draw: st.DrawFn, whole: str) -> str:
    """Return `whole` with changed characters, or with lines that are dropped, doubled, emptied or swapped."""
    lines = whole.splitlines(keepends=True)
    for _ in range(draw(st.integers(0, 2))):
        if not lines:
            break
        at, other = (draw(st.integers(0, len(lines) - 1)) for _ in range(2))
        match draw(st.sampled_from(["drop", "double", "empty", "exchange", "words"])):
            case "drop":
                del lines[at]
            case "double":
                lines.insert(other, lines[at])
            case "empty":
                lines[at] = "\n"
            case "exchange":
                lines[at], lines[other] = lines[other], lines[at]
            case _:
                words = lines[at].split(" ")
                words[draw(st.integers(0, len(words) - 1))] = str(draw(JUNK))
                lines[at] = " ".join(words)
    text = "".join(lines)
    if draw(st.booleans()):
        return text
    return draw(damaged_bytes(text.encode("utf-8", "replace"))).decode("utf-8", "replace")


def _places(value: Any, place: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the path of each value in a document, as keys and indices. Include only the first items of a list."""
    inner = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value[:3])
        if isinstance(value, list)
        else ()
    )
    return [place, *(result for key, item in inner for result in _places(item, (*place, key)))]


@st.composite
def damaged_document(draw: st.DrawFn, whole: Any) -> Any:
    """Return a JSON or YAML document in which one to three values are dropped or replaced by unsuitable values."""
    document = json.loads(json.dumps(whole))
    for _ in range(draw(st.integers(1, 3))):
        place = draw(st.sampled_from(_places(document)))
        if not place:
            continue
        holder = document
        for key in place[:-1]:
            holder = holder[key]
        match draw(st.sampled_from(["junk", "drop", "add"])):
            case "drop":
                del holder[place[-1]]
            case "add" if isinstance(holder, dict):
                holder[draw(st.text(max_size=4))] = draw(JUNK)
            case _:
                holder[place[-1]] = draw(JUNK)
    return document


@st.composite
def damaged_json(draw: st.DrawFn, whole: Any, write: Callable[[Any], str] = json.dumps) -> bytes:
    """Return a JSON file with damaged values or damaged bytes."""
    if draw(st.booleans()):
        return write(draw(damaged_document(whole))).encode()
    return draw(damaged_bytes(write(whole).encode()))


def good_or_one_line(parse: Callable[[], Any]) -> None:
    """Call `parse`, and accept a result or a one-line error of sipsched. Any other exception fails the test."""
    try:
        parse()
    except (StableError, TransientError) as error:
        assert str(error)
        assert len(str(error).splitlines()) == 1, str(error)
        assert len(str(error)) < 2000
