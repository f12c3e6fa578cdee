"""Tests that the conda environments of the rules have the packages that the scripts import, in the locked versions."""

import ast
import json
import re
import sys
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
import yaml

from sipsched.paths import PROJECT_ROOT

SRC, WORKFLOW = PROJECT_ROOT / "src", PROJECT_ROOT / "workflow"
PIN = re.compile(r"^([a-z0-9-]+)==?([0-9][^\s;\\]*)", re.MULTILINE)


def module_file(name: str) -> Path | None:
    path = SRC / name.replace(".", "/")
    return next((p for p in (path.with_suffix(".py"), path / "__init__.py") if p.exists()), None)


def imported(code: str) -> Iterator[str]:
    """Yield the names of the modules that code imports, including imports inside functions."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                yield name if module_file(name) else node.module


def packages(codes: list[str]) -> set[str]:
    """Return the packages that the codes import, directly or through modules of sipsched."""
    seen: set[Path] = set()
    others: set[str] = set()
    while codes:
        for name in imported(codes.pop()):
            file = module_file(name)
            if file is None:
                others.add(name.partition(".")[0])
            elif file not in seen:
                seen.add(file)
                codes.append(file.read_text())
    of_module = packages_distributions()
    result = {of_module[name][0] for name in others - set(sys.stdlib_module_names) - {"sipsched"}}
    return {name.lower() for name in result}


def scripts_of(environment: str) -> list[str]:
    """Return the code of all jobs that use an environment: the scripts of rules, and the notebooks of pages."""
    codes = []
    for rules in sorted((WORKFLOW / "rules").glob("*.smk")):
        for rule in re.split(r"^ *(?:rule|checkpoint) ", rules.read_text(), flags=re.MULTILINE)[1:]:
            (script,) = re.findall(r'"\.\./scripts/(\w+\.py)"', rule)
            (its,) = re.findall(r'"\.\./envs/(\w+)\.yaml"', rule)
            codes += [(WORKFLOW / "scripts" / script).read_text()] if its == environment else []
    if any("render.render" in code for code in codes):
        for notebook in (PROJECT_ROOT / "notebooks").glob("*.ipynb"):
            cells = json.loads(notebook.read_text())["cells"]
            codes += ["".join(c["source"]) for c in cells if c["cell_type"] == "code"]
    return codes


@pytest.mark.parametrize("path", sorted((WORKFLOW / "envs").glob("*.yaml")), ids=lambda p: p.stem)
def test_an_environment_has_the_packages_of_its_scripts_in_the_locked_versions(path: Path) -> None:
    entries = yaml.safe_load(path.read_text())["dependencies"]
    (python, *rest), nested = (
        [entry for entry in entries if isinstance(entry, str) and entry != "pip"],
        [entry["pip"] for entry in entries if isinstance(entry, dict)],
    )
    pinned = dict(PIN.findall("\n".join([*rest, *(name for pip in nested for name in pip)])))
    assert python == "python>=3.11"
    locked = dict(PIN.findall((PROJECT_ROOT / "requirements.lock").read_text()))
    assert pinned == {name: locked[name] for name in pinned}

    declared = (PROJECT_ROOT / "pyproject.toml").read_text()
    direct = {name for name in locked if f'"{name}>=' in declared}
    needed = packages(scripts_of(path.stem)) & direct
    assert set(pinned) == needed
