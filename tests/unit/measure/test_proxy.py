"""Tests of the adapters for proxy programs: configuration, command line, counts of messages, and logs."""

import dataclasses
import json
import re
import subprocess
from dataclasses import replace
from pathlib import Path, PurePosixPath

import pytest

from sipsched.errors import StableError
from sipsched.measure import proxy
from sipsched.measure.proxy import (
    PROXIES,
    ProxyCounts,
    allocation_failures,
    find_proxy,
    instance_folders,
    lines_by_instance,
    parse_instances,
    parse_kamailio_counts,
    parse_opensips_counts,
)
from sipsched.plan.config import load_config
from sipsched.plan.sut import Sut
from sipsched.testbed.inventory import load_testbed
from sipsched.validity.ledger import Tally

CAMPAIGN = load_config()
# the log of Kamailio 5.6.3 with too little shared memory
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


@pytest.mark.parametrize(
    "name", ["kamailio-udp-front", "kamailio-tcp-dispatcher", "opensips-tcp-dispatcher"]
)
def test_instances_name_a_front_end_on_its_own_host(name: str) -> None:
    sut, testbed = replace(CAMPAIGN.sut(name), front_host="front"), load_testbed("local-front")
    text = find_proxy(sut).config_text(sut, testbed, 7, PurePosixPath("/w"))
    assert testbed.front
    address = f"{testbed.front.sip_address}:{testbed.front.sip_port}"
    assert f"alias={sut.transport}:{address}\n" in text
    assert f'record_route_preset("{address}' in text
    assert testbed.sps.sip_address not in text


@pytest.mark.parametrize(("name", "lines"), [("kamailio-udp", 2), ("opensips-udp", 2)])
def test_a_sut_may_log_each_request_and_each_answer(name: str, lines: int) -> None:
    sut = CAMPAIGN.sut(name)
    texts = [
        find_proxy(one).config_text(one, load_testbed("local"), 2, PurePosixPath("/w"))
        for one in (sut, dataclasses.replace(sut, log_messages=True))
    ]
    assert [text.count("xlog(") for text in texts] == [0, lines]
    # A proxy that logs to stderr writes nothing to /dev/log.
    stderr = r"^(log_stderror|stderror_enabled)=(yes|no)$"
    assert [re.findall(stderr, text, re.MULTILINE)[0][1] for text in texts] == ["yes", "no"]
    folder = PurePosixPath("/w")
    one = dataclasses.replace(sut, log_messages=True)
    command = find_proxy(one).command(
        one, folder / "proxy.cfg", folder, 2, load_testbed("local").sps
    )
    assert "-E" not in command


@pytest.mark.parametrize("sut", CAMPAIGN.suts.values(), ids=lambda sut: sut.name)
def test_the_command_has_the_memory_of_an_instance(sut: Sut) -> None:
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
def test_each_instance_has_a_folder_and_behind_a_front_end_a_port(
    tmp_path: Path, name: str, ports: tuple[int, ...]
) -> None:
    sut, folder, sps = CAMPAIGN.sut(name), PurePosixPath(tmp_path), load_testbed("local").sps
    command = find_proxy(sut).command(sut, folder / "proxy.cfg", folder, 2, sps)
    # `echo` replaces the proxy and prints the proxy's arguments
    done = subprocess.run([*command[:9], "echo", "x"], capture_output=True, text=True, check=True)
    listens = [f" -l {sut.transport}:{sps.sip_address}:{port}" for port in ports] or ["", ""]
    folders = instance_folders(sut, folder, 2)
    assert sorted(done.stdout.splitlines()) == [
        f"x -Y {one}{listen}" for one, listen in zip(folders, listens, strict=True)
    ]
    assert all(Path(one).is_dir() for one in folders)


def test_a_sut_can_name_the_file_of_its_program() -> None:
    sut = replace(CAMPAIGN.sut("kamailio-udp"), program="/opt/kamailio/sbin/kamailio")
    folder, sps = PurePosixPath("/w"), load_testbed("local").sps
    command = find_proxy(sut).command(sut, folder / "proxy.cfg", folder, 4, sps)
    assert command[0] == "/opt/kamailio/sbin/kamailio"


