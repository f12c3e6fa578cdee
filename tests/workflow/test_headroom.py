"""Test of `fab headroom`, which predicts the capacity, on the messages of a recorded run."""

import subprocess
import sys
from pathlib import Path

import pytest

from sipsched.paths import PROJECT_ROOT
from sipsched.records.messages import messages_from_record, write_messages

FAB = str(Path(sys.executable).with_name("fab"))
RECORD = PROJECT_ROOT / "recorded/fit/local/kamailio-udp/default/cores~1/threads~8/cps~1600/rep~1"


def headroom(*arguments: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [FAB, "headroom", *arguments], cwd=PROJECT_ROOT, capture_output=True, text=True
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done


@pytest.fixture(scope="module")
def messages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("headroom") / "messages.nc"
    ds = messages_from_record(RECORD)
    write_messages(ds.assign_attrs(source=str(RECORD)), path)
    return path


def test_the_answer_has_at_most_eight_lines_and_takes_the_buffer_from_the_record(
    messages: Path,
) -> None:
    done = headroom("--messages", str(messages))
    lines = done.stdout.splitlines()
    assert done.returncode == 0, done.stderr
    assert 4 <= len(lines) <= 8
    assert "7\u202f680 messages" in lines[0]
    assert "1 CPU, 8 workers and a receive buffer of 524\u202f288 bytes" in lines[0]
    assert "1 % of the messages would be dropped at 1." in done.stdout


def test_each_wrong_argument_is_named_in_one_line(messages: Path, tmp_path: Path) -> None:
    for arguments, wrong in (
        (("--messages", str(tmp_path / "none.nc")), "none.nc: no such file"),
        (("--messages", str(messages), "--cores", "two"), "--cores: expected a whole number"),
    ):
        done = headroom(*arguments)
        assert done.returncode == 1
        assert wrong in done.stderr and len(done.stderr.splitlines()) == 1
