"""Tests of `fab doctor`, which judges a machine, on the output of a real machine and on changes of this output."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from sipsched.measure import doctor
from sipsched.measure.doctor import LESS, NO, YES
from sipsched.measure.machine_facts import Facts
from sipsched.paths import PROJECT_ROOT
from sipsched.plan.config import load_config
from sipsched.testbed.inventory import load_testbed

SEEN = Path(__file__).parents[2] / "data" / "doctor" / "root-lockdown-integrity.txt"
"""Output of a virtual machine with Linux 6.18 in lockdown mode integrity, while both CPUs were busy."""
TESTBEDS = PROJECT_ROOT / "hardware" / "testbeds"


@pytest.fixture
def facts():
    return Facts.parse(SEEN.read_text())


@pytest.fixture
def wanted():
    bed = load_testbed("local")
    return doctor._wanted(bed, bed.hosts, load_config(PROJECT_ROOT / "config" / "config.yaml"))


def examined(facts, wanted, **changed):
    """Change facts about the machine, and return the findings by subject. The value None removes a fact."""
    named = {name.replace("__", " "): value for name, value in changed.items()}
    values = {**facts.values, **named}
    left = {name: value for name, value in values.items() if value is not None}
    return {
        finding.subject: finding for finding in doctor.examine(replace(facts, values=left), wanted)
    }


def test_a_locked_down_virtual_machine_can_measure_with_restrictions(facts, wanted):
    findings = examined(facts, wanted)
    states = {subject: finding.state for subject, finding in findings.items()}
    assert NO not in states.values()
    less = {"BPF", "lockdown", "scheduler", "debugfs", "quiet now"}
    assert {subject for subject, state in states.items() if state == LESS} == less
    # the finding about each subject contains the value that determines its state
    for subject, value in {
        "system": "6.18.44-fc-v657, Debian GNU/Linux 12 (bookworm), a virtual machine",
        "BPF": "EPERM (kernel lockdown, LSM or missing capability)",
        "lockdown": "integrity",
        "scheduler": "EEVDF (Linux 6.6 and later)",
        "debugfs": "migration_cost_ns, tunable_scaling, base_slice_ns",
        "CPUs": "2 online, of which the SPS has 1, 0",
        # ticks of CPU 1: 100 in total, 1 user, 88 nice and 11 system
        "quiet now": "100.0 %",
    }.items():
        assert value in findings[subject].text


def test_a_refusal_of_real_time_priority_names_the_control_group(facts, wanted):
    assert "SCHED_FIFO" not in examined(facts, wanted)
    assert examined(facts, wanted, fifo="yes")["SCHED_FIFO"].state == YES
    found = examined(facts, wanted, fifo="no", cpu__group="/lab/ci")["SCHED_FIFO"]
    assert found.state == LESS
    assert "/lab/ci" in found.text
    assert "BPF" in found.text
    assert "cpu.rt_runtime_us" in found.remedy
    assert "group" not in examined(facts, wanted, fifo="no", cpu__group="/")["SCHED_FIFO"].text


def test_the_largest_competitors_are_named(facts, wanted):
    """Examine a report in the form that sipaccount prints."""
    numbers = {"policy": 0, "nice": 10, "bursts": 3, "longest_ns": 5, "cpu": 1}
    task = {"comm": "make", "pid": 7, "tgid": 7, "part": "fair", **numbers, "ns": 900_000_000}
    report = {"cpus": [], "tasks": [task], "wait": None, "gaps": [], "tasks_lost": 0, "runs": 0}
    report |= {
        "run_ns": 0,
        "stopped": {"ns": 0, "pid": 0, "traced": 0},
        "samples": {"t_ns": [], "competed_ns": []},
    }
    text = examined(facts, wanted, account=json.dumps(report))["quiet now"].text
    assert "make (nice 10, pid 7) ran 0.9 s on CPU 1" in text


def refused_files(facts):
    """Return changes of facts that hide the scheduler's files, as on a machine that refuses to open them."""
    return {key.replace(" ", "__"): None for key in facts.values if key.startswith("refused ")}


def test_a_user_without_root_can_measure_nothing(facts, wanted):
    unseen = {f"built__{part}": None for part in wanted.built}
    hidden = {"namespaces": None, "probe": None, "lockdown": "", "listed": ""}
    findings = examined(facts, wanted, uid="1000", **hidden, **unseen, **refused_files(facts))
    assert findings["root"].state == findings["native parts"].state == NO
    assert "make reports" in findings["root"].remedy
    for subject in ("native parts", "BPF", "lockdown", "debugfs"):
        assert "root" in findings[subject].text
    assert findings["scheduler"].text == "EEVDF, judged by the version alone (6.18.44-fc-v657)"
    older = examined(facts, wanted, listed="", **refused_files(facts), kernel="6.1.0-28-amd64")
    assert older["scheduler"] == doctor.MachineFinding(
        "scheduler", YES, "CFS, judged by the version alone (6.1.0-28-amd64)"
    )


