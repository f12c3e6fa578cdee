"""Tests of the testbed `virtual` without a guest: command line, network, label, and limits in the guest's time."""

import dataclasses
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from helpers import values_of

from sipsched.errors import LostError, StableError
from sipsched.paths import TESTBEDS
from sipsched.plan.config import load_config
from sipsched.testbed import guest_image, virtual, virtual_clock
from sipsched.testbed.inventory import Testbed, VirtualGuest, load_testbed
from sipsched.testbed.patience import Patience

TESTBED = load_testbed("virtual")


def command(testbed: Testbed = TESTBED) -> list[str]:
    assert testbed.virtual is not None
    image = guest_image.GuestImage(Path("/images/6.1-abc"))
    return virtual.guest_command(testbed, testbed.virtual, image, Path("/lib"), Path("/state"))


def copied(folder: Path, **changes: Any) -> Testbed:
    """Load a copy of the testbed's file in which some keys of the guest are changed."""
    document = yaml.safe_load((TESTBEDS / "virtual.yaml").read_text())
    document["virtual"] |= changes
    (folder / "virtual.yaml").write_text(yaml.safe_dump(document))
    return load_testbed("virtual", folder)


def test_programs_of_a_guest_outlive_minutes_in_which_this_machine_is_busy():
    assert TESTBED.control_s == 600
    assert load_testbed("local").control_s == 60


def test_the_command_line_has_the_clock_and_one_closed_card_per_host() -> None:
    argv = command()
    assert argv[:5] == ["chrt", "--idle", "0", "env", "LD_PRELOAD=/lib/libsipvirtual.so"]
    (plugin,) = values_of(argv, "-plugin")
    assert {"mips=7000.0", "quantum_ns=5000", "idle_rate=1.0"} < set(plugin.split(","))
    assert values_of(argv, "-smp") == ["8,sockets=1,cores=8,threads=1"]
    assert "tsc_early_khz=1000000" in values_of(argv, "-append")[0].split()
    cards = values_of(argv, "-netdev")
    assert len(cards) == 3
    for card, host in zip(cards, TESTBED.hosts, strict=True):
        assert f"hostfwd=tcp:127.0.0.1:{host.port}-10.0.2.15:22" in card.split(",")
        assert "restrict=on" in card.split(",")
    assert sum("virtio-net-pci" in device for device in values_of(argv, "-device")) == 3


def test_each_socket_can_be_a_numa_node(tmp_path: Path) -> None:
    testbed = copied(tmp_path, sockets=3, cores_per_socket=4, memory_mib=4097, numa=True)
    argv = command(testbed)
    assert values_of(argv, "-numa") == [
        "node,nodeid=0,cpus=0-3,memdev=node0",
        "node,nodeid=1,cpus=4-7,memdev=node1",
        "node,nodeid=2,cpus=8-11,memdev=node2",
    ]
    sizes = [backend.rpartition("size=")[2] for backend in values_of(argv, "-object")]
    assert sizes == ["1367M", "1365M", "1365M"]


def test_the_scheduler_can_ignore_cpus_of_the_guest(tmp_path: Path) -> None:
    assert "isolcpus" not in values_of(command(), "-append")[0]
    argv = command(copied(tmp_path, isolated=[4, 7]))
    assert "isolcpus=4,7" in values_of(argv, "-append")[0].split()


def test_each_role_has_its_own_port_and_cpus() -> None:
    assert len({host.port for host in TESTBED.hosts}) == 3
    cpus = [cpu for host in TESTBED.hosts for cpu in host.cpus]
    helpers = {cpu for host in TESTBED.hosts for cpu in host.helper_cpus}
    assert len(set(cpus)) == len(cpus)
    assert not helpers & set(cpus)
    for host in TESTBED.hosts:
        assert Path(host.identity_file).parent == virtual.STATE
        assert Path(host.known_hosts).parent == virtual.STATE


def test_the_network_script_makes_the_agents_namespaces() -> None:
    lines = virtual.network_script(TESTBED).splitlines()
    for role, net in (("uac", "198.18.1"), ("uas", "198.18.2")):
        assert f"ip link add {role}0 type veth peer name sip0 netns {role}" in lines
        assert f"ip address add {net}.1/30 dev {role}0" in lines
        assert f"ip -n {role} address add {net}.2/30 dev sip0" in lines
        assert any(f"unshare --net=/run/netns/{role} " in line for line in lines)
        assert f"ip -n {role} route add 198.18.0.1/32 via {net}.1" in lines
        assert any(line.startswith(f"ip netns exec {role} taskset --cpu-list 7 ") for line in lines)
    assert "taskset --cpu-list --pid 4 1 > /dev/null" in lines


