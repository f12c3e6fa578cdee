"""Tests that the published parts of a record contain no name of a person or of a machine."""

import json
from dataclasses import asdict

import pytest

from sipsched.paths import PROJECT_ROOT
from sipsched.records.publishable import (
    NOT_TOLD,
    publishable_error,
    publishable_hosts,
    publishable_reason,
)
from sipsched.records.run_document import read_run
from sipsched.testbed.inventory import HostSpec

RECORDED = min((PROJECT_ROOT / "recorded" / "raw").rglob("run.json")).parent


def test_only_listed_facts_of_a_host_are_published() -> None:
    facts = {
        "address": "sps.lab.example.org",
        "owner": "jane",
        "kernel": "6.1",
        "cpus": [1],
        "versions": {"kamailio": "version: kamailio 5.6.3 (x86_64/linux)", "x": "by jane@lab7"},
        "lscpu": {"Model name": "x", "Serial number": "12"},
        "files": {
            "/proc/version": "Linux version 6.1 (jane@laptop)",
            "/proc/cmdline": "root=/dev/nvme0n1p2",
            "/etc/hostname": "lab7",
            "/proc/sys/net/core/rmem_max": "212992",
        },
    }
    assert publishable_hosts({"sps": facts, "uac": {"kernel": "6.1"}, "front": None}) == {
        "sps": {
            "kernel": "6.1",
            "cpus": [1],
            "versions": {"kamailio": "version: kamailio 5.6.3 (x86_64/linux)"},
            "lscpu": {"Model name": "x"},
            "files": {"/proc/sys/net/core/rmem_max": "212992"},
        },
        "uac": {"kernel": "6.1"},
    }


def test_all_but_four_facts_of_a_recorded_host_are_published() -> None:
    document = read_run(RECORDED)
    before = asdict(document.hosts)["sps"]
    after = publishable_hosts({"sps": before})["sps"]
    for name in ("kernel", "cpu_model", "versions", "lscpu"):
        assert after[name] == before[name]
    assert before.keys() - after.keys() == {"address"}
    assert before["files"].keys() - after["files"].keys() == {"/proc/version", "/proc/cmdline"}
    assert publishable_reason(document.probe.mode_reason) == document.probe.mode_reason
    json.dumps(after)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            f"host {HostSpec('sps', 'lab7', 'jane', '', '', '', 0, (), ())} is unreachable",
            "host sps is unreachable",
        ),
        ("host sps (jane@lab7:22) is unreachable: /home/jane/key", "host sps is unreachable"),
        ("interrupted by a signal", "interrupted by a signal"),
        ("/srv/jane/raw: disk full: 3 MiB free, 9 MiB needed for the record", "disk full"),
        ("host sps (jane@lab7:22): disk full at /home/jane: 3 MiB free", "disk full"),
        ("jane@10.0.0.7: kamailio[12]: bad config in /srv/jane/proxy.cfg", NOT_TOLD),
        ("interrupted by a signal of jane", NOT_TOLD),
        ("lab7 said no", NOT_TOLD),
        ("", ""),
    ],
)
def test_only_listed_words_of_an_error_are_published(text: str, expected: str) -> None:
    assert publishable_error(text) == expected


@pytest.mark.parametrize(
    ("text", "is_told"),
    [
        ("asked for", True),
        ("udp_recvmsg: fentry refused at load: EPERM (kernel lockdown, LSM or missing)", True),
        ("no BTF on jane@lab7", False),
        ("cannot open /home/jane/vmlinux", False),
        ("refused by 10.0.0.7", False),
        ("refused by lab7.example.org", False),
    ],
)
def test_a_reason_with_a_path_or_an_address_is_not_published(text: str, is_told: bool) -> None:
    assert (publishable_reason(text) == text) is is_told
