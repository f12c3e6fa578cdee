"""What a reader elsewhere gets of a record names nobody and no machine."""

import pytest

from sipsched.records.publishable import publishable_hosts, publishable_text
from sipsched.testbed.inventory import HostSpec


def test_of_a_host_its_address_and_where_it_was_built_are_left_out() -> None:
    files = {
        "/proc/version": "Linux version 6.1 (jane@laptop)",
        "/proc/cmdline": "root=/dev/nvme0n1p2",
        "/proc/sys/net/core/rmem_max": "212992",
    }
    facts = {"address": "sps.lab.example.org", "kernel": "6.1", "cpus": [1], "files": files}
    assert publishable_hosts({"sps": facts, "uac": {"kernel": "6.1"}}) == {
        "sps": {"kernel": "6.1", "cpus": [1], "files": {"/proc/sys/net/core/rmem_max": "212992"}},
        "uac": {"kernel": "6.1"},
    }


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            f"host {HostSpec('sps', 'lab7', 'jane', '', '', '', 0, (), ())} is unreachable",
            "host sps is unreachable",
        ),
        (
            "/home/jane/k.pem: refused, '/root': /root/.ssh",
            "~/k.pem: refused, '~': ~/.ssh",
        ),
        (
            "one call in a hundred (1 %) started more than 2 µs late",
            "one call in a hundred (1 %) started more than 2 µs late",
        ),
        ("/rooted and /home are folders", "/rooted and /home are folders"),
    ],
)
def test_of_a_message_logins_and_home_folders_are_left_out(text: str, expected: str) -> None:
    assert publishable_text(text) == expected