def test_the_label_names_every_setting_of_the_clock(tmp_path: Path) -> None:
    clock = {"mips": 2500, "quantum_ns": 1000, "kernel_weight": 8.5, "wake_ns": 1200}
    testbed = copied(tmp_path, clock=clock, sockets=2, cores_per_socket=4)
    labels = testbed.labels
    assert labels.fidelity == (
        "Real kernel and proxy, virtual time: instructions counted, no caches "
        "(2500 MIPS, kernel weight 8.5, wake-up time 1.2 µs, quantum 1 µs)"
    )
    assert "2 sockets of 4 cores, Debian's 6.1 kernel (CFS)" in labels.description


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"cores_per_socket": 7}, r"hosts\.uac: the guest has CPUs 0 to 6 .*found \[7\]"),
        ({"clock": {"mips": 0}}, r"virtual\.clock"),
        ({"speed": 1}, r"virtual: unknown key 'speed'"),
        ({"kernel": "6.9"}, r"virtual\.kernel"),
        ({"isolated": [3, 4]}, r"virtual\.isolated: expected no CPU of the proxy, found \[3\]"),
    ],
)
def test_a_wrong_key_is_named(tmp_path: Path, changes: dict[str, Any], expected: str) -> None:
    with pytest.raises(StableError, match=expected):
        copied(tmp_path, **changes)


def test_hotplug_is_refused_because_the_agents_share_the_guest(tmp_path: Path) -> None:
    text = (TESTBEDS / "virtual.yaml").read_text()
    (tmp_path / "virtual.yaml").write_text(text.replace("cpuset", "hotplug"))
    with pytest.raises(StableError, match="use cpuset"):
        load_testbed("virtual", tmp_path)