@pytest.mark.parametrize("name", ["opensips-udp", "opensips-tcp"])
@pytest.mark.parametrize(
    ("program", "prefix"), [("/opt/opensips/sbin/opensips", "/opt/opensips"), ("/opensips", "")]
)
def test_opensips_searches_its_modules_beside_its_program(
    name: str, program: str, prefix: str
) -> None:
    def folders(program: str | None) -> list[str]:
        sut = replace(CAMPAIGN.sut(name), program=program)
        text = find_proxy(sut).config_text(sut, load_testbed("local"), 2, PurePosixPath("/w"))
        assert text.index('mpath="') < text.index("loadmodule")
        return re.findall(r'^mpath="(.*)"$', text, re.MULTILINE)

    # Modules of another OpenSIPS end the program, so no other folder is searched.
    assert all(folder.startswith(f"{prefix}/lib") for folder in folders(program))
    last = [f"{prefix}/{lib}/opensips/modules/" for lib in ("lib", "lib64")]
    assert folders(program)[-2:] == last
    assert folders(None)[-1] == "/usr/local/lib64/opensips/modules/"
    assert len(folders(None)) == 4


def test_allocation_failures_in_the_log() -> None:
    assert len(allocation_failures(KAMAILIO_LOG)) == 2
    assert allocation_failures("Listening on\n udp: 198.18.0.1:5060\n") == []


# the output of `pgrep --list-full` in a run that compares instances, with shorter command lines
PROCESSES = """\
4231 sh -c for command in "$@"; do kamailio -f /w/sps/instance-0/proxy.cfg kamailio -f /w/sps/instance-1/proxy.cfg
4240 kamailio -DD -E -f /w/sps/instance-0/proxy.cfg -m 2048 -Y /w/sps/instance-0
4241 kamailio -DD -E -f /w/sps/instance-1/proxy.cfg -m 2048 -Y /w/sps/instance-1
4242 kamailio -DD -E -f /w/sps/instance-1/proxy.cfg -m 2048 -Y /w/sps/instance-1
4250 opensips -F -f /w/sps/instance-12/proxy.cfg -m 2048 -w /w/sps/instance-12
4260 sh -c folder=$1 option=$2 count=$3 sh /w/sps/instance-2 -Y 2 kamailio -f /w/sps/instance-2/proxy.cfg
4261 kamailio -DD -E -f /w/sps/instance-2/proxy.cfg -m 1024 -Y /w/sps/instance-2/instance-1
4262 kamailio -DD -E -f /w/sps/instance-2/proxy.cfg -m 1024 -Y /w/sps/instance-2/instance-2
"""


def test_a_process_belongs_to_the_instance_in_its_command_line() -> None:
    own = {4240: 0, 4241: 1, 4242: 1, 4250: 12}
    # Each worker of a partitioned instance has its own folder, and a shell starts all of these workers.
    assert parse_instances(PROCESSES) == {**own, 4260: 2, 4261: 2, 4262: 2}


def test_failed_allocations_are_counted_by_instance() -> None:
    instances = parse_instances(PROCESSES)
    opensips = "Nov 26 12:00:00 [4250] ERROR:core:fm_malloc: not enough free shm memory"
    failures = [*allocation_failures(KAMAILIO_LOG), opensips]
    assert lines_by_instance(failures, instances) == (
        "2 in instance 1 (proxy-1.cfg), 1 in instance 12 (proxy-12.cfg)"
    )
    first = [" 1(4240) ERROR: tm [h_table.c:424]: build_cell(): could not allocate shared memory"]
    assert lines_by_instance(1000 * first, instances) == "1\u202f000 in instance 0 (proxy.cfg)"
    # a run with one instance, and a line without a process id
    assert lines_by_instance(failures, {}) == ""
    assert lines_by_instance(["could not allocate"], instances) == ""


