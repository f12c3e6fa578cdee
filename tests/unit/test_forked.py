"""Tests of job scripts in forked processes (`snakemake_executor_plugin_campaign.forked`)."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest
from snakemake.benchmark import BenchmarkRecord
from snakemake.exceptions import RuleException

from sipsched.errors import TransientError
from snakemake_executor_plugin_campaign import Executor
from snakemake_executor_plugin_campaign.forked import Forks

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="jobs are forked on Linux")
SCRIPT = """\
import os, signal, sys
from pathlib import Path
assert "sipsched.measure.acquisition" in sys.modules and "sipsched.records.run_summary" in sys.modules
assert Path("/proc/self/comm").read_text() == "a_script_of_som\\n"
if snakemake == 40:
    os.kill(os.getpid(), signal.SIGKILL)
sys.exit(snakemake)
"""


def test_scripts_that_end_at_one_time_have_each_its_own_exit_code(tmp_path):
    script = tmp_path / "a_script_of_some_rule.py"
    script.write_text(SCRIPT)
    forks = Forks()

    def end(code: int) -> int:
        try:
            forks.run(script, code)
        except subprocess.CalledProcessError as error:
            assert str(script) in str(error)
            return error.returncode
        return 0

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(end, range(41))) == [*range(40), -9]


def test_a_fork_server_that_was_killed_is_one_clear_error_and_the_next_job_runs(tmp_path):
    script = tmp_path / "kill.py"
    script.write_text(
        "import os, signal, time\n"
        "if snakemake:\n"
        "    os.kill(os.getppid(), signal.SIGKILL)\n"
        "    time.sleep(0.5)\n"
    )
    forks = Forks()
    for _ in range(3):
        with pytest.raises(TransientError, match="the process that starts the jobs") as error:
            forks.run(script, True)
        assert "\n" not in str(error.value)
        forks.run(script, False)


def test_a_killed_fork_server_fails_the_job_of_a_rule_without_a_traceback(tmp_path):
    class Killed:
        def run(self, *_: object) -> None:
            raise TransientError("the fork server was killed")

    folder = SimpleNamespace(get_path_or_uri=lambda secret_free: str(tmp_path / "script.py"))
    rule = SimpleNamespace(
        script="script.py",
        basedir=SimpleNamespace(join=lambda name: folder),
        lineno=7,
        snakefile=str(tmp_path / "Snakefile"),
    )
    executor = object.__new__(Executor)
    executor._forks = Killed()
    job = SimpleNamespace(log=[tmp_path / "job.log"])
    with pytest.raises(RuleException, match="the fork server was killed") as error:
        executor._run_forked(rule, job, None)
    assert error.value.lineno == 7
    assert (tmp_path / "job.log").read_text() == "disturbed: the fork server was killed\n"


def test_the_time_and_memory_of_a_job_are_written_in_the_format_of_snakemake(
    tmp_path: Path,
) -> None:
    script = tmp_path / "script.py"
    script.write_text("kept = bytearray(50_000_000)\nsum(range(2_000_000))\n")
    path = tmp_path / "benchmarks" / "job.tsv"
    Forks().run(script, None, path)
    header, values = (line.split("\t") for line in path.read_text().splitlines())
    assert header == BenchmarkRecord.get_header()
    told = dict(zip(header, values, strict=True))
    assert 0 < float(told["cpu_time"]) < 10
    assert float(told["s"]) > 0
    assert float(told["max_rss"]) > 50
    assert told["max_uss"] == "NA"
