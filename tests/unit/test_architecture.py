"""What docs/architecture.md says of names; import-linter holds the directions of imports (`make lint`)."""

import json
import re
from pathlib import Path

import pytest

from sipsched.paths import PROJECT_ROOT

LIBRARY = PROJECT_ROOT / "src" / "sipsched"
NOTEBOOKS = sorted((PROJECT_ROOT / "notebooks").glob("*.ipynb"))
TO_WORK_IN = {"explore.ipynb", "question.ipynb"}
"""Notebooks that a person opens; they use what everybody may: `import sipsched`."""


def test_packages_are_empty_at_import() -> None:
    """But the one at the top, which says what `import sipsched` offers: tests/unit/test_lab.py."""
    packages = sorted(LIBRARY.glob("*/**/__init__.py"))
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
    if path.name in TO_WORK_IN:
        assert re.findall(r"^\s*(?:import|from) (sipsched.*)$", text, re.MULTILINE) == ["sipsched"]
        return
    own = {name for name in taken if name.startswith(path.stem)}
    assert own
    assert taken - own <= {"tables"}
