"""Folders that are nobody else's, programs that are as they were built, and the lock: each script by itself."""

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


def test_a_folder_is_made_and_found_again(folder: Path) -> None:
    for _ in range(2):
        places.claim_here([folder, folder / "run" / "sps"])
    assert (folder.stat().st_mode & 0o777, folder.stat().st_uid) == (0o700, os.geteuid())
    (folder / "run" / "sps" / "proxy.log").write_text("")
    places.claim_here([folder])


def a_link(folder: Path) -> Path:
    folder.with_name("elsewhere").mkdir()
    folder.symlink_to(folder.with_name("elsewhere"))
    return folder


def a_link_to_nothing(folder: Path) -> Path:
    folder.symlink_to(folder.with_name("elsewhere"))
    return folder


def a_file(folder: Path) -> Path:
    folder.write_text("")
    return folder


def a_link_inside(folder: Path) -> Path:
    (folder / "native").mkdir(parents=True)
    (folder / "native" / "probe").symlink_to("/tmp")  # noqa: S108
    return folder / "native" / "probe"


def one_that_others_write(folder: Path) -> Path:
    folder.mkdir()
    folder.chmod(0o757)
    return folder


def one_in_a_folder_that_others_write(folder: Path) -> Path:
    folder.parent.chmod(0o777)
    return folder.parent


def a_program_that_a_group_writes(folder: Path) -> Path:
    program = folder / "native" / "generator" / "sipload"
    program.parent.mkdir(parents=True)
    program.write_text("")
    program.chmod(0o775)
    return program


def somebody_elses(folder: Path) -> Path:
    folder.mkdir()
    os.chown(folder, NOBODY, NOBODY)
    return folder


def a_makefile_of_somebody_else(folder: Path) -> Path:
    planted = folder / "native" / "generator" / "GNUmakefile"
    planted.parent.mkdir(parents=True)
    planted.write_text("all:\n\ttouch /pwned\n")
    os.chown(planted, NOBODY, NOBODY)
    return planted


def one_in_somebody_elses(folder: Path) -> Path:
    os.chown(folder.parent, NOBODY, NOBODY)
    return folder.parent


@pytest.mark.parametrize(
    "planted",
    [
        *(a_link, a_link_to_nothing, a_file, a_link_inside, one_that_others_write),
        *(one_in_a_folder_that_others_write, a_program_that_a_group_writes),
        *(
            pytest.param(case, marks=needs_root)
            for case in (somebody_elses, a_makefile_of_somebody_else, one_in_somebody_elses)
        ),
    ],
)
def test_what_is_not_ours_alone_is_refused_by_name(
    planted: Callable[[Path], Path], folder: Path
) -> None:
    name = planted(folder)
    with pytest.raises(
        StableError, match=rf"{name} is \S+ of \S+: .*must be root's alone"
    ) as error:
        places.claim_here([folder])
    assert "\n" not in str(error.value)


def test_a_sticky_folder_above_will_do(folder: Path) -> None:
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
    found = sh(places.CHECK_BUILD, part, *programs).splitlines()
    return places.build_problem(PurePosixPath(part), found)


def test_a_part_as_it_was_built(part: Path) -> None:
    assert problem(part, "sipload") is None


def test_a_program_that_was_not_built(part: Path) -> None:
    assert problem(part, "sipl", "jitter") == (
        f"{part}: missing program: {part}/sipl, {part}/jitter"
    )


@pytest.mark.parametrize("name", ["sipload", "build/6.1/skel.h", "GNUmakefile"])
def test_a_file_that_was_replaced_or_added(part: Path, name: str) -> None:
    (part / name).write_text("something else")
    assert problem(part, "sipload") == f"{part}: not what was built: {name}"


def test_a_file_that_is_gone(part: Path) -> None:
    (part / "sipload").unlink()
    assert problem(part, "sipload") == f"{part}: not what was built: sipload"


def test_a_part_that_was_never_built(part: Path) -> None:
    (part / "built.sha256").unlink()
    assert problem(part) == f"{part}: missing program: {part}"
    assert problem(part / "none") == f"{part}/none: missing program: {part}/none"


def test_the_lock_names_its_holder_and_forgets_him(tmp_path: Path) -> None:
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


def test_a_lock_whose_file_was_removed_is_taken_anew(tmp_path: Path) -> None:
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
def test_a_lock_that_is_no_file(tmp_path: Path, planted: str) -> None:
    lock = tmp_path / "lock"
    lock.mkdir() if planted == "folder" else os.mkfifo(lock)
    with (
        pytest.raises(StableError, match=f"its lock {lock} is not a file"),
        locked_here(lock, "the bed", "a run", 1),
    ):
        pass


@pytest.mark.parametrize("name", ["CLAIM", "RECORD_BUILD", "CHECK_BUILD", "LOCK"])
def test_scripts_of_places_are_posix_shell(name: str) -> None:
    subprocess.run(["dash", "-n", "-c", getattr(places, name)], check=True)


@pytest.mark.parametrize("name", ["FIND", "START", "END", "WATCH"])
def test_scripts_of_groups_are_posix_shell(name: str) -> None:
    subprocess.run(["dash", "-n", "-c", getattr(groups, name)], check=True)
