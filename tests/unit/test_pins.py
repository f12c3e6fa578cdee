"""Test that the locked versions satisfy pyproject.toml, and that environment.yml has the same versions."""

import re
import tomllib

import yaml
from packaging.version import Version

from sipsched.paths import PROJECT_ROOT

NOT_ON_CONDA_FORGE = ("mlrsearch", "snakemake-executor-plugin-slurm")
PIN = re.compile(r"^([A-Za-z0-9_.-]+)[=>]?=([0-9][^ ;\\]*)")


def pins(lines: list[str]) -> dict[str, str]:
    matches = [PIN.match(line) for line in lines]
    assert all(matches), [line for line, match in zip(lines, matches, strict=True) if not match]
    return {match[1].lower().replace("_", "-"): match[2] for match in matches if match}


def pyproject() -> tuple[dict[str, str], dict[str, str], dict[str, str]]:
    document = tomllib.loads((PROJECT_ROOT / "pyproject.toml").read_text())
    groups = document["dependency-groups"]
    return pins(document["project"]["dependencies"]), pins(groups["dev"]), pins(groups["docs"])


def locked() -> dict[str, str]:
    text = (PROJECT_ROOT / "requirements.lock").read_text()
    return pins([line for line in text.splitlines() if re.match(r"[A-Za-z0-9]", line)])


def test_lock_file_satisfies_every_lower_bound() -> None:
    versions = locked()
    run, dev, docs = pyproject()
    assert len(run) > 20
    for name, bound in (run | dev | docs).items():
        assert Version(versions[name]) >= Version(bound), name


def test_every_direct_dependency_is_explained_and_no_other() -> None:
    rows = re.findall(
        r"^\| ([a-z0-9, -]+) \| 20",
        (PROJECT_ROOT / "docs/dependencies.md").read_text(),
        re.MULTILINE,
    )
    document = tomllib.loads((PROJECT_ROOT / "pyproject.toml").read_text())
    others = [
        *document["dependency-groups"]["crate"],
        *document["project"]["optional-dependencies"]["cluster"],
        *document["build-system"]["requires"],
    ]
    assert {name for row in rows for name in row.split(", ")} == set().union(
        *pyproject(), pins(others)
    )


def test_lock_file_has_a_hash_for_every_package() -> None:
    text = (PROJECT_ROOT / "requirements.lock").read_text()
    blocks = re.split(r"\n(?=[A-Za-z0-9])", text.strip())
    assert len(blocks) > 100
    assert all("--hash=sha256:" in block for block in blocks)


def test_conda_environment_agrees() -> None:
    environment = yaml.safe_load((PROJECT_ROOT / "environment.yml").read_text())
    conda = [entry for entry in environment["dependencies"] if isinstance(entry, str)]
    (pip,) = [entry["pip"] for entry in environment["dependencies"] if isinstance(entry, dict)]
    run, dev, _ = pyproject()
    from_conda = pins([entry for entry in conda if not entry.startswith(("python", "pip"))])
    from_pip = pins([entry for entry in pip if entry != "-e ."])
    versions = locked()
    assert from_conda | from_pip == {name: versions[name] for name in run | dev}
    assert from_pip.keys() == dev.keys() | set(NOT_ON_CONDA_FORGE)
    assert [entry for entry in conda if entry.startswith("python")] == ["python>=3.11"]
