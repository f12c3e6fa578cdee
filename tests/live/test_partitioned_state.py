"""Test which messages reach the same instance of a partitioned proxy, by the key of sipshard (docs/partitioned.md)."""

import json
import os
import select
import socket
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from helpers import wait_for

PORT = 25071
CALLS = 64
SOCKETS = 3
NAMES = [f"bob{number}" for number in range(24)]
REGISTRAR = """\
#!KAMAILIO
log_stderror=yes
listen=udp:127.0.0.1:{port}
disable_tcp=yes
children={children}
loadmodule "sl.so"
loadmodule "pv.so"
loadmodule "usrloc.so"
loadmodule "registrar.so"
modparam("usrloc", "db_mode", 0)
request_route {{
    if (method == "REGISTER") {{
        save("location");
    }} else if (lookup("location")) {{
        sl_send_reply("200", "Here");
    }} else {{
        sl_send_reply("404", "Not registered here");
    }}
    exit;
}}
"""
OF_USER = (
    "To: <sip:{}@example.org>",
    "t:<sip:{}@example.org>;tag=1",
    "TO:\tsip:{}@a.example:5070;tag=2",
    "t : <SIPS:{}:secret@[2001:db8::1]>",
    'To :  "Eve: \\"<sip:eve@h>\\\\" <sip:{};x=y@h;transport=udp>',
    "to: Bob Smith <sip:{}@h?Subject=eve%40h>",
    "To: <tel:{};phone-context=example.org>",
)
OF_DOMAIN = (
    "To: <sip:bob@{}.example>",
    "t:<sip:eve@{}.EXAMPLE:5070>",
    "TO: sip:bob@{}.Example;tag=1",
    "To: <sip:{}.example>;tag=eve",
    "T : <sips:bob:secret@{}.example;x=y@h>",
    'To: "a@b:" <sip:bob;x=y?z@{}.example?Subject=a>',
)
WITHOUT_KEY = (
    b"",
    b"\r\n\r\n",
    b"A\r\nt",
    b"A\r\nTo",
    b"A\r\nTo:",
    b"A\r\nTo: <>\r\nX: a:b@c\r\n",
    b"A\r\nTo: Bob;tag=1\r\n\r\na:b",
    b'A\r\nTo: "Bob: <sip:bob@h>\r\n',
    b"A\r\nTopic: <sip:bob@h>\r\nFrom: <sip:bob@h>\r\n",
    b"A\r\n" + b"X: y\r\n" * 400 + b"To: <sip:bob@h>\r\n",
    b'A\r\nTo: "' + b"Bob" * 100 + b'" <sip:bob@h>\r\n',
)


def sipshard(
    dispatcher: Path, folder: Path, key: str, sockets: int, owners: Sequence[int]
) -> subprocess.Popen[bytes]:
    """Attach the BPF program to the sockets of some processes, and return the running sipshard."""
    argv = [str(dispatcher / "sipshard"), "--port", str(PORT), "--sockets", str(sockets)]
    argv += ["--key", key, "--report", str(folder / "report"), "--ready", str(folder / "ready")]
    process = subprocess.Popen([*argv, *map(str, owners)])
    wait_for(lambda: (folder / "ready").exists() or process.poll() is not None, 10)
    assert process.poll() is None
    return process


@contextmanager
def registrar(
    dispatcher: Path, folder: Path, instances: int, key: str = "call-id"
) -> Iterator[None]:
    """Run a registrar, as one instance with two workers or as two instances on one port (docs/partitioned.md)."""
    (folder / "proxy.cfg").write_text(REGISTRAR.format(port=PORT, children=3 - instances))
    shared = {"SIPSHARD_PORT": str(PORT), "SIPSHARD_SOCKETS": "1"}
    preload = {"LD_PRELOAD": str(dispatcher / "libsipshard.so"), **shared}
    started: list[subprocess.Popen[bytes]] = []
    try:
        for number in range(instances):
            own = folder / f"instance-{number}"
            own.mkdir()
            argv = ["kamailio", "-DD", "-E", "-f", str(folder / "proxy.cfg"), "-Y", str(own)]
            with (own / "log").open("wb") as log:
                started.append(
                    subprocess.Popen(
                        [*argv, "-m", "16"],
                        env=os.environ | preload,
                        stderr=log,
                        process_group=0,
                    )
                )
        wait_for(lambda: listening() == instances, 10)
        owners = [one.pid for one in started]
        started.append(sipshard(dispatcher, folder, key, instances, owners))
        yield
    finally:
        for one in reversed(started):
            one.terminate()
            one.wait(10)


def listening() -> int:
    done = subprocess.run(
        ["ss", "-Hlun", f"sport = :{PORT}"], capture_output=True, text=True, check=True
    )
    return len(done.stdout.splitlines())


