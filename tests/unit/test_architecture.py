"""What docs/architecture.md says of names; import-linter holds the directions of imports (`make lint`)."""

import json
import re
from pathlib import Path

import pytest

from sipsched.paths import PROJECT_ROOT

LIBRARY = PROJECT_ROOT / "src" / "sipsched"
NOTEBOOKS = sorted((PROJECT_ROOT / "notebooks").glob("*.ipynb"))


def test_packages_are_empty_at_import() -> None:
    packages = sorted(LIBRARY.rglob("__init__.py"))
    assert len(packages) > 7
    assert [path for path in packages if path.read_text()] == []


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_takes_its_page_from_what_has_its_name(path: Path) -> None:
    cells = json.loads(path.read_text())["cells"]
    text = "\n".join("".join(cell["source"]) for cell in cells)
    imported = re.findall(r"^from sipsched\.pages(?:\.(\w+))? import (.+)$", text, re.MULTILINE)
    taken = {
        package or name.split()[0] for package, names in imported for name in names.split(", ")
    }
    own = {name for name in taken if name.startswith(path.stem)}
    assert own
    assert taken - own <= {"tables"}
