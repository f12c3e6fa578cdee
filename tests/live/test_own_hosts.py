"""Test runs on three hosts that share no file system, users or clock (tests/own_hosts.py)."""

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers import run_json
from own_hosts import CLOCK_AHEAD_S, NAMES, USER, own_hosts

from sipsched.measure import crossing_search
from sipsched.plan import config
from sipsched.plan.run import Point
from sipsched.records.messages import messages_from_record, write_messages
from sipsched.records.switch_log import read_windows
from sipsched.records.windows import windows_from_record
from sipsched.testbed import provision
from sipsched.testbed.inventory import Testbed
from sipsched.testbed.links import check_links
from sipsched.testbed.session import open_hosts


@pytest.fixture(scope="module")
def bed(live_machine: None, tmp_path_factory: Any) -> Iterator[Testbed]:
    if "overlay" not in Path("/proc/filesystems").read_text():
        pytest.skip("this kernel has no overlayfs, of which the hosts' root file systems are made")
    with own_hosts(tmp_path_factory.mktemp("hosts")) as result:
        provision.provision(result, say=lambda line: None)
        yield result


def test_hosts_share_nothing(bed: Testbed) -> None:
    with open_hosts(bed) as hosts:
        check_links(hosts)
        said = [
            host.shell("hostname; id -un; cut -d. -f1 /proc/uptime; ps -e | wc -l").stdout.split()
            for host in hosts.all
        ]
        hosts.uac.run(["touch", f"{hosts.uac.base}/here"])
        seen = [host.run(["test", "-e", f"{host.base}/here"], check=False) for host in hosts.all]
    names, users, uptimes, processes = zip(*said, strict=True)
    assert names == tuple(NAMES.values())
    assert users == (USER, "root", "root")
    assert int(uptimes[0]) - int(uptimes[1]) == pytest.approx(CLOCK_AHEAD_S, abs=5)
    everything = sum(path.name.isdigit() for path in Path("/proc").iterdir())
    assert all(int(processes[agent]) < everything / 2 for agent in (0, 2))
    assert [result.exit_code for result in seen] == [0, 1, 1]


def test_run_has_every_message(bed: Testbed, measure: Any) -> None:
    record = measure(bed=bed, cps=300, duration_s=2.0)
    run = run_json(record)
    assert run["testbed"]["kind"] == "ssh"
    assert run["verdict"]["valid"], run["verdict"]
    assert run["probe"]["mode"] == "tracepoint"
    assert run["probe"]["records"] == 6 * 600
    assert run["generator"]["calls_completed"] == 600
    assert run["ledger"]["to_sps"]["residual"] == run["ledger"]["from_sps"]["residual"] == 0


def test_crossover_run_and_search(
    bed: Testbed, measure: Any, campaign: config.Config, tmp_path: Path
) -> None:
    record = measure(bed=bed, mode="default,batch", cps=300, mode_s=3.0)
    recorded = read_windows(record)
    assert recorded.log.ended == "plan"
    assert all(switch.good for switch in recorded.log.windows)
    write_messages(messages_from_record(record), tmp_path / "messages.nc")
    dataset = windows_from_record(tmp_path / "messages.nc", record)
    assert float(dataset["messages"].isel(washout=0).min()) > 100
    tolerant = dataclasses.replace(
        campaign,
        search=dataclasses.replace(
            campaign.search, trial_s=0.5, trials_s=0.5, highest_cps=8000, relative_width=0.8
        ),
    )
    point = Point(bed.name, "kamailio-udp", "default", 1, 4)
    crossing = json.loads(
        crossing_search.search_crossing(point, tolerant, bed, tmp_path / "raw").read_text()
    )
    assert 0 < crossing["lower_cps"] < crossing["upper_cps"]
