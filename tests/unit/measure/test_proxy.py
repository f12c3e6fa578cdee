"""Proxies: what is rendered for a run, and what their logs give away."""

import dataclasses
import json
import subprocess
from pathlib import Path, PurePosixPath

import jinja2
import pytest

from sipsched.errors import StableError
from sipsched.measure import proxy, templates
from sipsched.measure.proxy import (
    PROXIES,
    allocation_failures,
    find_proxy,
    instance_folders,
    parse_kamailio_counts,
    parse_opensips_counts,
)
from sipsched.plan.config import Sut, load_config
from sipsched.testbed.inventory import load_testbed
from sipsched.validity.ledger import Tally

CAMPAIGN = load_config()
# Kamailio 5.6.3 with too little shared memory
KAMAILIO_LOG = """\
 5(4242) ERROR: <core> [core/mem/q_malloc.c:297]: qm_find_free(): qm_find_free(0x7f, 4480); Free fragment not found!
 5(4242) ERROR: tm [h_table.c:424]: build_cell(): could not allocate shared memory from shm pool
 5(4242) ERROR: tm [t_lookup.c:1396]: new_t(): out of mem:
"""


@pytest.mark.parametrize("sut", CAMPAIGN.suts.values(), ids=lambda sut: sut.name)
def test_every_sut_has_a_configuration_with_its_workers(sut: Sut) -> None:
    testbed = load_testbed("local")
    text = find_proxy(sut).config_text(sut, testbed, 7, PurePosixPath("/w"))
    workers = 7 if sut.deployment == "shared" else 1
    assert any(f"{word}={workers}\n" in text for word in ("children", "_workers"))
    listeners = {"sockets": 7, "front": 0, "dispatcher": 0}.get(sut.deployment, 1)
    assert text.count("listen=") + text.count("socket=") == listeners
    assert f"{sut.transport}:{testbed.sps.sip_address}:{testbed.sps.sip_port}" in text
    assert f"{testbed.uas.sip_address}:{testbed.uas.sip_port}" in text
    assert ("\trecord_route" in text) == (sut.routing == "stateful")
    assert ("record_route_preset" in text) == sut.fronted
    assert ("t_relay()" in text) == (sut.routing == "stateful")


