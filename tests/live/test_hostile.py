"""Test that no text of a testbed file is interpreted as shell code."""

import dataclasses
from pathlib import Path, PurePosixPath

import pytest
from helpers import Measure, run_json

from sipsched.errors import StableError
from sipsched.measure.tuning import tuned
from sipsched.plan.modes import find_mode, load_modes
from sipsched.testbed import provision
from sipsched.testbed.inventory import Testbed
from sipsched.testbed.session import open_hosts


def test_shell_text_in_the_work_folder_runs_nothing(
    up: None, testbed: Testbed, measure: Measure, tmp_path: Path
) -> None:
    # Set the folder after loading the testbed file, because the file's schema refuses such a folder.
    folder = PurePosixPath(tmp_path, "it's $(touch pwned)`touch pwned`;touch pwned")
    bed = dataclasses.replace(testbed, workdir=folder, kind="ssh")
    provision.provision(bed, say=lambda line: None)
    record = measure(bed=bed, threads=2, cps=100, duration_s=1.0)
    assert run_json(record)["verdict"]["valid"]
    places = (Path(), Path.home(), tmp_path, *tmp_path.rglob("*"))
    assert [place for place in places if (place / "pwned").exists()] == []


@pytest.mark.parametrize("name", ["eth-none", "uac[0]", "uac0 sps0"])
def test_missing_interface_is_an_error_in_one_line(up: None, testbed: Testbed, name: str) -> None:
    tuning = dataclasses.replace(testbed.tuning, receive_interfaces=(name,), receive_cpus=(0,))
    bed = dataclasses.replace(testbed, tuning=tuning)
    mode = find_mode("default", load_modes())
    with (
        open_hosts(bed) as hosts,
        pytest.raises(
            StableError, match=r"receive_interfaces: no interface .*existing interfaces: .*uac0"
        ),
        tuned(hosts.sps, bed, mode, cores=1, threads=1),
    ):
        pass