def ask(method: str, call: int) -> int:
    """Send a request about the user with the Call-ID of call number `call`, and return the status of the answer."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.settimeout(3)
        sock.bind(("127.0.0.1", 0))
        here = "{}:{}".format(*sock.getsockname())
        lines = [
            f"{method} sip:alice@127.0.0.1 SIP/2.0",
            f"Via: SIP/2.0/UDP {here};branch=z9hG4bK{method}{call}",
            "Max-Forwards: 9",
            f"From: <sip:alice@127.0.0.1>;tag={call}",
            "To: <sip:alice@127.0.0.1>",
            f"Call-ID: {call:08x}-5eed@127.0.0.1",
            f"CSeq: 1 {method}",
            *([f"Contact: <sip:alice@{here}>"] if method == "REGISTER" else []),
            *("Content-Length: 0", "", ""),
        ]
        sock.sendto("\r\n".join(lines).encode(), ("127.0.0.1", PORT))
        return int(sock.recv(65536).split()[1])


def found_by(calls: range) -> list[bool]:
    """Return, per call, whether the instance that receives the call knows the registered user."""
    answers = [ask("OPTIONS", call) for call in calls]
    assert set(answers) <= {200, 404}
    return [answer == 200 for answer in answers]


def test_one_instance_knows_the_registered_user(dispatcher: Path, tmp_path: Path) -> None:
    with registrar(dispatcher, tmp_path, instances=1):
        assert ask("REGISTER", 0) == 200
        assert all(found_by(range(1, CALLS)))


def test_only_one_of_two_instances_knows_the_registered_user(
    dispatcher: Path, tmp_path: Path
) -> None:
    with registrar(dispatcher, tmp_path, instances=2):
        assert ask("REGISTER", 0) == 200
        # A request with the Call-ID of the registration reaches the same instance.
        assert found_by(range(1)) == [True]
        known = found_by(range(1, CALLS))
        print(f"found by {sum(known)} of {len(known)} calls")
        # The expected number is half of 63 calls, with a standard deviation of 4.
        assert 15 < sum(known) < 48
        # Each call reaches the same instance again.
        assert found_by(range(1, CALLS)) == known


@pytest.mark.parametrize("key", ["user", "domain"])
def test_every_call_finds_the_registered_user_by_a_key_of_the_user(
    dispatcher: Path, tmp_path: Path, key: str
) -> None:
    with registrar(dispatcher, tmp_path, instances=2, key=key):
        assert ask("REGISTER", 0) == 200
        known = found_by(range(1, CALLS))
        print(f"found by {sum(known)} of {len(known)} calls")
        assert all(known)


class Sharded:
    """Sockets of this process that share one port. A BPF program chooses the socket of each datagram."""

    def __init__(self) -> None:
        self.sockets = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(SOCKETS)]
        for one in self.sockets:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            one.bind(("127.0.0.1", PORT))

    def of(self, datagram: bytes) -> int:
        """Send a datagram to the port, and return the number of the socket that receives the datagram."""
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            sender.sendto(datagram, ("127.0.0.1", PORT))
        (ready,), _, _ = select.select(self.sockets, [], [], 3)
        assert ready.recv(65536) == datagram
        return self.sockets.index(ready)

    def of_headers(self, *headers: str) -> int:
        """Send a request with some headers, and return the number of the socket that receives the request."""
        first = ("INVITE sip:eve@h SIP/2.0", "Via: SIP/2.0/UDP h;branch=z9hG4bK-To: <sip:eve@h>")
        return self.of("\r\n".join([*first, *headers, "CSeq: 1 INVITE", "", ""]).encode())


@contextmanager
def sharded(dispatcher: Path, folder: Path, key: str) -> Iterator[Sharded]:
    """Open sockets that share one port, and attach the BPF program to them."""
    opened = Sharded()
    process = sipshard(dispatcher, folder, key, SOCKETS, [os.getpid()])
    try:
        yield opened
    finally:
        process.terminate()
        process.wait(10)
        for one in opened.sockets:
            one.close()


def without_key(folder: Path) -> int:
    count: int = json.loads((folder / "report").read_text())["without_call_id"]
    return count


@pytest.mark.parametrize(
    ("key", "forms"),
    [("call-id", ("Call-ID: {}", "i:{}")), ("user", OF_USER), ("domain", OF_DOMAIN)],
)
def test_every_spelling_of_a_key_reaches_the_same_socket(
    dispatcher: Path, tmp_path: Path, key: str, forms: Sequence[str]
) -> None:
    with sharded(dispatcher, tmp_path, key) as to:
        chosen = [to.of_headers(forms[0].format(name)) for name in NAMES]
        assert set(chosen) == set(range(SOCKETS))
        for number, form in enumerate(forms):
            padding = f"X-Long: {'a' * 300 * number}"
            call_id = [] if key == "call-id" else [f"Call-ID: {number}"]
            assert [
                to.of_headers(padding, form.format(name), *call_id) for name in NAMES
            ] == chosen, form
        # The case of a domain does not matter, but the case of a user or a Call-ID does.
        upper = [to.of_headers(forms[0].format(name.upper())) for name in NAMES]
        assert (upper == chosen) == (key == "domain")
    assert without_key(tmp_path) == 0


def test_a_user_ends_with_the_datagram(dispatcher: Path, tmp_path: Path) -> None:
    with sharded(dispatcher, tmp_path, "user") as to:
        chosen = [to.of_headers(OF_USER[0].format(name)) for name in NAMES]
        for name, socket_of_name in zip(NAMES, chosen, strict=True):
            # The longer datagram leaves more bytes of a user in the buffer of the BPF program.
            to.of(f"A\r\nTo: sip:{name}eve".encode())
            assert to.of(f"A\r\nTo: sip:{name}".encode()) == socket_of_name
        # The BPF program reads at most 256 bytes after the header's name.
        long = {to.of_headers(OF_USER[0].format("a" * 250 + name)) for name in NAMES}
        assert len(long) == 1
    assert without_key(tmp_path) == 0


@pytest.mark.parametrize("key", ["user", "domain"])
def test_messages_without_the_key_reach_the_first_socket(
    dispatcher: Path, tmp_path: Path, key: str
) -> None:
    with sharded(dispatcher, tmp_path, key) as to:
        assert [to.of(datagram) for datagram in WITHOUT_KEY] == [0] * len(WITHOUT_KEY)
    assert without_key(tmp_path) == len(WITHOUT_KEY)
