"""Tests of `fab doctor` and `fab modes`, on this machine and on a machine without some requirements."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sipsched.paths import PROJECT_ROOT

FAB = str(Path(sys.executable).with_name("fab"))
HIDE = 'for program in $(which -a kamailio opensips); do mount --bind /dev/null "$program"; done; exec "$@"'
READ_ONLY = "mount -t tracefs -o ro none /sys/kernel/tracing && " + 'exec "$@"'

root = pytest.mark.skipif(
    sys.platform != "linux" or os.geteuid() != 0, reason="needs root on Linux: mount namespaces"
)


def fab(*arguments, before=()):
    """Run a `fab` task. Return the exit code and the standard output, and fail on a traceback."""
    done = subprocess.run(
        [*before, FAB, *arguments],
        cwd=PROJECT_ROOT,
        capture_output=True,
        text=True,
        env=os.environ | {"HOME": "/nonexistent", "PYTHONDONTWRITEBYTECODE": "1"},
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, done.stdout


def states(text):
    rows = [line.split(maxsplit=1) for line in text.splitlines()]
    return {
        row[1].split("  ")[0]: row[0] for row in rows if row and row[0] in ("yes", "less", "no")
    }


def in_namespace(script):
    return ("unshare", "--mount", "sh", "-ec", script, "sh")


def test_the_exit_code_of_the_doctor_says_whether_something_is_missing():
    code, text = fab("doctor")
    result = states(text)
    assert len(result) > 10
    assert code == ("no" in result.values())
    assert text.splitlines()[-1].startswith("testbed local: ")


def test_without_root_nothing_can_be_measured_and_the_reason_is_given(nobody):
    code, text = fab("doctor", before=nobody)
    assert code == 1
    result = states(text)
    assert result["root"] == result["network namespaces"] == "no"
    assert "make reports" in text
    assert "nothing can be measured now; missing: this machine: root" in text


@root
def test_without_a_proxy_nothing_can_be_measured():
    code, text = fab("doctor", before=in_namespace(HIDE))
    assert code == 1
    assert states(text)["SIP proxy"] == "no"
    assert "fab provision" in text


@root
def test_a_read_only_tracefs_is_reported_and_changes_nothing():
    there = in_namespace(READ_ONLY)
    if subprocess.run([*there, "true"]).returncode:
        pytest.skip("tracefs cannot be mounted here")
    _, here = fab("doctor")
    _, text = fab("doctor", before=there)
    assert "read-only at /sys/kernel/tracing" in text
    assert states(text)["BPF"] == states(here)["BPF"]


@root
def test_the_doctor_mounts_nothing():
    def looked_at():
        mounts = Path("/proc/mounts").read_text().splitlines()
        return [line for line in mounts if line.split()[2] in ("tracefs", "debugfs", "securityfs")]

    before = looked_at()
    fab("doctor")
    assert looked_at() == before


def test_settings_of_a_mode_are_shown_for_more_cores_than_the_testbed_has():
    code, text = fab("modes", "--cores=4", "--threads=8")
    assert code == 0
    lines = text.splitlines()
    assert lines[0] == "4 cores of one processor, 8 threads; any kernel"
    assert ["enhanced", "sched_latency_ns", "3,200,000", "ns"] in [line.split() for line in lines]
    assert "testbed local: the SPS has 2 CPU(s)" in lines[-1]
    assert "cores=4 threads=8" in lines[-1] and "cps" not in lines[-1]


@pytest.mark.parametrize("wrong", ["--cores=0", "--cores=x", "--threads=-1"])
def test_modes_refuses_a_wrong_number_in_one_line(wrong):
    code, text = fab("modes", wrong)
    assert (code, text) == (1, "")
