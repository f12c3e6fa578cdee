"""Test that the verdict names faults of the load generator. The tests in tests/faults are about other faults."""

import dataclasses
import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
from helpers import Measure, run_json

from sipsched.errors import StableError, TransientError
from sipsched.files import read_zstd
from sipsched.measure import acquisition, generator
from sipsched.plan import config
from sipsched.plan.run import Run
from sipsched.testbed.inventory import Testbed

pytestmark = [pytest.mark.usefixtures("up"), pytest.mark.quiet]


def broken_rules(raw: Path) -> set[str]:
    """Return the rules that the only failed run broke."""
    (failed,) = raw.rglob("*.failed-1")
    findings = run_json(failed)["verdict"]["findings"]
    return {finding["rule"] for finding in findings if finding["grade"] == "invalid"}


def test_undisturbed_run_passes_the_verdict(measure: Measure) -> None:
    run = run_json(measure(threads=4, cps=500, duration_s=4.0))
    assert run["verdict"]["grade"] in ("valid", "suspect")
    assert run["ledger"]["to_sps"] == {
        **{"sent": 12000, "received": 12000, "refused": 0},
        **{"other_errors": 0, "no_port": 0, "residual": 0},
    }
    assert run["ledger"]["from_sps"]["residual"] == 0
    assert run["certificate"]["source"] == "calls"
    assert run["certificate"]["arrivals"] == 2000
    if Path("/proc/config.gz").exists():
        assert "HZ=" in run["hosts"]["sps"]["files"]["kernel options"]


def test_sut_that_needs_too_much_memory_is_refused_before_it_starts(
    campaign: config.Config, testbed: Testbed, tmp_path: Path
) -> None:
    sut = dataclasses.replace(campaign.sut("kamailio-udp"), package_memory_mib=4096)
    large = dataclasses.replace(campaign, suts={sut.name: sut})
    run = Run(testbed.name, sut.name, "default", 1, 250, 100, 1)
    expected = r"kamailio-udp with 250 workers may use 1026048 MiB \(2048 shared, 1024000 private"
    with pytest.raises(StableError, match=expected):
        acquisition.measure(run, large, testbed, tmp_path / "raw")
    (commands,) = tmp_path.rglob("commands.json.zst")
    told = json.loads(read_zstd(commands, "commands", ""))
    argvs = [command["argv"] for command in told]
    assert not any("start-stop-daemon" in argv and "--start" in argv for argv in argvs)


def test_drops_at_the_uac_are_drops_of_the_generator(
    measure: Measure, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Use the smallest buffer, which holds two datagrams. The UAC empties a larger buffer before the buffer is full.
    monkeypatch.setattr(generator, "SOCKET_BUFFER_BYTES", 1)
    with pytest.raises(TransientError, match="sockets of UAC and UAS refused"):
        measure(threads=4, cps=2000, duration_s=2.0)
    assert "generator_drops" in broken_rules(tmp_path / "raw")


HOG = """
import time
while True:
    end = time.monotonic() + 0.02
    while time.monotonic() < end:
        pass
    time.sleep(0.02)
"""


def test_busy_loop_beside_the_uac_makes_it_late(measure: Measure, tmp_path: Path) -> None:
    # Give the loops a higher priority than the UAC's, because otherwise the loops would not delay the UAC.
    hogs = [subprocess.Popen(["taskset", "-c", "0", "chrt", "-f", "50", sys.executable, "-c", HOG])]
    try:
        time.sleep(0.2)
        with pytest.raises(
            TransientError,
            match=r"started more than|from the scheduled rate|larger than chance explains",
        ):
            measure(threads=4, cps=500, duration_s=3.0, timing=True)
    finally:
        for one in hogs:
            one.kill()
            one.wait()
    assert broken_rules(tmp_path / "raw") & {"lateness_p99_us", "rate_error", "ks_excess"}
