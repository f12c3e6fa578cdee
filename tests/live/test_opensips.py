"""Test OpenSIPS over TCP and in several instances, if OpenSIPS is installed."""

import os
import shutil
import signal

import pytest
from helpers import Measure, findings, pids, run_json, under_load

from sipsched.errors import TransientError


@pytest.fixture(scope="module", autouse=True)
def opensips() -> None:
    """Skip the tests of OpenSIPS if OpenSIPS is not installed, because Debian 12 has no package of OpenSIPS."""
    if shutil.which("opensips") is None:
        pytest.skip("not installed: opensips, of which Debian 12 has no package")


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
    result = findings(run)
    if sut.endswith("dispatcher"):
        assert result["calls_split"] == result["share_excess"] == 0
        # Each instance gets 125 calls on average, with a standard deviation of 10.
        assert all(80 < calls < 170 for calls in run["proxy"]["calls_of_instances"])


def test_instances_share_a_port_and_each_call_stays_at_one(measure: Measure) -> None:
    run = run_json(measure(sut="opensips-udp-partitioned", threads=4, cps=200, duration_s=2.5))
    result = findings(run)
    assert run["generator"]["calls_completed"] == 500
    assert run["probe"]["records"] == 3000
    assert result["calls_split"] == result["share_excess"] == 0
    assert len(run["proxy"]["shards"]["selected"]) == 4


def test_killed_proxy_does_not_block_the_next_run(measure: Measure) -> None:
    with under_load(measure, sut="opensips-tcp", cps=200, duration_s=1.5, drain_s=2.0) as made:
        for pid in pids(r"^opensips .*proxy\.cfg"):
            os.kill(pid, signal.SIGKILL)
        with pytest.raises(TransientError, match="the proxy ended"):
            made.result()
    run = run_json(measure(sut="opensips-tcp", cps=200, duration_s=1.5))
    assert run["generator"]["calls_completed"] == 300