# part of the output of Kamailio 5.6.3 after a thousand calls over TCP
KAMCMD = """\
core:fwd_replies = 0
core:fwd_requests = 1000
core:rcv_replies = 3000
core:rcv_replies_18x = 1000
core:rcv_requests = 3000
core:rcv_requests_ack = 1000
sl:received_ACKs = 0
sl:sent_replies = 0
tcp:established = 18
tcp:passive_open = 16
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


def test_the_counts_of_kamailio_are_added_up() -> None:
    # the proxy sends seven messages per six received messages, because Kamailio's module tm adds the 100
    expected = ProxyCounts(Tally(sent=7000, received=6000), accepted=16)
    assert parse_kamailio_counts(KAMCMD + TM_STATS, "x") == expected
    stateless = KAMCMD.replace("fwd_replies = 0", "fwd_replies = 3000").replace(
        "fwd_requests = 1000", "fwd_requests = 3000"
    )
    expected = ProxyCounts(Tally(sent=6000, received=6000), accepted=16)
    assert parse_kamailio_counts(stateless, "x") == expected
    assert parse_kamailio_counts(KAMCMD.replace("passive", ""), "x").accepted is None


def test_counts_of_connections_are_unknown_if_one_is_unknown() -> None:
    few, many = ProxyCounts(Tally(1, 2), 8), ProxyCounts(Tally(10, 20), 24)
    assert many - few == ProxyCounts(Tally(9, 18), 16)
    assert many + few == ProxyCounts(Tally(11, 22), 32)
    unknown = ProxyCounts(Tally(1, 1))
    assert many + unknown == ProxyCounts(Tally(11, 21))
    assert unknown - unknown == ProxyCounts(Tally(0, 0))


@pytest.mark.parametrize("text", ["", "error: 500 - command not found\n", KAMCMD[:40], TM_STATS])
def test_missing_counts_of_kamailio_are_an_error(text: str) -> None:
    with pytest.raises(StableError, match=r"^x: kamcmd did not report core:rcv_requests"):
        parse_kamailio_counts(text, "x")


# part of the output of OpenSIPS 3.6.8 after a hundred calls over TCP
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


def test_the_counts_of_opensips_are_added_up() -> None:
    assert parse_opensips_counts(answer(OPENSIPS), "x") == Tally(sent=700, received=600)
    stateless = {name: count for name, count in OPENSIPS.items() if not name.startswith("tm:")}
    stateless |= {"core:fwd_requests": 300, "core:fwd_replies": 300}
    assert parse_opensips_counts(answer(stateless), "x") == Tally(sent=600, received=600)


@pytest.mark.parametrize("text", ["", answer({}), '{"error": {"code": -32601}}', "[1]", "{"])
def test_missing_counts_of_opensips_are_an_error(text: str) -> None:
    with pytest.raises(StableError, match=r"^x: opensips did not report its statistics"):
        parse_opensips_counts(text, "x")


def test_an_unsupported_proxy_transport_or_deployment_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(StableError, match=f"'asterisk'.*: {', '.join(PROXIES)}"):
        find_proxy(Sut("x", "asterisk", "stateful", "qm", 64, 8, 65536))
    for name, deployment in (("udp", "sockets"), ("udp", "front"), ("tcp", "listeners")):
        sut = dataclasses.replace(CAMPAIGN.sut(f"opensips-{name}"), deployment=deployment)
        reason = re.escape(PROXIES["opensips"].cannot[deployment])
        with pytest.raises(StableError, match=f"'{deployment}': {reason}"):
            find_proxy(sut)
    # without counts of messages, the adapter cannot measure over TCP
    no_counts = dataclasses.replace(PROXIES["opensips"], count=None)
    monkeypatch.setattr(proxy, "PROXIES", {**PROXIES, "opensips": no_counts})
    with pytest.raises(StableError, match=r"opensips-tcp: .* UDP .* kamailio"):
        find_proxy(CAMPAIGN.sut("opensips-tcp"))