def test_cfs_is_known_by_its_files(facts, wanted):
    names = ("latency_ns", "min_granularity_ns", "wakeup_granularity_ns", "migration_cost_ns")
    opened = {f"file__{doctor.DEBUGFS}{name}": "1" for name in (*names, "tunable_scaling")}
    findings = examined(facts, wanted, **refused_files(facts), **opened)
    assert findings["scheduler"].state == YES
    assert "5 of the papers' 5" in findings["debugfs"].text
    sysctl = {f"file__/proc/sys/kernel/sched_{name}": "1" for name in names}
    old = examined(facts, wanted, **refused_files(facts), **sysctl, listed="")
    assert old["scheduler"].text == "CFS, /proc/sys/kernel (Linux 2.6.32 to 5.12)"
    assert old["debugfs"].state == YES


def test_a_missing_proxy_has_a_remedy_for_each_package_system(facts, wanted):
    gone = {"program__kamailio": "", "program__opensips": ""}
    result = examined(facts, wanted, **gone)["SIP proxy"]
    assert result.state == NO
    assert result.remedy.startswith("fab provision installs")
    assert "kamailio" in examined(facts, wanted, **gone, apt="")["SIP proxy"].remedy
    other = examined(facts, wanted, program__kamailio="")["SIP proxy"]
    assert (other.state, other.text) == (YES, "/usr/local/sbin/opensips; no kamailio")


@pytest.mark.parametrize(
    ("mounted", "text"),
    [
        ("rw /sys/kernel/tracing", "writable at /sys/kernel/tracing"),
        ("ro /sys/kernel/tracing", "read-only at /sys/kernel/tracing"),
        ("", "not mounted"),
    ],
)
def test_the_probe_does_not_depend_on_tracefs(facts, wanted, mounted, text):
    findings = examined(facts, wanted, tracefs=mounted)
    assert text in findings["tracefs"].text
    assert findings["tracefs"].state == YES
    assert findings["BPF"] == examined(facts, wanted)["BPF"]


def test_the_state_of_bpf_is_the_one_that_the_probe_reports(facts, wanted):
    def probe(best):
        text = facts["probe"].replace('"best": "tracepoint"', f'"best": {best}')
        return examined(facts, wanted, probe=text)["BPF"]

    assert probe('"exact"').state == YES
    assert probe("null").state == LESS
    assert "library" in probe("null").remedy
    for broken in ("", "{", "[]", "{}", '{"best": "exact", "modes": []}'):
        assert "not tried" in examined(facts, wanted, probe=broken)["BPF"].text, broken
    assert "no BTF" in examined(facts, wanted, btf=None)["BPF"].text


@pytest.mark.parametrize(
    ("steal", "idle", "user", "state", "text"),
    [
        (0, 100, 0, YES, "0.0 % .* stolen .* 0.0 %"),
        (2, 98, 0, LESS, "2.0 % .* suspect$"),
        (10, 90, 0, LESS, "10.0 % .* invalid$"),
        (0, 90, 10, LESS, "10.0 % was used by other programs$"),
    ],
)
def test_a_noisy_machine_has_a_number(facts, wanted, steal, idle, user, state, text):
    before = "cpu 0 0 0 0 0 0 0 0 0 0\ncpu1 0 0 0 0 0 0 0 0 0 0\n"
    after = f"cpu 9 9 9 9 9 9 9 9 0 0\ncpu1 {user} 0 0 {idle} 0 0 0 {steal} 0 0\n"
    noisy = replace(facts, stat={"before": before, "after": after})
    result = examined(noisy, wanted)["quiet now"]
    assert result.state == state
    assert re.search(text, result.text)


def test_a_small_machine_and_another_system_cannot_measure(facts, wanted):
    findings = examined(facts, wanted, online="0", free_kib="1024", program__taskset="")
    for subject, word in (("CPUs", ": 1"), ("disk", "free"), ("other programs", "taskset")):
        assert findings[subject].state == NO
        assert word in findings[subject].text
    assert examined(facts, wanted, free_kib="")["disk"].state == NO
    for text in ("system\tDarwin\n", ""):
        (other,) = doctor.examine(Facts.parse(text), wanted)
        assert (other.subject, other.state) == ("system", NO)


def test_only_a_testbed_with_reachable_hosts_can_be_measured():
    config = load_config(PROJECT_ROOT / "config" / "config.yaml")
    bed = load_testbed("example-physical", TESTBEDS)
    uac, sps, uas = (replace(host, address="127.0.0.1", port=9) for host in bed.hosts)
    lines, possible = doctor.doctor(replace(bed, uac=uac, sps=sps, uas=uas), config)
    assert not possible
    assert sum("reached by SSH" in line for line in lines) == 4
    _, possible = doctor.doctor(load_testbed("simulated"), config)
    assert possible
