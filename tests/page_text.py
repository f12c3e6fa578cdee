"""Functions that return the words of a page from the tree of its parts."""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

from sipsched.pages.numbers import Number
from sipsched.pages.parts import Page, Part

NOT_READ = {"identity", "css_class", "draw", "shown", "places", "code"}


def lines(value: Any) -> Iterator[str]:
    """Yield the texts of parts, cells and sentences in the order of the page, without drawing figures."""
    if isinstance(value, str | Number):
        yield str(value)
    elif dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            if field.name not in NOT_READ:
                yield from lines(getattr(value, field.name))
    elif isinstance(value, Sequence):
        for item in value:
            yield from lines(item)


def text(*parts: Any) -> str:
    """Join the texts of parts by line breaks."""
    return "\n".join(filter(None, lines(parts)))


def parts(value: Any) -> Iterator[Part]:
    """Yield the parts inside a page or inside another part, in the order of the page."""
    if isinstance(value, Part):
        yield value
    if isinstance(value, Page | Part):
        for field in dataclasses.fields(value):
            yield from parts(getattr(value, field.name))
    elif isinstance(value, Sequence) and not isinstance(value, str):
        for item in value:
            yield from parts(item)
