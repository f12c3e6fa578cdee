"""What a generator does wrong, found out for what it is; for faults of the world see tests/faults."""

import dataclasses
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sipsched.errors import StableError, TransientError
from sipsched.files import read_zstd
from sipsched.measure import acquisition, generator
from sipsched.plan import config
from sipsched.testbed import local
from sipsched.testbed.inventory import Testbed

Measure = Callable[..., Path]


@pytest.fixture(autouse=True)
def up(testbed: Testbed) -> Any:
    local.ensure_up(testbed)
    yield
    local.take_down()


def broken_rules(raw: Path) -> set[str]:
    """Rules that the one failed run broke."""
    (failed,) = raw.rglob("*.failed-1")
    findings = json.loads((failed / "run.json").read_text())["verdict"]["findings"]
    return {finding["rule"] for finding in findings if finding["grade"] == "invalid"}


def test_a_clean_run_through_the_verdict(measure: Measure) -> None:
    run = json.loads((measure(threads=4, cps=500, duration_s=4.0) / "run.json").read_text())
    assert run["verdict"]["grade"] in ("valid", "suspect")
    assert run["ledger"]["to_sps"] == {
        **{"sent": 12000, "received": 12000, "refused": 0},
        **{"other_errors": 0, "no_port": 0, "residual": 0},
    }
    assert run["ledger"]["from_sps"]["residual"] == 0
    assert run["certificate"]["source"] == "calls"
    assert run["certificate"]["arrivals"] == 2000


def test_more_memory_than_the_sps_has_is_refused_before_a_process_starts(
    campaign: config.Config, testbed: Testbed, tmp_path: Path
) -> None:
    sut = dataclasses.replace(campaign.sut("kamailio-udp"), package_memory_mib=4096)
    large = dataclasses.replace(campaign, suts={sut.name: sut})
    run = config.Run(testbed.name, sut.name, "default", 1, 250, 100, 1)
    expected = r"kamailio-udp with 250 workers may use 1026048 MiB \(2048 shared, 4096 for each"
    with pytest.raises(StableError, match=expected):
        acquisition.measure(run, large, testbed, tmp_path / "raw")
    (commands,) = tmp_path.rglob("commands.json.zst")
    told = json.loads(read_zstd(commands, "commands", ""))
    argvs = [command["argv"] for command in told]
    assert not any("start-stop-daemon" in argv and "--start" in argv for argv in argvs)


def test_a_small_socket_at_the_uac_shows_as_the_generators_loss(
    measure: Measure, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # the smallest that the kernel gives: room for two datagrams; the UAC, first on its CPU, drains larger ones
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


def test_cpu_hogs_beside_the_uac_make_it_late(measure: Measure, tmp_path: Path) -> None:
    # only what has a higher priority than the UAC can take the CPU from it
    hogs = [subprocess.Popen(["taskset", "-c", "0", "chrt", "-f", "50", sys.executable, "-c", HOG])]
    try:
        time.sleep(0.2)
        with pytest.raises(
            TransientError, match=r"started more than|off the schedule|further from"
        ):
            measure(threads=4, cps=500, duration_s=3.0, timing=True)
    finally:
        for one in hogs:
            one.kill()
            one.wait()
    assert broken_rules(tmp_path / "raw") & {"lateness_p99_us", "rate_error", "ks_excess"}


def test_sipp_fails_the_certificate(measure: Measure, tmp_path: Path) -> None:
    with pytest.raises(TransientError, match="coefficient of variation"):
        measure(threads=4, cps=1000, duration_s=2.0, generator="sipp", law="constant", timing=True)
    assert "cv_error" in broken_rules(tmp_path / "raw")