@pytest.mark.parametrize("sut", CAMPAIGN.suts.values(), ids=lambda sut: sut.name)
def test_command_names_allocator_and_memory(sut: Sut) -> None:
    folder, sps = PurePosixPath("/w"), load_testbed("local").sps
    command = find_proxy(sut).command(sut, folder / "proxy.cfg", folder, 4, sps)
    command = command[command.index(sut.proxy) :]
    instances = 1 if sut.deployment in ("shared", "sockets") else 4
    assert command[command.index("-m") + 1] == str(sut.shared_memory_mib // instances)
    assert sut.memory_manager in command
    assert not [word for word in command if "{" in word]


@pytest.mark.parametrize(
    ("name", "ports"), [("kamailio-tcp-dispatcher", (5061, 5062)), ("kamailio-udp-partitioned", ())]
)
def test_instances_have_a_folder_each_and_behind_a_front_a_port_each(
    tmp_path: Path, name: str, ports: tuple[int, ...]
) -> None:
    sut, folder, sps = CAMPAIGN.sut(name), PurePosixPath(tmp_path), load_testbed("local").sps
    command = find_proxy(sut).command(sut, folder / "proxy.cfg", folder, 2, sps)
    # what would be started says what it is given
    done = subprocess.run([*command[:9], "echo", "x"], capture_output=True, text=True, check=True)
    listens = [f" -l {sut.transport}:{sps.sip_address}:{port}" for port in ports] or ["", ""]
    folders = instance_folders(sut, folder, 2)
    assert sorted(done.stdout.splitlines()) == [
        f"x -Y {one}{listen}" for one, listen in zip(folders, listens, strict=True)
    ]
    assert all(Path(one).is_dir() for one in folders)


def test_unknown_proxy_names_those_there_are() -> None:
    sut = Sut("x", "asterisk", "stateful", "qm", 64, 8, 65536)
    with pytest.raises(StableError, match=f"'asterisk'; there are: {', '.join(PROXIES)}"):
        find_proxy(sut)


def test_a_value_that_a_template_does_not_get_is_an_error() -> None:
    with pytest.raises(jinja2.UndefinedError):
        templates.render(
            templates.HARDWARE.joinpath("scenarios/uac.xml.j2").relative_to(templates.HARDWARE)
        )


def test_allocation_failures_in_the_log() -> None:
    assert len(allocation_failures(KAMAILIO_LOG)) == 2
    assert allocation_failures("Listening on\n udp: 198.18.0.1:5060\n") == []


# Kamailio 5.6.3 after a thousand calls over TCP, in part
KAMCMD = """\
core:fwd_replies = 0
core:fwd_requests = 1000
core:rcv_replies = 3000
core:rcv_replies_18x = 1000
core:rcv_requests = 3000
core:rcv_requests_ack = 1000
sl:received_ACKs = 0
sl:sent_replies = 0
"""
TM_STATS = """\
{
	current: 2000
	waiting: 2000
	total: 2000
	total_local: 0
	rpl_received: 3000
	rpl_generated: 1000
	rpl_sent: 4000
	6xx: 0
	2xx: 2000
	created: 2000
	freed: 0
}
"""


def test_kamailio_counts_what_came_and_what_went() -> None:
    # seven go out for six that come: tm sends the 100
    assert parse_kamailio_counts(KAMCMD + TM_STATS, "x") == Tally(sent=7000, received=6000)
    stateless = KAMCMD.replace("fwd_replies = 0", "fwd_replies = 3000").replace(
        "fwd_requests = 1000", "fwd_requests = 3000"
    )
    assert parse_kamailio_counts(stateless, "x") == Tally(sent=6000, received=6000)


@pytest.mark.parametrize("text", ["", "error: 500 - command not found\n", KAMCMD[:40], TM_STATS])
def test_counts_that_are_not_told_are_one_clear_error(text: str) -> None:
    with pytest.raises(StableError, match=r"^x: kamcmd does not tell core:rcv_requests"):
        parse_kamailio_counts(text, "x")


def test_a_proxy_that_cannot_be_asked_is_not_measured_over_tcp(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    deaf = dataclasses.replace(PROXIES["opensips"], count_messages=None)
    monkeypatch.setattr(proxy, "PROXIES", {**PROXIES, "opensips": deaf})
    with pytest.raises(
        StableError, match=r"SUT opensips-tcp: the adapter for opensips is for UDP; .* kamailio"
    ):
        find_proxy(CAMPAIGN.sut("opensips-tcp"))


# OpenSIPS 3.6.8 after a hundred calls over TCP, in part
OPENSIPS = {
    "core:rcv_requests": 300,
    "core:rcv_replies": 300,
    "core:fwd_requests": 100,
    "core:fwd_replies": 0,
    "tm:relayed_replies": 300,
    "tm:local_replies": 100,
    "tm:UAS_transactions": 200,
    "sl:sent_replies": 0,
}


def answer(counts: dict[str, int]) -> str:
    return json.dumps({"jsonrpc": "2.0", "result": counts, "id": 1})


def test_opensips_counts_what_came_and_what_went() -> None:
    assert parse_opensips_counts(answer(OPENSIPS), "x") == Tally(sent=700, received=600)
    stateless = {name: count for name, count in OPENSIPS.items() if not name.startswith("tm:")}
    stateless |= {"core:fwd_requests": 300, "core:fwd_replies": 300}
    assert parse_opensips_counts(answer(stateless), "x") == Tally(sent=600, received=600)


@pytest.mark.parametrize("text", ["", answer({}), '{"error": {"code": -32601}}', "[1]", "{"])
def test_statistics_that_opensips_does_not_tell_are_one_clear_error(text: str) -> None:
    with pytest.raises(StableError, match=r"^x: opensips does not tell its statistics"):
        parse_opensips_counts(text, "x")


@pytest.mark.parametrize(
    ("transport", "deployment", "why"),
    [
        ("udp", "sockets", "it has one process group"),
        ("udp", "front", "its module dispatcher reads"),
        ("tcp", "listeners", "with reuse_port it binds connections that it opens"),
    ],
)
def test_what_opensips_cannot_do_is_said_with_the_reason(
    transport: str, deployment: str, why: str
) -> None:
    like = CAMPAIGN.sut(f"opensips-{transport}")
    with pytest.raises(
        StableError, match=rf"knows no deployment '{deployment}': {why}.*; there are: shared"
    ):
        find_proxy(dataclasses.replace(like, deployment=deployment))