def test_a_changed_file_or_library_needs_another_boot(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    bed = virtual.VirtualTestbed()
    monkeypatch.setattr(virtual, "image_name", lambda kernel, copies: kernel)
    monkeypatch.setattr(virtual, "built", lambda: Path("/lib-1"))
    assert TESTBED.virtual is not None
    guest: VirtualGuest = dataclasses.replace(
        TESTBED.virtual, clock=dataclasses.replace(TESTBED.virtual.clock, mips=2000)
    )
    sps = dataclasses.replace(TESTBED.sps, helper_cpus=(7,))
    beds = [
        TESTBED,
        dataclasses.replace(TESTBED, virtual=guest),
        dataclasses.replace(TESTBED, sps=sps),
    ]
    identities = {bed._identity(testbed) for testbed in beds}
    monkeypatch.setattr(virtual, "built", lambda: Path("/lib-2"))
    assert len(identities | {bed._identity(TESTBED)}) == 4


def test_bringing_up_shows_a_line_before_each_long_step(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Replace the image, the self-test, the keys and QEMU, and compare the lines with the steps."""
    bed = virtual.VirtualTestbed()
    bed.state = tmp_path
    events: list[str] = []

    def image(kernel: str, say: Any, copies: Any) -> guest_image.GuestImage:
        say("image")
        return guest_image.GuestImage(Path("/images/6.1-abc"))

    def tested(clock: Any, kernel: Path, folder: Path, say: Any) -> None:
        say(f"test {clock} with {kernel}")

    monkeypatch.setattr(virtual, "ensure_image", image)
    monkeypatch.setattr(virtual, "ensure_tested", tested)
    monkeypatch.setattr(virtual, "image_name", lambda kernel, copies: kernel)
    monkeypatch.setattr(virtual, "built", lambda: Path("/lib"))
    monkeypatch.setattr(bed, "_make_keys", lambda addresses: None)
    monkeypatch.setattr(bed, "_write_seed", lambda files: None)
    monkeypatch.setattr(bed, "_run", lambda argv: events.append("QEMU"))
    monkeypatch.setattr(bed, "_wait_for_guest", lambda testbed, limit_s: None)
    bed._create(TESTBED, events.append)
    assert TESTBED.virtual is not None
    test = f"test {TESTBED.virtual.clock} with /images/6.1-abc/vmlinuz"
    assert events[:2] == ["image", test]
    assert "testbed virtual (about 25 s" in events[2]
    assert events[3:] == ["QEMU"]


def test_a_limit_counts_the_guests_time() -> None:
    times: Iterator[float] = itertools.chain([0.0, 1.0, 4.9], itertools.repeat(5.0))
    patience = Patience(lambda: next(times), 600)
    steps: list[float] = []

    def never(step_s: float) -> bool:
        steps.append(step_s)
        return False

    assert not patience.wait(never, 5.0)
    assert steps == pytest.approx([1, 1, 0.1, 0])
    assert Patience(lambda: 0.0).wait(lambda step_s: True, 5.0)
    # A wait that cannot read the guest's clock has a limit in real time, which is longer than in the guest's time.
    assert (patience.real(20), Patience().real(20)) == (600, 20)


def test_a_wait_for_a_guest_that_hangs_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real_s = itertools.count()
    monkeypatch.setattr("time.monotonic", lambda: float(next(real_s)))
    counters = virtual_clock.STATISTICS.pack(virtual_clock.STATISTICS_MAGIC, 7 * 10**9, *[0] * 7)
    virtual_clock.statistics_file(tmp_path).write_bytes(counters)
    clock = virtual_clock.StandstillCheck(tmp_path)
    assert clock.now() == 7.0
    with pytest.raises(LostError, match="stood still"):
        Patience(clock.now).wait(lambda step_s: False, 8.0)


LOGGER = {"name": "logger", "busy_us": 1000, "period_us": 4000}


def with_competitors(folder: Path, *competitors: dict[str, Any], file: str = "virtual") -> Testbed:
    document = yaml.safe_load((TESTBEDS / f"{file}.yaml").read_text())
    document["competitors"] = list(competitors)
    (folder / f"{file}.yaml").write_text(yaml.safe_dump(document))
    return load_testbed(file, folder)


def test_the_description_names_the_competitors(tmp_path: Path) -> None:
    bed = with_competitors(tmp_path, LOGGER | {"cpus": [0, 1]}, LOGGER | {"name": "cron"})
    assert bed.labels.description.endswith(
        "; competitor logger (1,000 µs of every 4,000 µs on CPUs 0–1); competitor cron (1,000 µs of every "
        "4,000 µs on all CPUs of the SPS)"
    )
    cron = LOGGER | {"name": "cron", "policy": "batch", "nice": 5}
    assert "cron (1,000 µs of every 4,000 µs on all CPUs of the SPS, SCHED_BATCH, nice 5)" in (
        with_competitors(tmp_path, cron).description
    )
    # The guest need not boot again for another competitor.
    assert virtual.network_script(bed) == virtual.network_script(TESTBED)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"cpus": [4]}, r"logger: the SPS has CPUs \[0, 1, 2, 3\] for the proxy, found \[4\]"),
        ({"busy_us": 4001}, r"logger: busy_us: expected at most period_us \(4000\), found 4001"),
        ({"name": "a name"}, r"competitors.*name"),
        ({"name": "sixteen-letters-"}, r"competitors.*name"),
        ({"policy": "deadline"}, r"competitors.*policy"),
        ({"nice": 20}, r"competitors.*nice"),
        ({"policy": "idle", "nice": 5}, r"logger: nice: .* with policy idle"),
    ],
)
def test_a_wrong_competitor_is_refused(
    tmp_path: Path, change: dict[str, Any], expected: str
) -> None:
    with pytest.raises(StableError, match=expected):
        with_competitors(tmp_path, LOGGER | change)


def test_two_competitors_need_two_names(tmp_path: Path) -> None:
    with pytest.raises(StableError, match="logger: two competitors have this name"):
        with_competitors(tmp_path, LOGGER, dict(LOGGER))


def test_a_reader_of_the_log_and_a_sut_that_logs_belong_together(tmp_path: Path) -> None:
    reader = {"name": "syslogd", "busy_us": 20, "cpus": [1]}
    bed = with_competitors(tmp_path, reader, LOGGER)
    assert "competitor syslogd (20 µs CPU time per line of the log on CPU 1)" in bed.description
    silent = load_config().sut("kamailio-udp")
    logging = dataclasses.replace(silent, log_messages=True)
    bed.check_log(logging)
    with pytest.raises(
        StableError, match=r"the competitor syslogd reads .* logs none; set log_mes"
    ):
        bed.check_log(silent)
    with pytest.raises(StableError, match="no competitor of the testbed reads the lines"):
        with_competitors(tmp_path, LOGGER).check_log(logging)
    with_competitors(tmp_path, LOGGER).check_log(silent)
    with pytest.raises(StableError, match=r"syslogd and second have no period_us"):
        with_competitors(tmp_path, reader, {**reader, "name": "second", "cpus": [0]})


def test_only_a_testbed_in_virtual_time_has_competitors(tmp_path: Path) -> None:
    with pytest.raises(StableError, match="competitors: a testbed of kind local has no such key"):
        with_competitors(tmp_path, LOGGER, file="local")
