"""Test sipfactors, which counts waits for locks, on processes with known waits."""

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from helpers import build_native, wait_for

YIELDS, PASSED = 400, 14
PROCESSES = f"""
import os, socket, sys, threading
print(os.getpgid(0), flush=True)
sys.stdin.readline()
for _ in range({YIELDS}):
    os.sched_yield()
left, right = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
for _ in range({PASSED} // 2):
    socket.send_fds(left, [b"x"], [0, 1])
    for descriptor in socket.recv_fds(right, 1, 2)[1]:
        os.close(descriptor)
left.sendmsg([b"nothing passed"])
lock = threading.Lock()
lock.acquire()
waiting = threading.Thread(target=lock.acquire)
waiting.start()
threading.Event().wait(0.2)
lock.release()
waiting.join()
print("done", flush=True)
sys.stdin.readline()
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the program as provisioning does."""
    return build_native("probe", tmp_path_factory.mktemp("native"), "sipfactors") / "sipfactors"


def count(program: Path, group: str, folder: Path) -> subprocess.Popen[str]:
    """Start sipfactors, which counts the waits of a process group."""
    files = ["--report", str(folder / "report"), "--ready", str(folder / "ready")]
    counting = subprocess.Popen(
        [program, "--group", group, *files], text=True, stderr=subprocess.PIPE
    )
    wait_for(lambda: (folder / "ready").exists() or counting.poll() is not None, 20)
    return counting


def finish(counting: subprocess.Popen[str], folder: Path) -> dict[str, Any]:
    """Stop the program and return its report."""
    counting.send_signal(signal.SIGTERM)
    assert counting.wait(10) == 0, counting.communicate()[1]
    report: dict[str, Any] = json.loads((folder / "report").read_text())
    return report


def run_processes(group_counts: bool, program: Path, folder: Path) -> dict[str, Any]:
    """Run processes with known waits, and return the report of sipfactors.

    If `group_counts`, sipfactors counts the group of these processes. If not, it counts another group.
    """
    watched = subprocess.Popen(
        [sys.executable, "-c", PROCESSES],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        process_group=0,
    )
    assert watched.stdin and watched.stdout
    try:
        group = watched.stdout.readline().strip()
        counting = count(program, group if group_counts else "1", folder)
        watched.stdin.write("go\n")
        watched.stdin.flush()
        assert watched.stdout.readline() == "done\n"
        return finish(counting, folder)
    finally:
        watched.kill()
        watched.wait()


def test_waits_of_the_group_belong_to_the_proxy(program: Path, tmp_path: Path) -> None:
    proxy = run_processes(True, program, tmp_path)["proxy"]

    assert proxy["sched_yield"]["count"] == YIELDS
    assert proxy["sched_yield"]["ns"] > 0
    assert proxy["descriptors"] == PASSED
    assert proxy["futex"]["count"] >= 2
    # The lock and the event are held for 0.2 s each.
    assert 0.3e9 < proxy["futex"]["ns"] < 1.5e9


def test_waits_of_other_groups_belong_to_others(program: Path, tmp_path: Path) -> None:
    report = run_processes(False, program, tmp_path)

    assert report["proxy"]["sched_yield"] == {"count": 0, "ns": 0}
    assert report["proxy"]["descriptors"] == 0
    assert report["others"]["sched_yield"]["count"] >= YIELDS
    assert report["others"]["descriptors"] >= PASSED


@pytest.mark.parametrize("arguments", [[], ["--group", "0"], ["--group", "1x"], ["--group", "1"]])
def test_wrong_usage_prints_the_usage(program: Path, arguments: list[str]) -> None:
    files = ["--report", "x", "--ready", "y"] if arguments[-1:] != ["1"] else []
    argv = [program, *arguments, *files]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)

    assert done.returncode == 2
    assert done.stderr.startswith("sipfactors: usage: ")
