"""Functions that write the documentation's tables of configuration keys and of rules for valid runs.

`make tables` (`python -m sipsched.plan.described`) writes the tables from the types and the declared rules. A test
compares the tables with the documents.
"""

from collections.abc import Iterator
from dataclasses import MISSING, Field, fields, is_dataclass
from pathlib import Path
from typing import Any, get_args

from sipsched.paths import PROJECT_ROOT
from sipsched.plan.config import Declared
from sipsched.plan.keys import bare, describe, is_mapping, key_types, options
from sipsched.plan.study import Document
from sipsched.plan.sut import Sut
from sipsched.validity.rules import RULES

NAMED = {"suts": Sut, "sut_defaults": Sut, "documents": Document}
"""Types of the entries of three keys, which `Declared` declares as plain mappings without descriptions."""


def table_of_keys() -> str:
    """Return a Markdown table of all keys of the configuration."""
    rows = "".join(f"| `{key}` | {text} |\n" for key, text in _rows(Declared, ""))
    return f"| key | meaning |\n| --- | --- |\n{rows}"


def table_of_rules() -> str:
    """Return a Markdown table of the rules that decide whether a run is valid."""
    rows = "".join(
        f"| `{rule.name}` | {rule.in_general} | {rule.suspect:g} | {rule.invalid:g} | {rule.why} |\n"
        for rule in RULES.values()
    )
    head = "| rule | the verdict says | suspect above | invalid above | reason |\n"
    return f"{head}| --- | --- | --- | --- | --- |\n{rows}"


TABLES = {
    PROJECT_ROOT / "config" / "README.md": ("keys", table_of_keys),
    PROJECT_ROOT / "docs" / "methodology" / "verdict.md": ("rules", table_of_rules),
}
"""The generated table of each document: the name in the document's markers, and the function that makes the table."""


def _rows(kind: Any, prefix: str) -> Iterator[tuple[str, str]]:
    for key in fields(kind):
        if key.name == "name" and kind in NAMED.values():
            continue
        hint = key_types(kind)[key.name]
        yield f"{prefix}{key.name}", f"{describe(hint)}{_default(key)}".replace("|", "\\|")
        if not prefix and key.name == "sut_defaults":
            continue
        for option in options(hint):
            entry = bare(get_args(bare(option))[1]) if is_mapping(option) else bare(option)
            entry = NAMED.get(key.name, entry) if not prefix else entry
            if is_dataclass(entry):
                yield from _rows(entry, f"{prefix}{key.name}." + "<name>." * is_mapping(option))


def _default(key: "Field[Any]") -> str:
    if key.default in (MISSING, None, ()):
        return ""
    said = str(key.default).lower() if isinstance(key.default, bool) else key.default
    return f" Default: `{said}`."


def renewed(document: Path) -> str:
    """Read a documentation page, and return its text with a newly generated table. The file stays unchanged."""
    name, table = TABLES[document]
    first, last = f"<!-- {name}: made by `make tables` -->\n", f"<!-- end of {name} -->\n"
    before, _, rest = document.read_text().partition(first)
    return f"{before}{first}{table()}{last}{rest.partition(last)[2]}"


def main() -> None:
    """Update the generated tables in the documentation."""
    for document in TABLES:
        document.write_text(renewed(document))


if __name__ == "__main__":
    main()
