"""Test that instances on one port do not share registrations (docs/partitioned.md)."""

import os
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from helpers import wait_for

PORT = 25071
CALLS = 64
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


@contextmanager
def registrar(dispatcher: Path, folder: Path, instances: int) -> Iterator[None]:
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
        argv = [str(dispatcher / "sipshard"), "--port", str(PORT), "--sockets", str(instances)]
        argv += ["--report", str(folder / "report"), "--ready", str(folder / "ready")]
        started.append(subprocess.Popen([*argv, *(str(one.pid) for one in started)]))
        wait_for(lambda: (folder / "ready").exists() or started[-1].poll() is not None, 10)
        assert started[-1].poll() is None
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
