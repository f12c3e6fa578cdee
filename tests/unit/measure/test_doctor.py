"""What is told of a machine, from what was printed on one and from what others would print."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from sipsched.measure import doctor
from sipsched.measure.doctor import LESS, NO, YES, Facts
from sipsched.paths import PROJECT_ROOT
from sipsched.plan.config import load_config
from sipsched.testbed.inventory import load_testbed

SEEN = Path(__file__).parents[2] / "data" / "doctor" / "root-lockdown-integrity.txt"
"""Printed on a virtual machine with Linux 6.18, locked down to integrity, while both CPUs were busy."""
TESTBEDS = PROJECT_ROOT / "hardware" / "testbeds"


@pytest.fixture
def facts():
    return Facts.parse(SEEN.read_text())


@pytest.fixture
def wanted():
    bed = load_testbed("local")
    return doctor._wanted(bed, bed.hosts, load_config(PROJECT_ROOT / "config" / "config.yaml"))


def examined(facts, wanted, **changed):
    """Judge the facts, some of them changed; None: it was not printed. By subject."""
    named = {name.replace("__", " "): value for name, value in changed.items()}
    values = {**facts.values, **named}
    left = {name: value for name, value in values.items() if value is not None}
    return {each.subject: each for each in doctor.examine(replace(facts, values=left), wanted)}


def test_what_was_printed_is_told(facts, wanted):
    found = examined(facts, wanted)
    states = {subject: each.state for subject, each in found.items()}
    assert [subject for subject, state in states.items() if state == NO] == []
    less = {"BPF", "lockdown", "scheduler", "debugfs", "quiet now"}
    assert {subject for subject, state in states.items() if state == LESS} == less
    assert (
        "6.18.44-fc-v657, Debian GNU/Linux 12 (bookworm), a virtual machine" in found["system"].told
    )
    assert found["BPF"].told.startswith("six stamps, of which t_sockq is a lower bound: ")
    assert "EPERM (kernel lockdown, LSM or missing capability)" in found["BPF"].told
    assert found["lockdown"].told.startswith("integrity")
    assert found["scheduler"].told == "EEVDF (Linux 6.6 and later)"
    refused = "the kernel refuses migration_cost_ns, tunable_scaling, base_slice_ns"
    assert found["debugfs"].told == refused
    assert found["CPUs"].told == "2 online, of which the SPS has 1, 0"
    # of CPU 1: 100 ticks, 1 user, 88 nice and 11 system
    assert "0.0 % of the SPS's CPU time was stolen" in found["quiet now"].told
    assert "100.0 % went to other programs" in found["quiet now"].told


def test_a_user_without_root_can_measure_nothing_and_is_told_what_works(facts, wanted):
    unseen = {f"built__{part}": None for part in wanted.built}
    hidden = {f"refused__{doctor.DEBUGFS}{name}": None for name in ("migration_cost_ns",)}
    found = examined(
        facts,
        wanted,
        uid="1000",
        namespaces=None,
        probe=None,
        lockdown="",
        listed="",
        **unseen,
        **hidden,
    )
    assert found["root"].state == NO
    assert "make reports" in found["root"].remedy
    assert found["native parts"].told.startswith("not built (or not to be seen without root)")
    assert found["BPF"].told == "not tried: needs root; BTF"
    assert found["lockdown"].told == "not told without root"


def test_without_root_the_scheduler_is_told_by_the_version_and_said_so(facts, wanted):
    files = {key.replace(" ", "__"): None for key in facts.values if key.startswith("refused ")}
    blind = {"uid": "1000", "listed": "", **files}
    found = examined(facts, wanted, **blind)
    assert found["scheduler"].told == "EEVDF, by the version alone (6.18.44-fc-v657)"
    assert found["debugfs"].told.startswith("cannot be looked into without root")
    older = examined(facts, wanted, **blind, kernel="6.1.0-28-amd64")
    assert older["scheduler"] == doctor.Finding(
        "scheduler", YES, "CFS, by the version alone (6.1.0-28-amd64)"
    )


def test_cfs_is_told_by_its_files(facts, wanted):
    files = {key.replace(" ", "__"): None for key in facts.values if key.startswith("refused ")}
    names = ("latency_ns", "min_granularity_ns", "wakeup_granularity_ns", "migration_cost_ns")
    opened = {f"file__{doctor.DEBUGFS}{name}": "1" for name in (*names, "tunable_scaling")}
    found = examined(facts, wanted, **files, **opened)
    assert found["scheduler"].state == YES
    assert found["debugfs"].told == "open; of the papers' settings it has 5 of 5"
    sysctl = {f"file__/proc/sys/kernel/sched_{name}": "1" for name in names}
    old = examined(facts, wanted, **files, **sysctl, listed="")
    assert old["scheduler"].told == "CFS, /proc/sys/kernel (Linux 2.6.32 to 5.12)"
    assert old["debugfs"].state == YES


def test_without_a_proxy_it_is_said_how_to_get_one(facts, wanted):
    gone = {"program__kamailio": "", "program__opensips": ""}
    found = examined(facts, wanted, **gone)["SIP proxy"]
    assert (found.state, found.told) == (
        NO,
        "none of kamailio, opensips in PATH, /usr/sbin or /sbin",
    )
    assert found.remedy.startswith("fab provision installs")
    elsewhere = examined(facts, wanted, **gone, apt="")["SIP proxy"]
    assert "install what Debian calls kamailio" in elsewhere.remedy
    other = examined(facts, wanted, program__kamailio="")["SIP proxy"]
    assert (other.state, other.told) == (YES, "/usr/local/sbin/opensips; no kamailio")


@pytest.mark.parametrize(
    ("mounted", "told"),
    [
        ("rw /sys/kernel/tracing", "writable at /sys/kernel/tracing"),
        ("ro /sys/kernel/tracing", "read-only at /sys/kernel/tracing"),
        ("", "not mounted"),
    ],
)
def test_tracefs_is_told_and_nothing_hangs_on_it(facts, wanted, mounted, told):
    found = examined(facts, wanted, tracefs=mounted)
    assert found["tracefs"].told == f"{told}; the probe needs none of it"
    assert found["BPF"] == examined(facts, wanted)["BPF"]


def test_what_the_probe_says_of_itself_is_what_is_told(facts, wanted):
    best = examined(
        facts, wanted, probe=facts["probe"].replace('"best": "tracepoint"', '"best": "exact"')
    )
    assert best["BPF"].state == YES
    without = re.sub(r'"best": "tracepoint"', '"best": null', facts["probe"])
    none = examined(facts, wanted, probe=without)["BPF"]
    assert none.state == LESS
    assert "three of the six stamps" in none.remedy
    for broken in ("", "{", "[]", "{}", '{"best": "exact", "modes": []}'):
        found = examined(facts, wanted, probe=broken)["BPF"]
        assert found.told == "not tried: the probe is not built; BTF", broken
    assert "no BTF" in examined(facts, wanted, btf=None)["BPF"].told


@pytest.mark.parametrize(
    ("ticks", "state", "told"),
    [
        (
            (0, 100, 0),
            YES,
            "0.0 % of the SPS's CPU time was stolen by the hypervisor and 0.0 % went",
        ),
        ((2, 98, 0), LESS, "2.0 % .* a run with as much stolen is suspect"),
        ((10, 90, 0), LESS, "10.0 % .* a run with as much stolen does not count"),
        ((0, 90, 10), LESS, "10.0 % went to other programs$"),
    ],
)
def test_a_noisy_machine_is_told_with_its_numbers(facts, wanted, ticks, state, told):
    steal, idle, user = ticks
    before = "cpu 0 0 0 0 0 0 0 0 0 0\ncpu1 0 0 0 0 0 0 0 0 0 0\n"
    after = f"cpu 9 9 9 9 9 9 9 9 0 0\ncpu1 {user} 0 0 {idle} 0 0 0 {steal} 0 0\n"
    noisy = replace(facts, stat={"before": before, "after": after})
    found = examined(noisy, wanted)["quiet now"]
    assert found.state == state
    assert re.search(told, found.told)


def test_too_few_cpus_too_little_disk_and_other_systems_are_no(facts, wanted):
    found = examined(facts, wanted, online="0", free_kib="1024", program__taskset="")
    assert found["CPUs"].told == "1 online; CPU 1 of the testbed's file is not"
    assert found["disk"].state == NO
    assert found["other programs"].told == "missing: taskset"
    assert examined(facts, wanted, free_kib="")["disk"].state == NO
    (other,) = doctor.examine(Facts.parse("system\tDarwin\n"), wanted)
    assert (other.state, other.told) == (NO, "Darwin, not Linux")
    (nothing,) = doctor.examine(Facts.parse(""), wanted)
    assert nothing.state == NO


def test_a_host_that_cannot_be_reached_is_told():
    bed = load_testbed("example-physical", TESTBEDS)
    nowhere = [replace(host, address="127.0.0.1", port=9) for host in bed.hosts]
    bed = replace(bed, uac=nowhere[0], sps=nowhere[1], uas=nowhere[2])
    lines, possible = doctor.doctor(bed, load_config(PROJECT_ROOT / "config" / "config.yaml"))
    assert not possible
    assert sum("reached by SSH" in line for line in lines) == 4
    assert lines[-1].startswith("testbed ")


def test_a_simulated_testbed_needs_no_host():
    config = load_config(PROJECT_ROOT / "config" / "config.yaml")
    lines, possible = doctor.doctor(load_testbed("simulated"), config)
    assert possible
    assert "no host" in lines[0]
