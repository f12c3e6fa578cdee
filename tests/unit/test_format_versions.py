"""Tests that docs/data-format.md lists the version of every file format, and that the release is named everywhere."""

import ast
import re
from importlib import import_module

import pytest
import yaml

from sipsched import versions
from sipsched.paths import PROJECT_ROOT

ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in (PROJECT_ROOT / "docs/data-format.md").read_text().splitlines()
    if line.startswith("|")
    and re.fullmatch(r"\d+", line.split("|")[3].strip() if line.count("|") > 4 else "")
]
IN_PYTHON = {
    name: int(row[2]) for row in ROWS for name in re.findall(r"sipsched\.[\w.]+\.[A-Z_]+", row[3])
}
IN_C = {path: int(row[2]) for row in ROWS for path in re.findall(r"hardware/[\w/]+\.h", row[3])}
NO_FILE = {"sipsched.testbed.guest_image.RECIPE_VERSION"}
"""Constants with VERSION in their names that are no versions of files for users."""


def python_versions() -> dict[str, int]:
    """Return all constants of the library whose names end with VERSION, with their numbers."""
    result = {}
    for path in (PROJECT_ROOT / "src" / "sipsched").rglob("*.py"):
        module = ".".join(path.relative_to(PROJECT_ROOT / "src").with_suffix("").parts)
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant):
                for target in node.targets:
                    if isinstance(target, ast.Name) and target.id.endswith("VERSION"):
                        result[f"{module}.{target.id}"] = node.value.value
    return {name: value for name, value in result.items() if isinstance(value, int)}


def test_the_documented_versions_are_those_of_the_library() -> None:
    assert len(IN_PYTHON) > 12
    assert {
        name: number for name, number in python_versions().items() if name not in NO_FILE
    } == IN_PYTHON
    for name, number in IN_PYTHON.items():
        module, _, constant = name.rpartition(".")
        assert getattr(import_module(module), constant) == number


@pytest.mark.parametrize("path", sorted(IN_C))
def test_the_documented_versions_are_those_of_the_native_parts(path: str) -> None:
    (number,) = re.findall(r"#define (?!API)\w*VERSION +(\d+)", (PROJECT_ROOT / path).read_text())
    assert int(number) == IN_C[path]


def test_every_native_format_is_documented() -> None:
    headers = (PROJECT_ROOT / "hardware").rglob("*.h")
    own = {
        str(path.relative_to(PROJECT_ROOT))
        for path in headers
        if re.search(r"#define \w*VERSION +\d", path.read_text())
    }
    assert own == set(IN_C)


def test_the_release_has_the_same_version_everywhere() -> None:
    citation = yaml.safe_load((PROJECT_ROOT / "CITATION.cff").read_text())
    assert citation["version"] == versions.VERSION
    changelog = (PROJECT_ROOT / "CHANGELOG.md").read_text()
    assert re.findall(r"^## (\d+\.\d+\.\d+)", changelog, re.MULTILINE)[0] == versions.VERSION
