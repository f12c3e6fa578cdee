"""What the workflow's scripts share: one line for an error, another attempt, an end in order."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from sipsched.errors import StableError, TransientError
from sipsched.scripting import attempted, clear_dead_locks, one_line_errors


def failing(*errors: Exception) -> tuple[list[Exception], object]:
    left = list(errors)

    def action() -> None:
        if left:
            raise left.pop(0)

    return left, action


def test_what_may_pass_is_tried_three_times(capsys: pytest.CaptureFixture[str]) -> None:
    left, action = failing(TransientError("stolen"), TransientError("late"))
    attempted(action)
    assert not left
    told = capsys.readouterr().err.splitlines()
    assert told == ["attempt 2 of 3: stolen", "attempt 3 of 3: late"]
    left, action = failing(*(TransientError(str(n)) for n in range(4)))
    with pytest.raises(TransientError, match="2"):
        attempted(action)
    assert len(left) == 1


def test_what_changes_nothing_is_not_tried_again() -> None:
    left, action = failing(StableError("no kamailio"), StableError("no kamailio"))
    with pytest.raises(StableError, match="no kamailio"):
        attempted(action)
    assert len(left) == 1


INTERRUPTED = """
import os, signal, sys, time
from sipsched.scripting import end_in_order, one_line_errors
end_in_order()
with one_line_errors(sys.argv[1]):
    try:
        os.kill(os.getpid(), int(sys.argv[2]))
        time.sleep(5)
    finally:
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGTERM)
        print("cleaned up")
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_second_signal_does_not_disturb_the_end(number: int, tmp_path: Path) -> None:
    log = tmp_path / "log"
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, str(log), str(int(number))],
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert (done.returncode, done.stdout) == (1, "cleaned up\n")
    assert done.stderr == log.read_text()
    assert done.stderr.startswith("interrupted: ")
    assert len(done.stderr.splitlines()) == 1


def test_an_error_is_one_line_here_and_in_the_log(tmp_path: Path) -> None:
    with (
        pytest.raises(SystemExit, match=r"^error: no such host$"),
        one_line_errors(str(tmp_path / "l")),
    ):
        raise StableError("no such host")
    assert (tmp_path / "l").read_text() == "error: no such host\n"


def test_locks_go_with_the_process_that_made_them(tmp_path: Path) -> None:
    lock = tmp_path / "locks" / "0.input.lock"
    lock.parent.mkdir()
    code = (
        "import sys, time; from pathlib import Path; from sipsched.scripting import clear_dead_locks\n"
        "alive = clear_dead_locks(Path(sys.argv[1])); print('holds', flush=True); time.sleep(30)"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as other:
        try:
            assert other.stdout is not None
            assert other.stdout.readline() == "holds\n"
            lock.touch()
            with clear_dead_locks(tmp_path):
                assert lock.exists()
        finally:
            os.kill(other.pid, signal.SIGKILL)
    with clear_dead_locks(tmp_path):
        assert not lock.exists()
