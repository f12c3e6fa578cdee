"""Tests of the functions that the workflow's scripts share: one-line errors, repeated attempts, and a clean end."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from sipsched.errors import ComputedFileError, StableError, TransientError
from sipsched.scripting import (
    announced,
    attempted,
    clear_dead_locks,
    may_pass,
    one_line_errors,
    stderr_into,
)


def failing(*errors: Exception) -> tuple[list[Exception], object]:
    left = list(errors)

    def action() -> None:
        if left:
            raise left.pop(0)

    return left, action


def test_a_temporary_error_is_tried_three_times(capsys: pytest.CaptureFixture[str]) -> None:
    left, action = failing(TransientError("stolen"), TransientError("late"))
    attempted(action)
    assert not left
    told = capsys.readouterr().err.splitlines()
    assert told == ["attempt 2 of 3: stolen", "attempt 3 of 3: late"]
    left, action = failing(*(TransientError(str(n)) for n in range(4)))
    with pytest.raises(TransientError, match="2"):
        attempted(action)
    assert len(left) == 1


def test_a_permanent_error_is_not_tried_again() -> None:
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
    # the job prints nothing, because the parent process reports the interrupt once for all jobs
    assert done.stderr == ""
    assert log.read_text().startswith("interrupted: ")
    assert len(log.read_text().splitlines()) == 1


def test_an_error_is_one_line_in_the_log_of_a_job_and_here_without_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "log"
    with pytest.raises(SystemExit) as ended, one_line_errors(str(log)):
        raise StableError("no such host")
    assert ended.value.code == 1
    assert capsys.readouterr().err == ""
    assert log.read_text() == "error: no such host\n"
    assert not may_pass(log)
    with pytest.raises(SystemExit, match=r"^error: no such host$"), one_line_errors():
        raise StableError("no such host")


def test_the_log_of_a_job_says_whether_another_attempt_may_help(tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert not may_pass(log)
    for attempt, follows in ((1, "attempt 2 of 3 follows after"), (3, "that was attempt 3 of 3")):
        with pytest.raises(SystemExit), one_line_errors(str(log), attempt):
            raise TransientError("the hypervisor took 4.0% of the SPS's CPU time")
        assert may_pass(log)
        assert log.read_text().startswith("disturbed: the hypervisor took 4.0%")
        assert follows in log.read_text()
    # the log does not announce another attempt if the job has no further attempts
    with pytest.raises(SystemExit), one_line_errors(str(log)):
        raise TransientError("late")
    assert log.read_text() == "error: late\n"


def test_a_damaged_file_that_a_job_made_is_removed_so_that_it_is_made_again(tmp_path: Path) -> None:
    log, made, recorded = tmp_path / "log", tmp_path / "summary.nc.zst", tmp_path / "record"
    for path in (made, recorded):
        path.write_text("half")
        with pytest.raises(SystemExit), one_line_errors(str(log), computed=[str(made)]):
            raise ComputedFileError(f"{path}: truncated; delete it and run snakemake", path)
    assert recorded.exists()
    assert not made.exists()
    with pytest.raises(SystemExit), one_line_errors(str(log), computed=[str(made)]):
        raise ComputedFileError(f"{made}: truncated", made)
    assert log.read_text() == f"error: {made}: truncated; the file is removed\n"


def test_a_mistake_in_the_program_leaves_its_traceback_in_the_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with pytest.raises(SystemExit), one_line_errors(str(log)):
        raise KeyError("threads")
    assert log.read_text().splitlines()[-1] == "KeyError: 'threads'"
    assert not may_pass(log)
    with pytest.raises(KeyError), one_line_errors():
        raise KeyError("threads")


def test_the_log_of_a_job_has_the_errors_of_the_job_and_its_programs(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "log"
    with pytest.raises(SystemExit), one_line_errors(str(log)), stderr_into(str(log)):
        subprocess.run([sys.executable, "-c", "import sys; sys.exit('no encryption')"])
        print("divided by zero", file=sys.__stderr__)
        raise StableError("cell 5")
    assert log.read_text() == "error: cell 5\nno encryption\ndivided by zero\n"
    print("here again", file=sys.__stderr__)
    assert capfd.readouterr().err == "here again\n"


HELD = """
import signal, subprocess, sys
from sipsched.scripting import hold_interrupts
# reset SIGINT, because a shell starts background processes with SIGINT ignored
signal.signal(signal.SIGINT, signal.SIG_DFL)
hold_interrupts()
with subprocess.Popen([sys.executable, "-c", sys.argv[1], sys.argv[2]]) as child:
    sys.exit(child.wait())
"""
LOADING = """
import os, signal, sys
os.kill(os.getpid(), signal.SIGINT)
from sipsched.scripting import one_line_errors
with one_line_errors(sys.argv[1]):
    print("still running")
"""


def test_an_interrupt_waits_until_a_job_has_loaded_its_modules(tmp_path: Path) -> None:
    log = tmp_path / "log"
    done = subprocess.run(
        [sys.executable, "-c", HELD, LOADING, str(log)], capture_output=True, text=True, timeout=30
    )
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "")
    assert log.read_text().startswith("interrupted: ")


def test_locks_end_with_their_process(tmp_path: Path) -> None:
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


def test_the_working_process_is_named_until_it_ends(tmp_path: Path) -> None:
    folder = tmp_path / "controllers"
    assert announced(folder) == []
    code = (
        "import sys; from pathlib import Path; from sipsched import scripting\n"
        "scripting.CONTROLLERS = Path(sys.argv[1])\n"
        "word = scripting.announce('somebody'); print(flush=True); input()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()
        assert announced(folder) == ["somebody"]
        child.kill()
    assert announced(folder) == []
    assert list(folder.iterdir()) == []
