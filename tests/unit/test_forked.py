"""Scripts of jobs in forked processes (`snakemake_executor_plugin_campaign.forked`)."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from snakemake_executor_plugin_campaign.forked import Forks

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="jobs are forked on Linux")
SCRIPT = """\
import os, signal, sys
from pathlib import Path
assert "sipsched.measure.acquisition" in sys.modules and "sipsched.records.summary" in sys.modules
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
