"""Tests that the make targets in files for GitHub, Binder, pre-commit and development containers exist."""

import json
import re

import yaml

from sipsched.paths import PROJECT_ROOT

FOLDERS = (".github/workflows", ".devcontainer", ".binder", ".ci")
FILES = [
    PROJECT_ROOT / ".pre-commit-config.yaml",
    *(path for folder in FOLDERS for path in (PROJECT_ROOT / folder).iterdir()),
]
COMMAND = re.compile(r"(?:^|\brun: |\bentry: |&& |\")make ([a-z./]+)")
"""A call of make at the beginning of a command."""
TARGETS = set(
    re.findall(r"^([a-z./]+):", (PROJECT_ROOT / "Makefile").read_text(), flags=re.MULTILINE)
)


def commands() -> list[str]:
    """Return the make targets that the files call."""
    lines = [line for path in FILES for line in path.read_text().splitlines()]
    return [target for line in lines for target in COMMAND.findall(line)]


def test_every_make_target_exists() -> None:
    asked = commands()
    assert {"lint", "check", "test", "reports", "lab", "docs", "publish"} <= set(asked)
    assert set(asked) <= TARGETS


def test_every_file_can_be_read() -> None:
    for path in (PROJECT_ROOT / ".github").rglob("*.yml"):
        document = yaml.safe_load(path.read_text())
        assert document["name"], path
    assert json.loads((PROJECT_ROOT / ".devcontainer/devcontainer.json").read_text())["image"]
    catalog = yaml.safe_load((PROJECT_ROOT / ".snakemake-workflow-catalog.yml").read_text())
    assert catalog["usage"]["report"] is True


def test_untrusted_code_never_runs_on_a_machine_of_the_project() -> None:
    workflow = yaml.safe_load((PROJECT_ROOT / ".github/workflows/tests.yml").read_text())
    own = {name: job for name, job in workflow["jobs"].items() if "self-hosted" in job["runs-on"]}
    assert own
    assert all("github.event_name != 'pull_request'" in job["if"] for job in own.values())


def test_binder_can_execute_its_script() -> None:
    assert (PROJECT_ROOT / ".binder" / "postBuild").stat().st_mode & 0o111
