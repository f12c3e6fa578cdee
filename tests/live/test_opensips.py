"""OpenSIPS, where its binary is: over TCP, and instances of it, as far as it can."""

import json
import os
import shutil
import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from helpers import LOAD, pids, wait_for

from sipsched.errors import TransientError

Measure = Callable[..., Path]


@pytest.fixture(scope="module", autouse=True)
def opensips() -> None:
    """Skip where it is not: Debian 12 has no package of it."""
    if shutil.which("opensips") is None:
        pytest.skip("not installed: opensips, of which Debian 12 has no package")


def run_json(record: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((record / "run.json").read_text())
    return document


@pytest.mark.parametrize(
    ("sut", "opened"),
    [("opensips-tcp", 8), ("opensips-tcp-per-call", 500), ("opensips-tcp-dispatcher", 8)],
)
def test_over_tcp_every_message_is_counted_on_both_sides(
    measure: Measure, sut: str, opened: int
) -> None:
    run = run_json(measure(sut=sut, threads=4, cps=200, duration_s=2.5))
    generator, ledger = run["generator"], run["ledger"]
    assert generator["calls_completed"] == 500
    assert generator["connections"]["opened"] == opened
    assert ledger["unit"] == "messages"
    assert ledger["to_sps"]["sent"] == ledger["to_sps"]["received"] == 3000
    assert ledger["from_sps"]["sent"] == ledger["from_sps"]["received"] == 3500
    found = {finding["rule"]: finding["value"] for finding in run["verdict"]["findings"]}
    if sut.endswith("dispatcher"):
        assert found["calls_split"] == found["share_excess"] == 0
        # 125 each, with a standard deviation of 10
        assert all(80 < calls < 170 for calls in run["proxy"]["calls_of_instances"])


def test_instances_share_its_port_and_every_call_is_whole_at_one(measure: Measure) -> None:
    run = run_json(measure(sut="opensips-udp-partitioned", threads=4, cps=200, duration_s=2.5))
    found = {finding["rule"]: finding["value"] for finding in run["verdict"]["findings"]}
    assert run["generator"]["calls_completed"] == 500
    assert run["probe"]["records"] == 3000
    assert found["calls_split"] == found["share_excess"] == 0
    assert len(run["proxy"]["shards"]["selected"]) == 4


def test_what_one_that_is_killed_leaves_does_not_refuse_the_next_run(measure: Measure) -> None:
    with ThreadPoolExecutor(1) as pool:
        made = pool.submit(measure, sut="opensips-tcp", cps=200, duration_s=1.5, drain_s=2.0)
        wait_for(lambda: bool(pids(LOAD)) or made.done(), 20)
        time.sleep(0.5)
        for pid in pids(r"^opensips .*proxy\.cfg"):
            os.kill(pid, signal.SIGKILL)
        with pytest.raises(TransientError, match="the proxy ended"):
            made.result()
    run = run_json(measure(sut="opensips-tcp", cps=200, duration_s=1.5))
    assert run["generator"]["calls_completed"] == 300
