"""Test that a running proxy is found in the contents of /proc."""

import subprocess

import pytest

from sipsched.errors import StableError
from sipsched.measure.running_proxy import FIND, Socket, choose, parse_processes
from sipsched.testbed.machine import Machine

UDP = "0100007F:13C4 00000000:0000 07 00000000:00000500 00:00000000 00000000 0 0 {inode} 2 0000 7"
UDP6 = "00000000000000000000000001000000:13C4 0:0 07 0:0 00:0 0 0 0 {inode} 2 0000 0"
TCP = "0100007F:13C4 00000000:0000 0A 00000000:00000000 00:00000000 00000000 0 0 {inode} 1 0000 100 0 0 10 0"
CONTAINER = "cgroup 0::/system.slice/docker-" + "ab12" * 16 + ".scope"


def text(netns: int = 7, first: int = 100, name: str = "kamailio", more: str = "") -> str:
    return f"""\
process {first} {netns} {name}
{more}
socket 1
socket 2
table udp 1: {UDP.format(inode=1)}
table udp6 2: {UDP6.format(inode=2)}
table tcp 3: {TCP.format(inode=3)}
table tcp 4: {TCP.format(inode=4).replace("13C4", "13C5").replace(" 0A ", " 01 ")}
process {first + 1} {netns} {name}
socket 3
socket 4
socket 99
"""


def test_processes_of_one_name_and_namespace_are_one_proxy_with_its_own_sockets() -> None:
    (proxy,) = parse_processes(text(more=CONTAINER))
    assert proxy.pids == (100, 101)
    assert proxy.netns == 7
    assert proxy.container == "ab12ab12ab12"
    assert proxy.sockets == (
        Socket("tcp", 5060, 4, 3),
        Socket("udp", 5060, 4, 1, queued_bytes=0x500, drops=7),
        Socket("udp", 5060, 6, 2),
    )


def test_established_connections_and_sockets_of_other_processes_do_not_count() -> None:
    other = text().replace("socket 3\n", "")
    (proxy,) = parse_processes(other)
    assert {socket.transport for socket in proxy.sockets} == {"udp"}


def test_target_has_consecutive_udp_ports_and_lists_what_is_not_watched() -> None:
    ports = {1: "13C4", 2: "13C5", 5: "13D0", 6: "13C3"}
    tables = "\n".join(
        f"table udp {i}: {UDP.format(inode=i).replace('13C4', port)}" for i, port in ports.items()
    )
    sockets = "\n".join(f"socket {i}" for i in ports)
    target = choose(parse_processes(f"process 5 1 opensips\n{sockets}\n{tables}\n"), "here")
    assert target.udp_ports == (5060, 5061)
    assert target.tcp_port is None
    assert target.transports == "udp"
    assert [socket.port for socket in target.unwatched] == [5059, 5072]


def test_tcp_port_is_watched_over_both_versions_of_ip() -> None:
    rows = f"table tcp 1: {TCP.format(inode=1)}\ntable tcp6 2: {TCP.format(inode=2)}"
    target = choose(parse_processes(f"process 5 1 kamailio\nsocket 1\nsocket 2\n{rows}\n"), "here")
    assert target.tcp_port == 5060
    assert target.udp_ports == ()
    assert target.unwatched == ()


def test_no_proxy_is_an_error_that_names_the_options() -> None:
    with pytest.raises(StableError, match=r"here: no process named kamailio or opensips .*--pid"):
        choose([], "here")
    with pytest.raises(StableError, match="no process has a listening socket on port 5080"):
        choose(parse_processes(text()), "here", port=5080)


def test_several_proxies_are_an_error_that_lists_them() -> None:
    both = parse_processes(text() + text(netns=8, first=200, name="opensips"))
    with pytest.raises(StableError, match=r"kamailio \(process 100.*opensips \(process 200.*--pid"):
        choose(both, "here")


def test_unreadable_sockets_are_an_error_that_names_the_privilege() -> None:
    with pytest.raises(StableError, match="CAP_SYS_PTRACE"):
        choose(parse_processes("process 5 0 kamailio\n"), "here")


def test_script_finds_a_process_by_its_name() -> None:
    with subprocess.Popen(["sleep", "30"]) as process:
        try:
            processes = parse_processes(Machine().shell(FIND, "sleep"))
        finally:
            process.kill()
    assert any(process.pid in proxy.pids for proxy in processes)
    assert {proxy.program for proxy in processes} == {"sleep"}


def test_host_that_looks_like_an_option_is_refused() -> None:
    with pytest.raises(StableError, match="--host"):
        Machine("-oProxyCommand=touch /tmp/x")


def test_failed_script_is_one_error_with_its_reason() -> None:
    with pytest.raises(StableError, match="this machine: no such thing"):
        Machine().shell("echo no such thing >&2; exit 3")
