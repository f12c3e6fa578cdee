"""Tests of the shell scripts for hosts: folders that only one user may write, unchanged builds, and the lock."""

import os
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path, PurePosixPath

import pytest

from sipsched.errors import StableError, TransientError
from sipsched.testbed import groups, places
from sipsched.testbed.lock import locked_here

NOBODY = 65534
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="gives files away")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "sipsched"


def test_a_folder_is_created_and_found_again(folder: Path) -> None:
    for _ in range(2):
        places.claim_here([folder, folder / "run" / "sps"])
    assert (folder.stat().st_mode & 0o777, folder.stat().st_uid) == (0o700, os.geteuid())
    (folder / "run" / "sps" / "proxy.log").write_text("")
    places.claim_here([folder])


def link(folder: Path) -> Path:
    folder.with_name("elsewhere").mkdir()
    return dangling_link(folder)


def dangling_link(folder: Path) -> Path:
    folder.symlink_to(folder.with_name("elsewhere"))
    return folder


def plain_file(folder: Path) -> Path:
    folder.write_text("")
    return folder


def link_inside(folder: Path) -> Path:
    (folder / "native").mkdir(parents=True)
    (folder / "native" / "probe").symlink_to("/tmp")  # noqa: S108
    return folder / "native" / "probe"


def with_mode(mode: int, *names: str) -> Callable[[Path], Path]:
    """Return a function that plants a file or folder with permissions `mode`, which other users may write."""

    def plant(folder: Path) -> Path:
        path = folder.joinpath(*names)
        path.parent.mkdir(parents=True, exist_ok=True)
        if names and names[-1] == "sipload":
            path.write_text("")
        else:
            path.mkdir(exist_ok=True)
        path.chmod(mode)
        return Path(os.path.normpath(path))

    return plant


def of_nobody(*names: str) -> Callable[[Path], Path]:
    """Return a function that plants a file or folder of another user (nobody)."""

    def plant(folder: Path) -> Path:
        path = with_mode(0o700, *names)(folder)
        os.chown(path, NOBODY, NOBODY)
        return path

    return plant


@pytest.mark.parametrize(
    "planted",
    [
        *(link, dangling_link, plain_file, link_inside),
        *(with_mode(0o757), with_mode(0o777, ".."), with_mode(0o775, "native", "sipload")),
        *(
            pytest.param(of_nobody(*names), marks=needs_root)
            for names in ((), ("..",), ("native", "sipload"))
        ),
    ],
)
def test_a_folder_that_another_user_can_change_is_refused_by_name(
    planted: Callable[[Path], Path], folder: Path
) -> None:
    name = planted(folder)
    with pytest.raises(StableError, match=rf"{name} is \S+ of \S+: ") as error:
        places.claim_here([folder])
    assert "\n" not in str(error.value)


def test_a_sticky_folder_above_is_accepted(folder: Path) -> None:
    folder.parent.chmod(0o1777)
    places.claim_here([folder])


def sh(script: str, *arguments: object) -> str:
    argv = ["sh", "-c", script, "sh", *map(str, arguments)]
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout


@pytest.fixture
def part(tmp_path: Path) -> Path:
    folder = tmp_path / "a part"
    (folder / "build" / "6.1").mkdir(parents=True)
    for name in ("sipload", "sipload.c", "build/6.1/skel.h"):
        (folder / name).write_text(name)
    sh(places.RECORD_BUILD, folder)
    return folder


def problem(part: Path, *programs: str) -> str | None:
    result = sh(places.CHECK_BUILD, part, *programs).splitlines()
    return places.build_problem(PurePosixPath(part), result)


def test_only_an_unchanged_build_has_no_problem(part: Path) -> None:
    assert problem(part, "sipload") is None
    missing = f"{part}: missing program: {part}/sipl, {part}/jitter"
    assert problem(part, "sipl", "jitter") == missing
    for name in ("sipload", "build/6.1/skel.h", "GNUmakefile"):
        before = (part / name).read_text() if (part / name).exists() else None
        (part / name).write_text("something else")
        assert problem(part, "sipload") == f"{part}: changed since the build: {name}"
        (part / name).unlink() if before is None else (part / name).write_text(before)
    (part / "sipload").unlink()
    assert problem(part, "sipload") == f"{part}: changed since the build: sipload"
    (part / "built.sha256").unlink()
    assert problem(part) == f"{part}: missing program: {part}"
    assert problem(part / "none") == f"{part}/none: missing program: {part}/none"


def test_the_lock_names_its_holder(tmp_path: Path) -> None:
    lock, said = tmp_path / "lock", list[str]()
    with locked_here(lock, "the bed", "a run", 5, said.append):
        assert lock.read_text().startswith(f"a run (pid {os.getpid()} of ")
        started = time.monotonic()
        with (
            pytest.raises(TransientError, match=r"the bed is in use by a run \(pid .*waited 1 s"),
            locked_here(lock, "the bed", "another", 1, said.append),
        ):
            pass
        assert 0.9 < time.monotonic() - started < 3
    assert said[0].startswith("the bed is in use by a run")
    assert lock.read_text() == ""
    with locked_here(lock, "the bed", "a third", 0, said.append):
        pass
    assert len(said) == 1


def test_a_lock_whose_file_was_removed_is_acquired_again(tmp_path: Path) -> None:
    lock, order, waiting = tmp_path / "lock", list[str](), threading.Event()

    def second() -> None:
        with locked_here(lock, "the bed", "second", 10, lambda line: waiting.set()):
            order.append("second")
            assert lock.read_text().startswith("second ")

    with locked_here(lock, "the bed", "first", 0):
        thread = threading.Thread(target=second)
        thread.start()
        assert waiting.wait(5)
        lock.unlink()
        order.append("first")
    thread.join(10)
    assert order == ["first", "second"]


@pytest.mark.parametrize("planted", ["folder", "pipe"])
def test_a_lock_that_is_not_a_file_is_refused(tmp_path: Path, planted: str) -> None:
    lock = tmp_path / "lock"
    lock.mkdir() if planted == "folder" else os.mkfifo(lock)
    with (
        pytest.raises(StableError, match=f"its lock {lock} is not a file"),
        locked_here(lock, "the bed", "a run", 1),
    ):
        pass


@pytest.mark.parametrize(
    "script",
    [
        *(places.CLAIM, places.RECORD_BUILD, places.CHECK_BUILD, places.LOCK),
        *(groups.FIND, groups.START, groups.END, groups.WATCH),
    ],
)
def test_scripts_for_hosts_are_posix_shell(script: str) -> None:
    subprocess.run(["dash", "-n", "-c", script], check=True)
