"""Test that sipsched refuses files that another user has planted, names these files, and never runs them."""

import dataclasses
import os
import shutil
from pathlib import Path, PurePosixPath

import pytest
from helpers import Measure

from sipsched.errors import StableError
from sipsched.testbed import local, namespaces
from sipsched.testbed.inventory import Testbed
from sipsched.testbed.provision import provision
from sipsched.testbed.session import open_hosts

NOBODY = 65534


@pytest.fixture
def bed(up: None, testbed: Testbed, tmp_path: Path) -> Testbed:
    """Return hosts with a work folder of this test."""
    return dataclasses.replace(testbed, workdir=PurePosixPath(tmp_path / "work"), kind="ssh")


def quiet(line: str) -> None:
    pass


def test_work_folder_of_another_user_is_refused(bed: Testbed, measure: Measure) -> None:
    folder = Path(bed.workdir)
    planted = folder / "native" / "generator" / "GNUmakefile"
    planted.parent.mkdir(parents=True)
    planted.write_text(f"all:\n\ttouch {folder.parent}/pwned\n")
    for path in (folder, planted):
        os.chown(path, NOBODY, NOBODY)
    for action in (lambda: provision(bed, say=quiet), lambda: measure(bed=bed)):
        with pytest.raises(StableError, match=rf"host \S+ .*{folder} is \S+ of nobody"):
            action()
    os.chown(folder, 0, 0)
    with pytest.raises(StableError, match=rf"host \S+ .*{planted} is \S+ of nobody"):
        provision(bed, say=quiet)
    assert not (folder.parent / "pwned").exists()


def test_foreign_makefile_is_not_run(bed: Testbed) -> None:
    folder = Path(bed.workdir)
    planted = folder / "native" / "generator" / "GNUmakefile"
    planted.parent.mkdir(parents=True)
    planted.write_text(f"all:\n\ttouch {folder.parent}/pwned\n")
    folder.chmod(0o700)
    provision(bed, say=quiet)
    assert not planted.exists()
    assert not (folder.parent / "pwned").exists()
    assert os.access(folder / "native" / "generator" / "sipload", os.X_OK)


@pytest.mark.parametrize(
    ("part", "program", "role"),
    [
        ("generator", "sipload", "ua[cs]"),
        ("scheduler", "taskslice", "sps"),
        ("scheduler", "switcher", "sps"),
        pytest.param("probe", "sipprobe", "sps", marks=pytest.mark.long),
        pytest.param("probe", "libsipstamp.so", "sps", marks=pytest.mark.long),
    ],
)
def test_changed_program_is_refused_and_rebuilt(
    bed: Testbed, testbed: Testbed, measure: Measure, part: str, program: str, role: str
) -> None:
    shutil.copytree(testbed.workdir / "native", bed.workdir / "native")
    Path(bed.workdir).chmod(0o700)
    replaced = Path(bed.workdir, "native", part, program)
    with replaced.open("ab") as file:
        file.write(b"\0")
    with pytest.raises(
        StableError,
        match=rf"host {role} .*native/{part}: changed since the build: {program}; run: fab",
    ):
        measure(bed=bed)
    provision(bed, say=quiet)
    with open_hosts(bed) as hosts:
        (host,) = [h for h in hosts.all if h.spec.role == role.replace("[cs]", "c")]
        host.require_built(part, [program])


def test_run_folder_of_another_user_is_refused(testbed: Testbed, measure: Measure) -> None:
    local.take_down()
    root = namespaces.STATE_ROOT
    assert [path.name for path in root.iterdir() if path.name != "kvm-works"] == []
    os.chown(root, NOBODY, NOBODY)
    try:
        for action in (lambda: local.ensure_up(testbed), measure):
            with pytest.raises(
                StableError, match=rf"this machine: {root} is \S+ of nobody"
            ) as error:
                action()
            assert "\n" not in str(error.value)
    finally:
        os.chown(root, 0, 0)


def test_lock_that_is_a_link_is_refused(testbed: Testbed, measure: Measure, tmp_path: Path) -> None:
    local.take_down()
    namespaces.LOCK_FILE.symlink_to(tmp_path / "pwned")
    try:
        with pytest.raises(StableError, match=rf"{namespaces.LOCK_FILE} is l\S+ of root"):
            measure()
    finally:
        namespaces.LOCK_FILE.unlink()
    assert not (tmp_path / "pwned").exists()
