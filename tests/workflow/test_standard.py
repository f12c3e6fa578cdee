"""Tests that the workflow behaves like a standard Snakemake workflow: it needs no plugins, and works as a module."""

import html
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest
import yaml
from helpers import copy_project

from sipsched.paths import PROJECT_ROOT

RUN = "simulated/kamailio-udp/default/cores~1/threads~2/cps~100/rep~1"
SETTINGS = {"testbeds": ["simulated"], "only": ["load_sweep"], "load": {"duration_s": 0.5}}
FILES = (f"results/runs/{RUN}/summary.nc.zst", "reports/published.html")
"""A file of a run, and a page. Making both files tests every kind of script."""


def called(
    folder: Path, *command: str | Path, **environment: str
) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [*map(str, command)],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **environment},
    )


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """Return a folder with the files that the workflow needs from a clone of the repository."""
    folder = tmp_path / "clone"
    folder.mkdir()
    names = ("Snakefile", "config", "docs", "hardware", "workflow", "profiles", "notebooks", "src")
    for name in names:
        source = PROJECT_ROOT / name
        copy = shutil.copytree if source.is_dir() else shutil.copy
        copy(source, folder / name)
    (folder / "small.yaml").write_text(yaml.safe_dump(SETTINGS))
    return folder


@pytest.fixture
def plain_snakemake(tmp_path: Path) -> tuple[Path, ...]:
    """Return the command of Snakemake in an environment without the package sipsched and its plugins."""
    venv.create(tmp_path / "plain", symlinks=True)
    python = tmp_path / "plain" / "bin" / "python"
    (packages,) = (tmp_path / "plain").glob("lib/python*/site-packages")
    # Add the installed packages by a .pth file. Python ignores .pth files in the folder that this file names. sipsched
    # is installed by such a .pth file, so this environment lacks sipsched.
    (packages / "others.pth").write_text(sysconfig.get_path("purelib"))
    assert called(tmp_path, python, "-c", "import snakemake").returncode == 0
    assert called(tmp_path, python, "-c", "import sipsched").returncode == 1
    return python, Path("-m"), Path("snakemake")


def test_snakemake_without_the_plugins_makes_the_same_files(
    clone: Path, plain_snakemake: tuple[Path, ...]
) -> None:
    done = called(
        clone, *plain_snakemake, "--cores", "all", "--configfile", "small.yaml", "--", *FILES
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("plugins of sipsched are not installed") == 1
    assert all((clone / name).is_file() for name in (f"raw/{RUN}/run.json", *FILES))

    done = called(clone, *plain_snakemake, "--report", "report.zip", "--", "reports/published.html")
    assert done.returncode == 0, done.stderr
    with zipfile.ZipFile(clone / "report.zip") as report:
        names = report.namelist()
        content = report.read("report/report.html").decode()
    assert any(name.endswith("/published.html") for name in names)
    assert '"Several studies"' in content
    assert "The page published." in content


def test_another_workflow_uses_this_workflow_as_a_module(clone: Path, tmp_path: Path) -> None:
    """Load the workflow by github() as snakedeploy does. git replaces the address by the path of a repository."""
    git = ("git", "-c", "user.name=a", "-c", "user.email=a@localhost")
    for command in (("init", "-q"), ("add", "."), ("commit", "-qm", "all"), ("tag", "v1.0.0")):
        assert called(clone, *git, *command).returncode == 0
    outer = tmp_path / "outer"
    (outer / "config").mkdir(parents=True)
    settings = yaml.safe_load((clone / "config/config.yaml").read_text())
    settings["load"] |= SETTINGS["load"]
    (outer / "config/config.yaml").write_text(
        yaml.safe_dump(settings | {key: SETTINGS[key] for key in ("testbeds", "only")})
    )
    (outer / "Snakefile").write_text(
        f"""
configfile: "config/config.yaml"
module sipsched:
    snakefile: github("example/sipsched", path="workflow/Snakefile", tag="v1.0.0")
    config: config
use rule * from sipsched as sipsched_*
rule own:
    default_target: True
    input: {FILES}
    output: "own.txt"
    shell: "ls {{input}} > {{output}}"
"""
    )
    done = called(
        outer,
        *(sys.executable, "-m", "snakemake", "--cores", "all"),
        XDG_CACHE_HOME=str(tmp_path / "cache"),
        GIT_CONFIG_COUNT="1",
        GIT_CONFIG_KEY_0=f"url.{clone}.insteadOf",
        GIT_CONFIG_VALUE_0="https://github.com/example/sipsched",
    )
    assert done.returncode == 0, done.stderr
    assert sorted((outer / "own.txt").read_text().split()) == sorted(FILES)


def test_the_drawn_rules_are_the_rules_of_the_workflow(tmp_path: Path) -> None:
    """Compare docs/rulegraph.svg, which `make rulegraph` draws, with the rules of the recorded campaign."""
    # In a copy without results, Snakemake omits no rule that has nothing left to do.
    copy_project(tmp_path)
    shutil.copytree(PROJECT_ROOT / "recorded", tmp_path / "recorded")
    done = called(
        tmp_path,
        *(sys.executable, "-m", "snakemake", "--rulegraph", "dot"),
        *("--configfile", "config/config.yaml", "recorded/config.yaml"),
    )
    rules = dict(re.findall(r'(\d+)\[label = "(\w+)"', done.stdout))
    edges = re.findall(r"(\d+) -> (\d+)", done.stdout)
    svg = html.unescape((PROJECT_ROOT / "docs" / "rulegraph.svg").read_text())
    drawn_rules = dict(
        re.findall(r"<title>(\d+)</title>.*?<text[^>]*>(\w+)</text>", svg, re.DOTALL)
    )
    drawn_edges = re.findall(r"<title>(\d+)->(\d+)</title>", svg)
    assert len(rules) > 10
    assert sorted(drawn_rules.values()) == sorted(rules.values())
    # Compare reachable rules instead of edges, because the figure lacks edges that follow from other edges.
    assert reachable(drawn_rules, drawn_edges) == reachable(rules, edges)


def reachable(rules: dict[str, str], edges: list[tuple[str, str]]) -> set[tuple[str, str]]:
    """Return all pairs of rules of which the second needs the first, directly or through other rules."""
    pairs = {(rules[one], rules[other]) for one, other in edges}
    while more := {(a, d) for a, b in pairs for c, d in pairs if b == c} - pairs:
        pairs |= more
    return pairs
