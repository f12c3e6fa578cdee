"""Tests of the offline bundle: it contains every needed package, and it notices every changed file."""

import hashlib
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from sipsched.errors import StableError
from sipsched.paths import PROJECT_ROOT
from sipsched.testbed import bundle
from sipsched.testbed.requirements import CONTROLLER_PACKAGES, PACKAGES

LOCK = """\
a==1 ; python_full_version < '3.11.5' \\
    --hash=sha256:00
a==2 ; python_full_version >= '3.11.5' \\
    --hash=sha256:01 \\
    --hash=sha256:02
b==3 \\
    --hash=sha256:03
c==4 ; sys_platform == 'win32' \\
    --hash=sha256:04
"""


def test_every_package_of_the_testbed_local_is_wanted():
    wanted = set(bundle.debian_packages())
    assert wanted >= {*CONTROLLER_PACKAGES, *(name for role in PACKAGES.values() for name in role)}
    assert wanted >= {"git", "make", "python3", "python3-venv"}


def test_the_lock_gives_the_requirements_of_one_python():
    old = "a==1 \\\n    --hash=sha256:00\nb==3 \\\n    --hash=sha256:03\n"
    new = "a==2 \\\n    --hash=sha256:01 \\\n    --hash=sha256:02\nb==3 \\\n    --hash=sha256:03\n"
    assert bundle.locked_for(LOCK, "3.11.2") == old
    assert bundle.locked_for(LOCK, "3.11.7") == new


@pytest.mark.parametrize("python", ["3.11.2", "3.11.7"])
def test_each_python_package_has_one_version_and_a_digest(python):
    text = bundle.locked_for((PROJECT_ROOT / "requirements.lock").read_text(), python)
    entries = re.split(r"\n(?=\S)", text.strip())
    names = [entry.partition("==")[0] for entry in entries]
    assert len(names) == len(set(names)) > 100
    assert all("--hash=sha256:" in entry for entry in entries)


@pytest.fixture
def folder(tmp_path):
    """Make a bundle with one real Debian package, without sources."""
    folder = tmp_path / "bundle"
    control = tmp_path / "package" / "DEBIAN" / "control"
    control.parent.mkdir(parents=True)
    control.write_text(
        "Package: example\nVersion: 1\nArchitecture: all\nMaintainer: nobody <n@example.org>\nDescription: example\n"
    )
    (folder / "packages").mkdir(parents=True)
    command = ["dpkg-deb", "--root-owner-group", "--build", str(tmp_path / "package")]
    subprocess.run([*command, str(folder / "packages")], check=True, capture_output=True)
    bundle.write_index(folder / "packages")
    shutil.copy(bundle.PROGRAM, folder / "run")
    architecture = subprocess.run(
        ["dpkg", "--print-architecture"], check=True, capture_output=True, text=True
    ).stdout.strip()
    (folder / "bundle.env").write_text(
        f"VERSION=1\nDEBIAN={bundle._debian_release()}\nARCHITECTURE={architecture}\nPYTHON_VERSION=3.11\n"
    )
    (folder / "sources.tar").write_bytes(b"")
    bundle.write_checksums(folder)
    return folder


def start(folder, *arguments):
    command = [str(folder / "run"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_manifest_has_the_digest_of_every_file(folder):
    listed = {
        name: digest
        for digest, _, name in (
            line.partition("  ") for line in (folder / bundle.CHECKSUMS).read_text().splitlines()
        )
    }
    files = [path for path in folder.rglob("*") if path.is_file()]
    expected = {
        f"./{path.relative_to(folder)}": hashlib.sha256(path.read_bytes()).hexdigest()
        for path in files
        if path.name != bundle.CHECKSUMS
    }
    assert listed == expected
    assert {"./packages/example_1_all.deb", "./packages/Packages", "./run"} <= set(listed)


def test_the_index_describes_each_debian_package(folder):
    package = folder / "packages" / "example_1_all.deb"
    index = (folder / "packages" / "Packages").read_text()
    assert "Package: example\n" in index
    assert f"Filename: ./{package.name}\nSize: {package.stat().st_size}\n" in index
    assert f"SHA256: {hashlib.sha256(package.read_bytes()).hexdigest()}\n" in index


def test_a_whole_bundle_passes_the_check(folder):
    # Run the step `packages`, which installs nothing, because this machine has git, make and Python.
    done = start(folder, "packages")
    assert done.returncode == 0, done.stderr
    assert not (folder / "sipsched").exists()


FILES = ("packages/example_1_all.deb", "sources.tar", "bundle.env", "SHA256SUMS")


@pytest.mark.parametrize(
    ("name", "damage"),
    [*((name, "missing") for name in FILES), *((name, "changed") for name in (*FILES, "run"))],
)
def test_a_damaged_bundle_gives_one_error_with_the_file(folder, name, damage):
    path = folder / name
    if damage == "missing":
        path.unlink()
    else:
        with path.open("a") as file:
            file.write("x\n")
    done = start(folder, "packages")
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: ")
    assert Path(name).name in line
    assert "copy the archive again" in line


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("DEBIAN", "1", "need Debian 1"),
        ("ARCHITECTURE", "mips", "is for mips"),
        ("PYTHON_VERSION", "2.0", "the wheels are for Python 2.0"),
    ],
)
def test_another_machine_gives_one_error(folder, key, value, expected):
    path = folder / "bundle.env"
    path.write_text(re.sub(f"^{key}=.*$", f"{key}={value}", path.read_text(), flags=re.M))
    bundle.write_checksums(folder)
    done = start(folder, "true")
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert expected in line


def test_a_changed_work_tree_makes_no_bundle(tmp_path, monkeypatch):
    monkeypatch.setattr(bundle, "code_version", lambda: "0.1.0-gabc-dirty")
    with pytest.raises(StableError, match=r"version 0\.1\.0-gabc-dirty; commit"):
        bundle.make_bundle(tmp_path, tmp_path / "to")
    assert not (tmp_path / "to").exists()


def test_a_package_that_apt_does_not_know_gives_one_error(tmp_path):
    with pytest.raises(StableError, match=r"no-such-package.*apt-get update"):
        bundle._debian(["no-such-package-x"], tmp_path / "packages")
