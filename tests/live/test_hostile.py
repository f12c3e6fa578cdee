"""Strings of a testbed's file are values, wherever they go on a host."""

import dataclasses
import json
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath

import pytest

from sipsched.errors import StableError
from sipsched.measure.tuning import tuned
from sipsched.plan.modes import find_mode, load_modes
from sipsched.testbed import local, provision
from sipsched.testbed.inventory import Testbed
from sipsched.testbed.session import open_hosts

Measure = Callable[..., Path]


@pytest.fixture
def up(testbed: Testbed) -> Iterator[None]:
    local.ensure_up(testbed)
    yield
    local.take_down()


def test_a_work_folder_that_is_shell_text_runs_nothing(
    up: None, testbed: Testbed, measure: Measure, tmp_path: Path
) -> None:
    # past the schema, which refuses it
    folder = PurePosixPath(tmp_path, "it's $(touch pwned)`touch pwned`;touch pwned")
    bed = dataclasses.replace(testbed, workdir=folder, kind="ssh")
    provision.provision(bed, say=lambda line: None)
    record = measure(bed=bed, threads=2, cps=100, duration_s=1.0)
    assert json.loads((record / "run.json").read_text())["verdict"]["valid"]
    places = (Path(), Path.home(), tmp_path, *tmp_path.rglob("*"))
    assert [place for place in places if (place / "pwned").exists()] == []


@pytest.mark.parametrize("name", ["eth-none", "uac[0]", "uac0 sps0"])
def test_an_interface_that_is_not_there_is_one_clear_error(
    up: None, testbed: Testbed, name: str
) -> None:
    tuning = dataclasses.replace(testbed.tuning, receive_interfaces=(name,), receive_cpus=(0,))
    bed = dataclasses.replace(testbed, tuning=tuning)
    mode = find_mode("default", load_modes())
    with (
        open_hosts(bed) as hosts,
        pytest.raises(StableError, match=r"receive_interfaces: no interface .*there are: .*uac0"),
        tuned(hosts.sps, bed, mode, cores=1, threads=1),
    ):
        pass
