"""Test that documents name existing code, and that packages and notebooks follow docs/architecture.md."""

import ast
import importlib
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from sipsched.paths import PROJECT_ROOT

LIBRARY = PROJECT_ROOT / "src" / "sipsched"
TO_WORK_IN = sorted((PROJECT_ROOT / "notebooks" / "lab").glob("*.ipynb"))
"""Notebooks for interactive work, which use only `import sipsched`."""
NOTEBOOKS = [*sorted((PROJECT_ROOT / "notebooks").glob("*.ipynb")), *TO_WORK_IN]


def test_packages_are_empty_at_import() -> None:
    """Check all packages except the top package, which has its own tests in tests/unit/test_lab.py."""
    packages = sorted(LIBRARY.glob("*/**/__init__.py"))
    assert len(packages) > 7
    assert [path for path in packages if path.read_text()] == []


def test_the_start_of_the_workflow_does_not_import_matplotlib() -> None:
    """Check the imports, because matplotlib would add half a second of CPU time to each start."""
    code = "import sys, sipsched.pages.progress; print('matplotlib' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_imports_only_the_module_of_its_name(path: Path) -> None:
    cells = json.loads(path.read_text())["cells"]
    text = "\n".join("".join(cell["source"]) for cell in cells)
    imported = re.findall(r"^from sipsched\.pages(?:\.(\w+))? import (.+)$", text, re.MULTILINE)
    taken = {
        package or name.split()[0] for package, names in imported for name in names.split(", ")
    }
    if path in TO_WORK_IN:
        assert re.findall(r"^\s*(?:import|from) (sipsched.*)$", text, re.MULTILINE) == ["sipsched"]
        return
    own = {name for name in taken if name.startswith(path.stem)}
    assert own
    assert taken - own <= {"tables"}


def test_no_module_names_a_rule_of_the_workflow() -> None:
    """Check only names with an underscore, because names such as `all` are also ordinary words."""
    rules = "".join(path.read_text() for path in (PROJECT_ROOT / "workflow").rglob("*.smk"))
    names = set(re.findall(r"^ *(?:rule|checkpoint) (\w+_\w+):", rules, re.MULTILINE))
    assert len(names) > 15
    modules = (PROJECT_ROOT / "src").rglob("*.py")
    nodes = (node for path in modules for node in ast.walk(ast.parse(path.read_text())))
    assert names.isdisjoint(node.value for node in nodes if isinstance(node, ast.Constant))


def exists(name: str) -> bool:
    """Return whether a dotted name is a module, a function, a class or a method."""
    parts = name.split(".")
    for count in range(len(parts), 0, -1):
        try:
            result = importlib.import_module(".".join(parts[:count]))
        except ModuleNotFoundError:
            continue
        for part in parts[count:]:
            if not hasattr(result, part):
                return False
            result = getattr(result, part)
        return True
    return False


DOCUMENTS = sorted([*PROJECT_ROOT.glob("*.md"), *PROJECT_ROOT.glob("docs/**/*.md")])
HISTORY = {PROJECT_ROOT / "CHANGELOG.md"}


@pytest.mark.parametrize(
    "document", [path for path in DOCUMENTS if path not in HISTORY], ids=lambda path: path.stem
)
def test_documents_name_existing_code_and_files(document: Path) -> None:
    text = document.read_text()
    names = re.findall(r"`(sipsched\.[\w.]+)`", text)
    assert [name for name in names if not exists(name)] == []
    paths = re.findall(
        r"`((?:src|tests|benchmarks|config|hardware|workflow)/[a-z0-9_./-]+\.[a-z]+)`", text
    )
    commands = re.findall(r"(?:python|pytest) ((?:tests|benchmarks)/[\w./-]+)", text)
    assert [path for path in paths + commands if not (PROJECT_ROOT / path).exists()] == []


def test_the_walk_of_one_run_names_functions_and_rules() -> None:
    text = (PROJECT_ROOT / "docs" / "architecture.md").read_text()
    assert len(re.findall(r"`(sipsched\.[\w.]+)`", text)) > 15
    rules = set(re.findall(r"[Tt]he rule `(\w+)`", text))
    files = "\n".join(path.read_text() for path in (PROJECT_ROOT / "workflow/rules").glob("*.smk"))
    assert rules and rules <= set(re.findall(r"^(?:rule|checkpoint) (\w+):", files, re.MULTILINE))


def test_the_repository_contains_no_compiled_program() -> None:
    """A compiled program in the repository would keep make from building the program of the host."""
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=PROJECT_ROOT, capture_output=True, text=True, check=True
    )
    paths = [PROJECT_ROOT / name for name in listed.stdout.split("\0") if name]
    assert len(paths) > 1000
    assert [path for path in paths if path.is_file() and path.read_bytes()[:4] == b"\x7fELF"] == []
