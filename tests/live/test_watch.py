"""Test `fab watch` on a real proxy with SIPp's calls, requests that the proxy answers, and malformed datagrams."""

import contextlib
import ctypes
import json
import os
import pty
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import IO

import numpy as np
import pytest
from agents import free_port
from helpers import PATIENCE_S, build_native, pids, wait_for

from sipsched import watch
from sipsched.analysis.headroom import Lack
from sipsched.analysis.watched import (
    FEWEST_MESSAGES,
    FEWEST_SECONDS,
    Cause,
    findings,
    percentiles_us,
    total,
)
from sipsched.errors import SipschedError
from sipsched.files import read_zstd
from sipsched.measure import watching as measuring
from sipsched.measure.watching import CAPABILITIES
from sipsched.pages.headroom import LACKS
from sipsched.pages.watched import advice_lines
from sipsched.records import trace
from sipsched.records.messages import FLAGS, MESSAGE_TYPES, open_messages
from sipsched.records.watch import ANSWERED, NAMES, OVER_TCP, Second, read_seconds, read_watch

CONFIG = Path(__file__).parent.parent / "data" / "watch" / "kamailio.cfg"
ADDRESS, CLIENT, IPV6 = "127.66.77.88", "127.66.77.99", "fd66:77:88::99"
USER, REFUSED, CALLED = "alicewhocalls", "secret", "bobiscalled"
REMOTE = "198.51.100.2"
"""The address of the proxy's namespace in tests with a network between the watch and the proxy."""
CLONE_NEWNET = 0x40000000
MALFORMED = (
    b"\x00",
    b"\xff" * 1400,
    b"INVITE",
    b"SIP/2.0 99999999999 X\r\n\r\n",
    b"INVITE sip:x SIP/2.0\r\nCall-ID:\r\nCSeq: x\r\n\r\n",
    b"SIP/2.0\r\n" + b"Via: \r\n" * 150,
    b"\r\n\r\n\r\n\r\n",
    b"REGISTER sip:x SIP/2.0\r\n" + b"A" * 1300,
)


@dataclass
class Place:
    """A network namespace with a running proxy.

    Attributes
    ----------
    holder
        The process id of the program that keeps the namespace open.
    config
        The proxy's configuration file, with port 5060.
    before
        A command, such as `taskset --cpu-list 0`, that starts the proxy.
    """

    folder: Path
    holder: int
    port: int = 5060
    config: str = field(default_factory=CONFIG.read_text)
    before: Sequence[object] = ()
    started: list["subprocess.Popen[bytes]"] = field(default_factory=list)

    def start(self, *argv: object) -> "subprocess.Popen[bytes]":
        """Start a program in the namespace."""
        with (self.folder / "log").open("ab") as log:
            inside = ["nsenter", f"--net=/proc/{self.holder}/ns/net", *map(str, argv)]
            process = subprocess.Popen(
                inside, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.folder
            )
        self.started.append(process)
        return process

    def proxy(self) -> "subprocess.Popen[bytes]":
        """Start the proxy, and wait until it listens."""
        config = self.folder / "kamailio.cfg"
        config.write_text(self.config.replace(":5060", f":{self.port}"))
        own = ["-f", config, "-Y", self.folder, "-P", self.folder / "pid", "-m", "32", "-M", "4"]
        process = self.start(*self.before, "kamailio", "-DD", "-E", *own)
        wait_for(lambda: self.ask(request("OPTIONS", "ready"), 0.2) is not None, PATIENCE_S)
        return process

    def kill_proxy(self) -> None:
        """Kill all processes of the proxy, which is the first started program."""
        self.started[0].send_signal(signal.SIGKILL)
        self.started.pop(0).wait()
        for left in pids(f"^kamailio .*{self.folder}"):
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(os.pidfd_open(left), signal.SIGKILL)

    @contextlib.contextmanager
    def socket(
        self, family: int = socket.AF_INET, kind: int = socket.SOCK_DGRAM, port: int = 0
    ) -> Iterator[socket.socket]:
        """Yield a socket in the namespace, with any free port if `port` is 0.

        A separate thread enters the namespace and creates the socket.
        """
        made: list[socket.socket] = []

        def enter() -> None:
            with Path(f"/proc/{self.holder}/ns/net").open("rb") as namespace:
                assert ctypes.CDLL(None).setns(namespace.fileno(), CLONE_NEWNET) == 0
            made.append(socket.socket(family, kind))

        thread = threading.Thread(target=enter)
        thread.start()
        thread.join()
        with made[0] as sock:
            sock.bind((IPV6 if family == socket.AF_INET6 else CLIENT, port))
            yield sock

    def ask(self, message: bytes, timeout_s: float = 2.0) -> bytes | None:
        """Send a request to the proxy, and return its answer."""
        with self.socket() as sock:
            sock.settimeout(timeout_s)
            sock.sendto(message, (ADDRESS, self.port))
            with contextlib.suppress(TimeoutError):
                return sock.recv(4096)
        return None


def request(method: str, call: str, user: str = USER) -> bytes:
    """Return a request from a user who must not appear in any record."""
    return (
        f"{method} sip:{user}@example.org SIP/2.0\r\n"
        f"Via: SIP/2.0/UDP {CLIENT}:5091;branch=z9hG4bK{call};rport\r\n"
        f"From: <sip:{user}@example.org>;tag={call}\r\nTo: <sip:{user}@example.org>\r\n"
        f"Contact: <sip:{user}@{CLIENT}:5091>\r\nCall-ID: {call}@{CLIENT}\r\nCSeq: 1 {method}\r\n"
        "Max-Forwards: 70\r\nContent-Length: 0\r\n\r\n"
    ).encode()


@pytest.fixture(scope="module")
def probe(tmp_path_factory: pytest.TempPathFactory) -> PurePosixPath:
    """Build the probe from the sources in hardware/, and return its path."""
    folder = build_native("probe", tmp_path_factory.mktemp("native"), "sipprobe")
    return PurePosixPath(folder / "sipprobe")


@pytest.fixture(scope="module")
def impatient_probe(tmp_path_factory: pytest.TempPathFactory) -> PurePosixPath:
    """Build a probe that ends after 5 s without input, instead of two minutes, and return its path."""
    native = tmp_path_factory.mktemp("native")
    folder = build_native("probe", native, "sipprobe", cflags="-O2 -g -DSILENCE_S=5")
    return PurePosixPath(folder / "sipprobe")


@contextlib.contextmanager
def placed(folder: Path, port: int = 5060, **proxy: object) -> Iterator[Place]:
    """Start a proxy in its own network namespace. `proxy` sets the attributes `config` and `before` of `Place`."""
    script = 'ip link set lo up; ip address add "$0" dev lo nodad; echo up; exec cat'
    held = ["unshare", "--net", "sh", "-c", script, f"{IPV6}/128"]
    # The namespace exists until cat reads the end of its input. The input is also closed if the test is killed.
    with subprocess.Popen(held, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"up\n"
        found = Place(folder, holder.pid, port, **proxy)  # type: ignore[arg-type]
        try:
            found.proxy()
            yield found
        finally:
            for process in reversed(found.started):
                process.terminate()
                process.wait(10)
            holder.kill()


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    """Start a proxy in its own network namespace."""
    with placed(tmp_path) as found:
        yield found


def loaded() -> set[int]:
    """Return the identifiers of all loaded BPF programs, including programs of other probes on this machine."""
    argv = ["bpftool", "--json", "prog", "show"]
    shown = subprocess.run(argv, check=True, capture_output=True, text=True).stdout
    return {each["id"] for each in json.loads(shown)}


def held(probe: PurePosixPath) -> set[int]:
    """Return the identifiers of the BPF programs that running probes with the path `probe` have loaded."""
    found = set()
    for pid in pids(f"^{probe} (watch|histograms)"):
        for info in Path(f"/proc/{pid}/fdinfo").iterdir():
            with contextlib.suppress(OSError):
                found |= set(map(int, re.findall(r"prog_id:\s*(\d+)", info.read_text())))
    return found


@dataclass
class Watched:
    """A `fab watch` that runs in a thread."""

    output: Path
    said: list[str]
    stop: watch.Stop
    failed: list[BaseException]

    def seconds(self) -> int:
        assert not self.failed, self.failed
        path = self.output / "seconds.jsonl"
        return len(path.read_text().splitlines()) if path.exists() else 0


@contextlib.contextmanager
def watching(
    place: Place, probe: PurePosixPath, pid: int | None, **options: object
) -> Iterator[Watched]:
    """Watch a proxy while the `with` block runs."""
    running = Watched(place.folder / "out", [], watch.Stop(), [])
    chosen = watch.WatchOptions(pid=pid, output=running.output, probe=probe, **options)  # type: ignore[arg-type]

    def run() -> None:
        try:
            watch.watch(chosen, running.said.append, running.stop)
        except BaseException as error:
            running.failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        wait_for(lambda: running.seconds() > 0 or not thread.is_alive(), PATIENCE_S)
        assert not running.failed, running.failed
        yield running
    finally:
        running.stop.asked.set()
        thread.join(30)
    assert not thread.is_alive()


def content(folder: Path) -> bytes:
    """Return the uncompressed bytes of all files that a watch wrote."""
    ds = open_messages(folder / "messages.nc")
    parts = [read_zstd(folder / "trace.bin.zst", "trace", ""), str(ds.attrs).encode()]
    for variable in ds.variables.values():
        parts += [variable.to_numpy().tobytes(), str(variable.attrs).encode()]
    names = ("watch.json", "seconds.jsonl", "page.html", "messages.nc")
    return b"\n".join((*parts, *((folder / name).read_bytes() for name in names)))


def identifiers(messages: str) -> set[str]:
    """Return the values in SIP messages that identify a user, a call or a host."""
    headers = re.findall(r"^(?:Via|From|To|Contact|Call-ID): *(.+?)\r?$", messages, re.MULTILINE)
    users = re.findall(r"sip:([^@\s>;]+)@", messages)
    return {
        *headers,
        *re.findall(r"(?:tag|branch)=([^;>\s]+)", messages),
        # "sipp" and "service" are words of a page, too
        *(
            f"{before}{user}{after}"
            for user in users
            for before, after in (("sip:", ""), ("", "@"))
        ),
        *(USER, CALLED, ADDRESS, CLIENT, IPV6),
    }


def assert_private(messages: str, output: bytes) -> None:
    """Assert that the output of a watch contains no identifier and no address of SIP messages."""
    values = {value.encode() for value in identifiers(messages)}
    values |= {socket.inet_aton(address) for address in (ADDRESS, CLIENT)}
    values.add(socket.inet_pton(socket.AF_INET6, IPV6))
    assert [value for value in values if value in output] == []


def fnv1a(text: bytes) -> int:
    """Return the FNV-1a hash, which traces of runs contain. A watch must not use this hash, because it has no key."""
    value = 0xCBF29CE484222325
    for byte in text:
        value = (value ^ byte) * 0x100000001B3 % 2**64
    return value


# The next test has 100 lines, because all kinds of traffic pass one watch, and all checks read the watch's record.
@pytest.mark.skipif(shutil.which("sipp") is None, reason="sipp is not installed")
def test_real_traffic_is_joined_and_its_contents_are_nowhere(
    place: Place, probe: PurePosixPath
) -> None:
    calls = [f"{kind}{i}" for kind in ("register", "options", "refused") for i in range(20)]
    methods = {"register": "REGISTER", "options": "OPTIONS", "refused": "INVITE"}
    port = free_port()
    sent = []
    with (
        place.socket(kind=socket.SOCK_STREAM) as stream,
        place.socket(socket.AF_INET6, socket.SOCK_STREAM) as stream_ipv6,
        watching(place, probe, place.started[0].pid, metrics=port) as running,
    ):
        stream.connect((ADDRESS, 5060))
        stream_ipv6.connect((IPV6, 5060))
        attached = held(probe)
        assert attached <= loaded()
        assert len(attached) > 10
        for address in (ADDRESS, f"[{IPV6}]"):
            logs = ("-trace_msg", "-message_file", place.folder / f"uas{address}.messages")
            place.start("sipp", "-sn", "uas", "-i", address, "-p", 5070, "-nostdin", *logs)
        time.sleep(0.5)
        for address, client in ((ADDRESS, CLIENT), (f"[{IPV6}]", f"[{IPV6}]")):
            options = ["-i", client, "-p", "5080", "-r", "40", "-m", "80", "-nostdin", "-s", CALLED]
            logs = ("-trace_msg", "-message_file", place.folder / f"uac{address}.messages")
            place.start("sipp", "-sn", "uac", f"{address}:5060", *options, *logs)
        for call in calls:
            kind = call.rstrip("0123456789")
            message = request(methods[kind], call, REFUSED if kind == "refused" else USER)
            answer = place.ask(message)
            assert answer is not None
            sent += [message, answer]
            if kind == "register":
                place.ask(message)
        for family, address in ((socket.AF_INET, ADDRESS), (socket.AF_INET6, IPV6)):
            with place.socket(family) as sock:
                for datagram in MALFORMED * 5:
                    sock.sendto(datagram, (address, 5060))
        uacs = place.started[-2:]
        wait_for(lambda: all(process.poll() is not None for process in uacs), PATIENCE_S)
        # wait for two checks of the connections, after which the hooks for TCP are attached
        wait_for(lambda: running.seconds() >= 4, PATIENCE_S)
        for i in range(20):
            for connection, call in ((stream, f"stream-4-{i}"), (stream_ipv6, f"stream-6-{i}")):
                message = request("MESSAGE", call, REFUSED).replace(b"/UDP", b"/TCP")
                connection.sendall(message)
                sent += [message, connection.recv(4096)]
                assert sent[-1].startswith(b"SIP/2.0 407")
        sent.append(request("OPTIONS", "alive"))
        assert place.ask(sent[-1]) is not None
        seen = running.seconds()
        wait_for(lambda: running.seconds() >= seen + 2, PATIENCE_S)
        scraped = scrape(port)

    assert not attached & loaded()
    assert not pids(f"^{probe} watch")
    assert any(re.search(r"[1-9]\d* calls/s, .*INVITE", line) for line in running.said)
    ds = open_messages(running.output / "messages.nc")
    names, flags = ds["name"].to_numpy(), ds["flags"].to_numpy()
    count = {name: int((names == code).sum()) for name, code in NAMES.items()}
    assert count["BYE"] == count["200-BYE"] == count["ACK"] == 160
    assert count["INVITE"] >= 160 + 20
    # one kind of malformed datagram has the start line of a REGISTER
    assert count["REGISTER"] == 2 * 20 + 10
    assert count["OPTIONS"] >= 20
    # 20 messages over TCP with IPv4, and 20 messages over TCP with IPv6
    assert count["MESSAGE"] == 20 + 20
    assert count["not SIP"] >= 10 * 4
    answered = flags & ANSWERED != 0
    assert answered[names == NAMES["OPTIONS"]].sum() >= 20
    assert answered[names == NAMES["REGISTER"]].sum() == 2 * 20
    assert answered[names == NAMES["INVITE"]].sum() >= 20
    assert not answered[names == NAMES["BYE"]].any()
    again = ds["message_type"].to_numpy() == MESSAGE_TYPES["retransmission"]
    assert again[names == NAMES["REGISTER"]].sum() == 20
    assert not again[(names == NAMES["MESSAGE"]) | (names == NAMES["OPTIONS"])].any()
    assert (flags & 1 << 6 == 0).mean() > 0.99, "the arrival of datagrams is not found"
    assert np.all(ds["t_sip"].to_numpy()[names == NAMES["BYE"]] < 1_000_000_000)
    np.testing.assert_array_equal(flags & OVER_TCP != 0, names == NAMES["MESSAGE"])
    assert ds.attrs["transport"] == "udp+tcp"
    assert LACKS[Lack.STREAM] in (running.output / "page.html").read_text()
    assert not any(line.startswith("headroom:") for line in running.said)
    document = read_watch(running.output)
    assert (document.receive_buffer_bytes or 0) == ds.attrs["receive_buffer_bytes"] > 1000
    assert document.lost == document.not_written == 0
    assert sum(second.received for second in read_seconds(running.output)) <= ds.sizes["message"]

    logs = [path.read_text() for path in place.folder.glob("*.messages")]
    assert len(logs) == 4
    messages = "".join((*logs, *(message.decode() for message in sent)))
    assert identifiers(messages) > {"sip:sipp", f"{CALLED}@", "register19", "z9hG4bKstream-6-19"}
    assert "sipsched_messages_total" in scraped
    shown = "\n".join((*running.said, scraped)).encode()
    assert_private(messages, content(running.output) + shown)
    call_ids = set(re.findall(r"^Call-ID: *(\S+)", messages, re.MULTILINE))
    # two clients with 80 calls, 40 messages over TCP, and the last OPTIONS
    assert len(call_ids) == 160 + len(calls) + 40 + 1
    records = trace.read_trace(running.output / "trace.bin.zst").records
    plain = [fnv1a(call.encode()) for call in call_ids]
    assert not np.isin(records["call_id_hash"], np.array(plain, np.uint64)).any()
    assert np.unique(records["call_id_hash"]).size >= len(call_ids)


@pytest.mark.skipif(shutil.which("sipp") is None, reason="sipp is not installed")
def test_histograms_count_every_message_and_no_trace_exists(
    place: Place, probe: PurePosixPath
) -> None:
    log, port = place.folder / "uac.messages", free_port()
    sent = [request("REGISTER", f"register{i}") for i in range(20)]
    with watching(place, probe, place.started[0].pid, histograms=True, metrics=port) as running:
        attached = held(probe)
        assert len(attached & loaded()) == 3
        place.start("sipp", "-sn", "uas", "-i", ADDRESS, "-p", 5070, "-nostdin")
        time.sleep(0.5)
        options = ["-p", "5080", "-r", "40", "-m", "80", "-nostdin", "-s", CALLED]
        logs = ["-trace_msg", "-message_file", log]
        uac = place.start("sipp", "-sn", "uac", "-i", CLIENT, f"{ADDRESS}:5060", *options, *logs)
        for message in sent:
            assert place.ask(message) is not None
        with place.socket() as sock:
            for datagram in MALFORMED:
                sock.sendto(datagram, (ADDRESS, 5060))
        wait_for(lambda: uac.poll() is not None, PATIENCE_S)
        seen = running.seconds()
        wait_for(lambda: running.seconds() >= seen + 2, PATIENCE_S)
        shown = "\n".join((*running.said, scrape(port)))
    assert not attached & loaded()
    sums = total(read_seconds(running.output))
    assert sums.messages["BYE"] == sums.messages["ACK"] == 80
    assert sums.messages["INVITE"] >= 80
    assert sums.messages["2xx"] == 160
    # one kind of malformed datagram has the start line of a REGISTER
    assert sums.messages["REGISTER"] == 20 + 1
    assert sums.messages["not SIP"] >= 4
    # histograms contain only datagrams of about a quarter of the time, in which the probe records
    assert 0.1 * sums.received < sums.waiting.sum() < 0.4 * sums.received
    assert sums.unmatched < 0.01 * sums.received
    assert 0.5 * sums.waiting.sum() < sums.service.sum() <= sums.waiting.sum()
    assert 1 < percentiles_us(sums.waiting)["p50"] < 1e6
    assert 1 < percentiles_us(sums.service)["p50"] < 1e6
    assert (running.output / "page.html").exists()
    assert not (running.output / "trace.bin.zst").exists()
    assert not (running.output / "messages.nc").exists()
    messages = "".join((log.read_text(), *(message.decode() for message in sent)))
    assert len(set(re.findall(r"^Call-ID: *(\S+)", messages, re.MULTILINE))) == 80 + 20
    written = b"".join(path.read_bytes() for path in running.output.iterdir())
    assert_private(messages, written + shown.encode())


SAMPLE = re.compile(r'^sipsched_(\w+)(?:\{\w+="(.*)"\})? (\S+)$', re.MULTILINE)
"""A line of the metrics: a name, the value of the label, and a number."""


def scrape(port: int) -> str:
    """Return the metrics of a watch on this machine."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
        text: str = answer.read().decode()
        return text


def expected_samples(seconds: Sequence[Second]) -> dict[tuple[str, str], float]:
    """Compute the metrics, apart from drops and quantiles, from the seconds of a record."""
    last, latest = seconds[-1], seconds[-watch.METRICS_SECONDS :]
    samples: defaultdict[tuple[str, str], float] = defaultdict(float)
    for second in seconds:
        for name, count in second.messages.items():
            samples["messages_total", name] += count
        for share in second.others:
            samples["other_programs_cpu_seconds_total", share.name] += share.busy * second.length_s
    length_s = sum(second.length_s for second in latest)
    busy_s = sum(second.cpu_busy * second.length_s for second in latest)
    stolen_s = sum(second.cpu_stolen * second.length_s for second in latest)
    plain = {
        "calls_total": sum(second.calls for second in seconds),
        "datagrams_total": sum(second.datagrams for second in seconds),
        "unmatched_messages_total": sum(second.unmatched for second in seconds),
        "recorded_seconds_total": sum(second.length_s for second in seconds if second.recording),
        "cpu_busy_ratio": busy_s / length_s,
        "cpu_stolen_ratio": stolen_s / length_s,
        "tcp_connections": last.connections,
        "recording": last.recording,
        "proxy_processes": last.processes,
    }
    return {**samples, **{(name, ""): float(value) for name, value in plain.items()}}


@pytest.mark.parametrize("histograms", [False, True])
def test_metrics_during_traffic_equal_the_record(
    place: Place, probe: PurePosixPath, *, histograms: bool
) -> None:
    port = free_port()
    with (
        place.socket(kind=socket.SOCK_STREAM) as stream,
        # with a limit of CPU time, the probe does not record all the time
        watching(
            place, probe, place.started[0].pid, histograms=histograms, metrics=port, cpu=0.05
        ) as running,
    ):
        stream.connect((ADDRESS, 5060))
        scraped = []
        for i in range(10):
            for j in range(20):
                assert place.ask(request("OPTIONS", f"scraped{i}x{j}")) is not None
            scraped.append(scrape(port))
            time.sleep(0.5)
    recorded = read_seconds(running.output)
    expected = [expected_samples(recorded[:n]) for n in range(1, len(recorded) + 1)]
    names = {name for name, _ in expected[-1]}
    values = set[tuple[str, str, float]]()
    for text in scraped:
        samples = {
            (name, label): float(value)
            for name, label, value in SAMPLE.findall(text)
            if name in names
        }
        # a scrape does not state how many seconds had been recorded
        assert any(samples == pytest.approx(each) for each in expected)
        values.update((*key, value) for key, value in samples.items())
    assert {value for name, _, value in values if name == "recording"} == {0, 1}
    assert max(value for *key, value in values if key == ["messages_total", "OPTIONS"]) > 20
    assert max(value for name, _, value in values if name.startswith("other_programs")) > 0
    if not histograms:
        assert max(value for name, _, value in values if name == "tcp_connections") > 0


@pytest.mark.parametrize("histograms", [False, True])
def test_every_datagram_of_10_000_per_second_is_counted(
    place: Place, probe: PurePosixPath, *, histograms: bool
) -> None:
    per_s, seconds = 10_000, 3
    with watching(place, probe, place.started[0].pid, histograms=histograms) as running:
        with place.socket() as sock:
            begin = time.monotonic()
            for i in range(per_s * seconds):
                # read no replies, because the proxy's work is the same if a full buffer drops the replies
                sock.sendto(request("OPTIONS", f"many{i}"), (ADDRESS, 5060))
                time.sleep(max(0.0, begin + i / per_s - time.monotonic()) if i % 100 == 0 else 0)
            took = time.monotonic() - begin
        seen = running.seconds()
        wait_for(lambda: running.seconds() >= seen + 3, PATIENCE_S)
    recorded = read_seconds(running.output)
    assert max(second.largest_queue_bytes for second in recorded) > 0
    assert recorded[-1].largest_queue_bytes == 0
    sums = total(recorded)
    dropped = sums.drops["socket buffer full"]
    assert took < 1.5 * seconds, "this machine cannot send 10,000 datagrams per second"
    assert sums.messages["OPTIONS"] + dropped == per_s * seconds
    assert set(sums.drops) <= {"socket buffer full", "CPU backlog full"}
    # the kernel's and the probe's counts agree, and no datagram is counted twice
    assert sums.rest == 0
    assert sums.arrived - sums.drops["CPU backlog full"] == per_s * seconds
    assert dropped < 0.5 * per_s * seconds
    assert read_watch(running.output).lost == 0
    assert histograms or read_watch(running.output).transports == "udp+tcp"
    page = (running.output / "page.html").read_text()
    assert "How much load can be added?" in page
    # the proxy also listens on TCP, but received only datagrams
    if not histograms:
        assert open_messages(running.output / "messages.nc").attrs["transport"] == "udp"
        assert LACKS[Lack.STREAM] not in page


B2BUA = """
import socket
own = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
own.bind(("127.66.77.88", 5062))
while True:
    message = own.recv(4096)
    own.sendto(message.replace(b"Call-ID: ", b"Call-ID: other-leg-"), ("127.66.77.88", 5070))
"""
"""A program that forwards each message in another dialog, as a back-to-back user agent does."""


def test_message_of_a_b2bua_is_joined_to_the_message_with_another_call_id(
    place: Place, probe: PurePosixPath
) -> None:
    b2bua = place.start("taskset", "--cpu-list", "0", sys.executable, "-c", B2BUA)
    wait_for(lambda: "13C6" in Path(f"/proc/{place.holder}/net/udp").read_text(), PATIENCE_S)
    with watching(place, probe, b2bua.pid, port=5062) as running, place.socket() as sock:
        for i in range(20):
            sock.sendto(request("INVITE", f"leg{i}"), (ADDRESS, 5062))
            time.sleep(0.02)
        seen = running.seconds()
        wait_for(lambda: running.seconds() >= seen + 2, PATIENCE_S)
    ds = open_messages(running.output / "messages.nc")
    flags = ds["flags"].to_numpy()
    assert (ds["name"].to_numpy() == NAMES["INVITE"]).sum() == ds.sizes["message"] == 20
    assert not (flags & ANSWERED).any()
    assert not (flags & FLAGS["nothing_sent"]).any()
    assert not np.isnan(ds["t_sip"].to_numpy().astype(float)).any()
    assert b"other-leg" not in content(running.output)
    # the program may run on only one CPU of the machine
    assert read_watch(running.output).cpus == 1
    assert {second.cpus for second in read_seconds(running.output) if second.workers} == {1}


LOOP = "$var(i) = 0; while ($var(i) < {}) {{ $var(i) = $var(i) + 1; }}"
"""Lines of the proxy's script that need CPU time. One pass of the loop needs about 1 µs."""
MILLISECOND = LOOP.format(1000)
OK = b"SIP/2.0 200"


@dataclass(frozen=True)
class Plant:
    """A cause of waiting or drops, with the proxy and the load that produce this cause.

    Attributes
    ----------
    script
        Lines that the proxy executes for each message.
    one_cpu
        Whether the proxy may run on only one CPU.
    limited
        Whether the proxy runs in a control group that may use a fifth of a CPU.
    competitor
        The scheduling class of a busy loop on this CPU: `other` (the proxy's class) or `idle`. A second busy loop then
        runs on another CPU. Empty: no busy loop.
    burst, pause_s
        The number of requests that are sent together, and the pause after the answers to these requests.
    over_tcp
        Whether the requests come over one TCP connection. After each burst, one datagram then arrives over UDP.
    """

    cause: Cause | None
    workers: int
    script: str = ""
    one_cpu: bool = False
    limited: bool = False
    competitor: str = ""
    burst: int = 20
    pause_s: float = 0.0
    over_tcp: bool = False

    def __str__(self) -> str:
        if self.cause:
            return self.cause.name
        return f"healthy beside {self.competitor}" if self.competitor else "healthy"

    @property
    def config(self) -> str:
        settings = f'children={self.workers}\nmax_while_loops=1000000\nloadmodule "cfgutils.so"'
        route = "request_route {\n"
        text = CONFIG.read_text().replace("children=4", settings)
        return text.replace(route, f"{route}    {self.script}\n")


PLANTS = (
    Plant(None, workers=2, burst=1, pause_s=0.003),
    Plant(None, workers=1, one_cpu=True, competitor="idle", burst=1, pause_s=0.003),
    Plant(Cause.BURSTS, workers=2, script=LOOP.format(250), burst=600, pause_s=0.1),
    Plant(Cause.TOO_FEW_WORKERS, workers=1, script=MILLISECOND),
    Plant(Cause.NO_CPU_LEFT, workers=1, script=MILLISECOND, one_cpu=True),
    Plant(
        Cause.COMPETITOR,
        workers=1,
        script=MILLISECOND,
        one_cpu=True,
        competitor="other",
        burst=2,
        pause_s=0.003,
    ),
    Plant(Cause.SLEEPING_WORKERS, workers=2, script='usleep("2000");'),
    Plant(
        Cause.TOO_MANY_WORKERS,
        workers=8,
        script=LOOP.format(2500),
        one_cpu=True,
        burst=16,
        pause_s=0.06,
    ),
    Plant(Cause.HOT_CONNECTION, workers=2, script=MILLISECOND, over_tcp=True),
    Plant(Cause.CPU_LIMIT, workers=4, script=LOOP.format(150), limited=True),
)


@contextlib.contextmanager
def limited_group() -> Iterator[Path]:
    """Yield a control group whose processes may together use a fifth of a CPU."""
    root = Path("/sys/fs/cgroup")
    limits = {"cpu.max": "20000 100000"}
    if (root / "cpu" / "cpu.cfs_quota_us").exists():
        root, limits = root / "cpu", {"cpu.cfs_period_us": "100000", "cpu.cfs_quota_us": "20000"}
    elif "cpu" not in (root / "cgroup.subtree_control").read_text().split():
        pytest.skip("control groups have no controller for CPU time")
    group = root / f"watched-{os.getpid()}"
    group.mkdir()
    try:
        for name, limit in limits.items():
            (group / name).write_text(limit)
        yield group
    finally:
        wait_for(lambda: not (group / "cgroup.procs").read_text(), 10)
        group.rmdir()


def offer(place: Place, running: Watched, plant: Plant) -> None:
    """Send requests in bursts until the watch has enough seconds and messages for advice."""
    kind = socket.SOCK_STREAM if plant.over_tcp else socket.SOCK_DGRAM
    with place.socket(kind=kind) as sock, place.socket() as other:
        sock.connect((ADDRESS, place.port))
        sock.settimeout(0.2)
        sent = 0
        enough = running.seconds() + FEWEST_SECONDS + 1
        last = time.monotonic() + PATIENCE_S
        while running.seconds() < enough or sent < 1.2 * FEWEST_MESSAGES:
            assert time.monotonic() < last, f"only {sent} requests were sent"
            burst = [request("OPTIONS", f"planted{sent + i}") for i in range(plant.burst)]
            sent += plant.burst
            if plant.over_tcp:
                burst = [b"".join(burst).replace(b"/UDP", b"/TCP")]
                other.sendto(request("OPTIONS", f"beside{sent}"), (ADDRESS, place.port))
            for message in burst:
                sock.sendall(message)
            answered, answer = 0, b""
            with contextlib.suppress(TimeoutError):
                while answered < plant.burst:
                    # keep the last bytes, because TCP may split the status line of an answer
                    answer = answer[1 - len(OK) :] + sock.recv(65536)
                    answered += answer.count(OK)
            time.sleep(plant.pause_s)


LONG = (Cause.SLEEPING_WORKERS, Cause.HOT_CONNECTION, Cause.CPU_LIMIT)
"""Causes that only `make soak` plants."""


@pytest.mark.quiet
@pytest.mark.parametrize(
    "plant",
    [
        pytest.param(plant, marks=[pytest.mark.long] if plant.cause in LONG else [])
        for plant in PLANTS
    ],
    ids=str,
)
def test_advice_names_only_the_planted_cause(
    tmp_path: Path, probe: PurePosixPath, plant: Plant
) -> None:
    *_, other_cpu, cpu = sorted(os.sched_getaffinity(0))
    one_cpu = ("taskset", "--cpu-list", cpu)
    before: tuple[object, ...] = one_cpu if plant.one_cpu else ()
    with contextlib.ExitStack() as stack:
        if plant.limited:
            group = stack.enter_context(limited_group())
            before = ("sh", "-c", 'echo $$ > "$0/cgroup.procs"; exec "$@"', group)
        place = stack.enter_context(placed(tmp_path, config=plant.config, before=before))
        if plant.competitor:
            own_class = ("chrt", f"--{plant.competitor}", 0)
            for name, where in (("backup", cpu), ("elsewhere", other_cpu)):
                program = shutil.copy("/bin/sh", tmp_path / name)
                argv = ("taskset", "--cpu-list", where, program, "-c", "while :; do :; done")
                place.start(*own_class, *argv)
        with watching(place, probe, place.started[0].pid) as running:
            offer(place, running, plant)
    recorded = read_seconds(running.output)
    causes, reason = findings(recorded)
    assert reason == ""
    assert [shown.cause for shown in causes] == ([plant.cause] if plant.cause else [])
    assert plant.cause is not Cause.COMPETITOR or causes[0].program == "backup"
    assert set(advice_lines(recorded, "kamailio")) <= set(running.said)


def test_static_probe_runs_without_any_library(tmp_path: Path) -> None:
    (tmp_path / "native").mkdir()
    folder = build_native("probe", tmp_path / "native", "sipprobe-static")
    root = tmp_path / "root"
    for name in ("proc", "sys"):
        (root / name).mkdir(parents=True)
    shutil.copy(folder / "sipprobe-static", root / "sipprobe")
    script = 'mount --rbind /proc "$0/proc"; mount --rbind /sys "$0/sys"; chroot "$0" /sipprobe histograms --port 5060'
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", script, str(root)],
        input=b"\n",
        capture_output=True,
        check=True,
    )
    ready, counts = done.stdout.splitlines()
    assert ready == b"ready"
    assert json.loads(counts)["names"] == {}


def test_three_capabilities_suffice(place: Place, probe: PurePosixPath) -> None:
    few = ",".join(f"+{name.removeprefix('CAP_').lower()}" for name in CAPABILITIES)
    user = ("--reuid=65534", "--regid=65534", "--clear-groups")
    namespace = f"/proc/{place.started[0].pid}/ns/net"
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        program = shutil.copy(probe, folder)
        argv = ["setpriv", *user, f"--inh-caps={few}", f"--ambient-caps={few}", program]
        port = ("--port", "5060", "--netns", namespace)
        for command in (["histograms", *port], ["watch", "--comm", "kamailio", *port]):
            with subprocess.Popen(
                [*argv, *command], stdin=subprocess.PIPE, stdout=subprocess.PIPE
            ) as process:
                assert process.stdout is not None
                assert process.stdout.read(6) in (b"ready\n", b"SIPTRA")
                process.communicate(timeout=10)
            assert process.returncode == 0
        inode = str(Path(namespace).stat().st_ino)
        done = subprocess.run(
            [*argv, "counters", "kamailio", inode], input=b"\n", capture_output=True, check=True
        )
        assert str(place.started[0].pid) in done.stdout.decode().split("pids")[1].split("\n")[0]


def test_restarted_proxy_is_found_again(place: Place, probe: PurePosixPath) -> None:
    with watching(place, probe, place.started[0].pid) as running:
        assert place.ask(request("OPTIONS", "before")) is not None
        place.kill_proxy()
        wait_for(lambda: any("is not running" in line for line in running.said), PATIENCE_S)
        place.proxy()
        wait_for(lambda: any("started again" in line for line in running.said), PATIENCE_S)
        for i in range(20):
            assert place.ask(request("REGISTER", f"after{i}")) is not None
        seen = running.seconds()
        wait_for(lambda: running.seconds() >= seen + 2, PATIENCE_S)
    assert read_watch(running.output).restarts == 1
    ds = open_messages(running.output / "messages.nc")
    assert (ds["name"].to_numpy() == NAMES["REGISTER"]).sum() == 20


def test_proxy_restarted_at_another_port_within_a_second_is_found(
    place: Place, probe: PurePosixPath
) -> None:
    with watching(place, probe, place.started[0].pid) as running:
        assert place.ask(request("REGISTER", "before")) is not None
        seen = running.seconds()
        wait_for(lambda: running.seconds() > seen, PATIENCE_S)
        place.kill_proxy()
        place.port = 5080
        place.proxy()
        wait_for(lambda: any("runs again" in line for line in running.said), PATIENCE_S)
        seen = running.seconds()
        wait_for(lambda: running.seconds() > seen, PATIENCE_S)
        assert place.ask(request("REGISTER", "after")) is not None
        seen = running.seconds()
        wait_for(lambda: running.seconds() >= seen + 2, PATIENCE_S)
    assert read_watch(running.output).restarts == 1
    assert read_watch(running.output).udp_ports == [5080]
    ds = open_messages(running.output / "messages.nc")
    assert (ds["name"].to_numpy() == NAMES["REGISTER"]).sum() == 2


RELOADS = {
    # each routing sends messages to a port, which is in the file `routing`
    "dispatcher.reload": (
        f"1 sip:{CLIENT}:{{port}}\n",
        'loadmodule "dispatcher.so"\nmodparam("dispatcher", "list_file", "{file}")\n'
        'request_route {{ if (!is_method("MESSAGE")) {{ sl_send_reply("200", "OK"); exit; }} '
        'ds_select_dst("1", "4"); forward(); }}\n',
    ),
    "app_jsdt.reload": (
        "function ksr_request_route() {{\n"
        '    if (KSR.pv.get("$rm") != "MESSAGE") {{ KSR.sl.sl_send_reply(200, "OK"); return; }}\n'
        f'    KSR.pv.sets("$du", "sip:{CLIENT}:{{port}}");\n    KSR.forward();\n}}}}\n',
        'loadmodule "app_jsdt.so"\nmodparam("app_jsdt", "load", "{file}")\ncfgengine "jsdt"\n',
    ),
}
"""For each command that reloads a proxy's routing: the content of the file with the routing, and the configuration."""


@pytest.mark.parametrize("command", RELOADS)
def test_reload_of_the_routing_is_no_restart_and_loses_no_message(
    tmp_path: Path, probe: PurePosixPath, command: str
) -> None:
    content, settings = RELOADS[command]
    file, control = tmp_path / "routing", f"unix:{tmp_path}/control"
    file.write_text(content.format(port=5071))
    config = CONFIG.read_text().partition("request_route")[0]
    config += f'loadmodule "ctl.so"\nmodparam("ctl", "binrpc", "{control}")\n'
    config += settings.format(file=file)
    with (
        placed(tmp_path, config=config) as place,
        place.socket() as sender,
        place.socket(port=5071) as first,
        place.socket(port=5072) as second,
    ):
        with watching(place, probe, place.started[0].pid) as running:
            for i in range(240):
                if i == 120:
                    file.write_text(content.format(port=5072))
                    reload = place.start("kamcmd", "-s", control, command)
                sender.sendto(request("MESSAGE", f"reload{i}"), (ADDRESS, 5060))
                time.sleep(0.01)
            assert reload.wait(10) == 0
            seen = running.seconds()
            wait_for(lambda: running.seconds() >= seen + 2, PATIENCE_S)
        before, after = queued(first), queued(second)
    assert before + after == 240
    assert before >= 120
    assert after > 60
    assert not any("again" in line or "not running" in line for line in running.said)
    document = read_watch(running.output)
    assert document.restarts == document.lost == document.not_written == 0
    ds = open_messages(running.output / "messages.nc")
    assert (ds["name"].to_numpy() == NAMES["MESSAGE"]).sum() == ds.sizes["message"] == 240
    wrong = FLAGS["arrival_not_found"] | FLAGS["nothing_sent"] | ANSWERED
    assert not (ds["flags"].to_numpy() & wrong).any()


def queued(sock: socket.socket) -> int:
    """Read all datagrams from the queue of a socket, and return their number."""
    sock.setblocking(False)
    count = 0
    with contextlib.suppress(BlockingIOError):
        while sock.recv(4096):
            count += 1
    return count


def test_another_proxy_is_not_taken_for_the_restarted_proxy(
    tmp_path: Path, probe: PurePosixPath
) -> None:
    folders = [tmp_path / name for name in ("watched", "other")]
    for folder in folders:
        folder.mkdir()
    with placed(folders[0]) as place, placed(folders[1]):
        with watching(place, probe, place.started[0].pid) as running:
            assert place.ask(request("REGISTER", "before")) is not None
            place.kill_proxy()
            down = "is not running"
            wait_for(lambda: sum(down in line for line in running.said) >= 3, PATIENCE_S)
            place.proxy()
            wait_for(lambda: any("started again" in line for line in running.said), PATIENCE_S)
        assert not any("runs again" in line for line in running.said)
        assert read_watch(running.output).restarts == 1


def test_proxy_in_a_new_namespace_is_found_by_its_port(
    tmp_path: Path, probe: PurePosixPath
) -> None:
    folders = [tmp_path / name for name in ("first", "second")]
    for folder in folders:
        folder.mkdir()
    port = free_port()
    with contextlib.ExitStack() as stack:
        with placed(folders[0], port) as first:
            running = stack.enter_context(watching(first, probe, None, port=port))
            assert first.ask(request("REGISTER", "first")) is not None
            time.sleep(1.5)
        with placed(folders[1], port) as second:
            wait_for(lambda: any("runs again" in line for line in running.said), PATIENCE_S)
            seen = running.seconds()
            wait_for(lambda: running.seconds() > seen, PATIENCE_S)
            assert second.ask(request("REGISTER", "second")) is not None
            wait_for(lambda: running.seconds() > seen + 2, PATIENCE_S)
            running.stop.asked.set()
            wait_for((running.output / "page.html").exists, PATIENCE_S)
    ds = open_messages(running.output / "messages.nc")
    assert (ds["name"].to_numpy() == NAMES["REGISTER"]).sum() == 2
    times = [second.t_s for second in read_seconds(running.output)]
    assert np.all(np.diff(times) > 0)


def test_probe_without_a_reader_loses_records_and_the_proxy_never_waits(
    place: Place, probe: PurePosixPath
) -> None:
    namespace = f"/proc/{place.holder}/ns/net"
    argv = [str(probe), "watch", "--comm", "kamailio", "--netns", namespace, "--port", "5060"]
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with subprocess.Popen([*argv, "--ring-bytes", "65536"], **pipes) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert len(process.stdout.read(1)) == 1
        answered = 0
        with place.socket() as sock:
            sock.settimeout(2)
            for i in range(4500):
                sock.sendto(request("OPTIONS", f"flood{i}"), (ADDRESS, 5060))
                answered += bool(sock.recv(4096))
        assert answered == 4500
        time.sleep(0.5)
        assert process.stdin is not None
        process.stdin.close()
        data = process.stdout.read()
        assert process.wait(10) == 0
        last = json.loads(process.stderr.read().decode().strip().splitlines()[-1])
    records = len(data) // trace.RECORD.itemsize
    assert 0 < records < 4500
    assert last["lost"] > 0


def test_probe_without_input_ends(place: Place, impatient_probe: PurePosixPath) -> None:
    namespace = Path(f"/proc/{place.holder}/ns/net")
    where = ("--netns", str(namespace), "--port", "5060")
    commands = (
        ("watch", "--comm", "kamailio", *where),
        ("histograms", *where),
        ("counters", "kamailio", str(namespace.stat().st_ino)),
    )
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with contextlib.ExitStack() as stack:
        processes = [
            stack.enter_context(subprocess.Popen([str(impatient_probe), *command], **pipes))
            for command in commands
        ]
        for _ in range(7):
            time.sleep(1)
            for process in processes:
                assert process.stdin is not None
                process.stdin.write(b"\n")
                process.stdin.flush()
        assert [process.poll() for process in processes] == [None] * 3
        attached = held(impatient_probe)
        assert len(attached) > 10
        # nobody reads the trace, so the probe blocks when the pipe is full
        for i in range(4500):
            assert place.ask(request("OPTIONS", f"silent{i}")) is not None
        for process in processes:
            assert process.wait(15) == 1
            assert process.stderr is not None
            assert process.stderr.read().splitlines()[-1] == b"sipprobe: no input for 5 s"
    # the kernel removes BPF programs a little after the process that has loaded them
    wait_for(lambda: not attached & loaded(), PATIENCE_S)


def test_killed_watch_leaves_nothing_behind(place: Place, probe: PurePosixPath) -> None:
    code = (
        "import sys; from pathlib import Path, PurePosixPath; from sipsched import watch; "
        "watch.watch(watch.WatchOptions(pid=int(sys.argv[1]), output=Path(sys.argv[2]), "
        "probe=PurePosixPath(sys.argv[3])))"
    )
    out = place.folder / "out"
    argv = [sys.executable, "-c", code, str(place.started[0].pid), str(out), str(probe)]
    with subprocess.Popen(argv, stdout=subprocess.DEVNULL) as process:
        wait_for(lambda: len(held(probe)) > 10, PATIENCE_S)
        attached = held(probe)
        process.kill()
    wait_for(lambda: not pids(f"^{probe} watch"), PATIENCE_S)
    wait_for(lambda: not attached & loaded(), PATIENCE_S)
    assert not pids(f"sh -c .*{place.started[0].pid}")


@contextlib.contextmanager
def command(
    place: Place, probe: PurePosixPath, stdout: int | IO[bytes], *before: str
) -> Iterator["subprocess.Popen[bytes]"]:
    """Run the command `fab watch`, and wait until it has recorded a second."""
    fab = Path(sys.executable).with_name("fab")
    argv = [*before, str(fab), "watch", "--pid", str(place.started[0].pid), "--probe", str(probe)]
    argv += ["--output", str(place.folder / "out")]
    with subprocess.Popen(argv, stdout=stdout, stderr=subprocess.PIPE) as process:
        seconds = place.folder / "out" / "seconds.jsonl"
        try:
            wait_for(lambda: seconds.exists() and seconds.stat().st_size > 0, PATIENCE_S)
            yield process
        finally:
            process.kill()


def threads_of(place: Place) -> dict[tuple[int, str], tuple[object, ...]]:
    """Return the scheduling of each thread of the proxy: its class, priority, nice value, CPUs and control group."""
    found = {}
    for pid in pids(f"^kamailio .*{place.folder}"):
        for task in Path(f"/proc/{pid}/task").iterdir():
            tid, started = (
                int(task.name),
                (task / "stat").read_text().rpartition(")")[2].split()[19],
            )
            found[tid, started] = (
                os.sched_getscheduler(tid),
                os.sched_getparam(tid).sched_priority,
                os.getpriority(os.PRIO_PROCESS, tid),
                os.sched_getaffinity(tid),
                (task / "cgroup").read_text(),
            )
    return found


def host_of(place: Place) -> dict[str, object]:
    """Return the settings and the files of the proxy's host, apart from the loaded BPF programs."""

    def output(*argv: str) -> str:
        return subprocess.run(argv, check=True, capture_output=True, text=True).stdout

    inside = ("nsenter", f"--net=/proc/{place.holder}/ns/net")
    # Other programs on this machine may add network devices, and the sysctls of these devices, to the host's namespace.
    kernel = r"^(?:net\.core|kernel\.(?:sched|bpf|perf|unprivileged_bpf)).*$"
    folders = [place.folder, Path("/etc/kamailio"), *Path("/usr/lib").glob("*/kamailio")]
    return {
        "sysctls of the namespace": re.findall(r"^net\..*$", output(*inside, "sysctl", "-a"), re.M),
        "sysctls of the kernel": re.findall(kernel, output("sysctl", "-a"), re.M),
        "threads": threads_of(place),
        "socket buffers": sorted(re.findall(r"[rt]b\d+", output(*inside, "ss", "-utamn"))),
        "pinned BPF objects": sorted(Path("/sys/fs/bpf").rglob("*")),
        "files": {
            path: (path.stat().st_mode, path.stat().st_mtime_ns, path.stat().st_size)
            for folder in folders
            for path in folder.rglob("*")
            # the proxy writes its log, and the watch writes its record, which need not be on the proxy's host
            if path != place.folder / "log" and place.folder / "out" not in (path, *path.parents)
        },
    }


@pytest.mark.parametrize("options", [{}, {"histograms": True, "cpu": 0.05}])
def test_watch_changes_nothing_on_the_host(
    place: Place, probe: PurePosixPath, options: dict[str, object]
) -> None:
    before, programs = host_of(place), loaded()
    assert all(len(before[key]) > 3 for key in before if key != "pinned BPF objects")
    with watching(place, probe, place.started[0].pid, **options) as running:
        for i in range(100):
            assert place.ask(request("OPTIONS", f"unchanged{i}")) is not None
        seen = running.seconds()
        wait_for(lambda: running.seconds() >= seen + 2, PATIENCE_S)
        during = host_of(place)
        assert loaded() - programs == held(probe) != set()
    after = host_of(place)
    for key in before:
        assert before[key] == during[key] == after[key], key
    assert loaded() == programs


def test_full_disk_under_the_printed_lines_is_one_error(place: Place, probe: PurePosixPath) -> None:
    with Path("/dev/full").open("wb") as full, command(place, probe, full) as process:
        time.sleep(1.5)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=20)
    (error,) = said.decode().splitlines()
    assert "No space left on device" in error
    assert process.returncode == 0
    assert (place.folder / "out" / "page.html").exists()
    assert len(read_seconds(place.folder / "out")) > 1


def test_closed_terminal_ends_the_watch_with_a_page(place: Place, probe: PurePosixPath) -> None:
    ours, terminal = pty.openpty()
    # The kernel sends SIGHUP to the process whose controlling terminal is closed. A write then fails with EIO.
    # If the tests run under nohup, SIGHUP is ignored, and programs inherit this.
    own_terminal = ("sh", "-c", 'exec env --default-signal=HUP setsid --ctty "$@" <&1', "sh")
    with command(place, probe, terminal, *own_terminal) as process:
        os.close(terminal)
        os.close(ours)
        _, said = process.communicate(timeout=20)
    assert process.returncode == 0, said
    assert read_watch(place.folder / "out").ended_by == "the user"
    assert (place.folder / "out" / "page.html").exists()


def test_watch_under_nohup_continues_after_sighup(place: Place, probe: PurePosixPath) -> None:
    with command(place, probe, subprocess.DEVNULL, "nohup") as process:
        seen = len(read_seconds(place.folder / "out"))
        process.send_signal(signal.SIGHUP)
        wait_for(lambda: len(read_seconds(place.folder / "out")) > seen + 1, PATIENCE_S)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=20)
    assert process.returncode == 0
    assert (place.folder / "out" / "page.html").exists()


def test_dry_run_attaches_nothing_and_names_privileges(place: Place, probe: PurePosixPath) -> None:
    said: list[str] = []
    options = watch.WatchOptions(
        pid=place.started[0].pid, output=place.folder / "out", probe=probe, dry_run=True
    )
    watch.watch(options, said.append)
    text = "\n".join(said)
    for expected in ("UDP 5060 and TCP 5060", "CAP_BPF", "Nothing on the host is changed"):
        assert expected in text
    assert not pids(f"^{probe} watch")
    assert not (place.folder / "out").exists()


def test_command_without_a_proxy_is_one_line(tmp_path: Path) -> None:
    fab = Path(sys.executable).with_name("fab")
    argv = [str(fab), "watch", "--port", "9", "--output", str(tmp_path / "out")]
    done = subprocess.run(argv, check=False, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.startswith(
        "error: this machine: no process has a listening socket on port 9"
    )
    assert len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "out").exists()


@contextlib.contextmanager
def ssh_to_this_machine(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    address: str = "127.0.0.1",
    before: Sequence[str] = (),
) -> Iterator[str]:
    """Run a separate sshd, and put an `ssh` with the right keys first in PATH. Yield the name of the host.

    The command `before` starts the sshd, for example in another network namespace.
    """
    for name in ("host", "user"):
        argv = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)]
        subprocess.run(argv, check=True)
    shutil.copy(folder / "user.pub", folder / "authorized")
    port = free_port()
    settings = {
        **{"Port": port, "ListenAddress": address, "HostKey": folder / "host"},
        **{"AuthorizedKeysFile": folder / "authorized", "PidFile": folder / "sshd.pid"},
        **{"StrictModes": "no", "PermitRootLogin": "yes", "UsePAM": "no"},
    }
    (folder / "sshd.cfg").write_text("".join(f"{key} {value}\n" for key, value in settings.items()))
    known = (folder / "host.pub").read_text().split()[:2]
    (folder / "known").write_text(f"[{address}]:{port} {' '.join(known)}\n")
    (folder / "ssh.cfg").write_text(
        f"Host thehost\nHostName {address}\nPort {port}\nUser root\nIdentityFile {folder}/user\n"
        f"UserKnownHostsFile {folder}/known\n"
    )
    programs = folder / "bin"
    programs.mkdir()
    (programs / "ssh").write_text(f'#!/bin/sh\nexec /usr/bin/ssh -F {folder}/ssh.cfg "$@"\n')
    (programs / "ssh").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    Path("/run/sshd").mkdir(exist_ok=True)
    sshd = [*before, "/usr/sbin/sshd", "-D", "-e", "-f", str(folder / "sshd.cfg")]
    with (folder / "sshd.log").open("wb") as log, subprocess.Popen(sshd, stderr=log) as process:
        try:
            wait_for((folder / "sshd.pid").exists, PATIENCE_S)
            yield "thehost"
        finally:
            process.terminate()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_host_over_ssh_is_watched_and_a_lost_connection_leaves_nothing(
    place: Place, probe: PurePosixPath, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    # A stopped ssh is like a silent network: the connection stays open, and no answer arrives.
    for limit in ("ANSWER_TIMEOUT_S", "END_TIMEOUT_S"):
        monkeypatch.setattr(measuring, limit, 2)
    folder = place.folder / "ssh"
    folder.mkdir()
    with ssh_to_this_machine(folder, monkeypatch) as host:
        with watching(place, probe, place.started[0].pid, host=host) as running:
            for i in range(20):
                assert place.ask(request("REGISTER", f"remote{i}")) is not None
            seen = running.seconds()
            wait_for(lambda: running.seconds() >= seen + 2, PATIENCE_S)
            attached = held(probe)
            assert len(attached) > 10
            for connection in pids(f"^/usr/bin/ssh -F {folder}/ssh.cfg"):
                os.kill(connection, number)
            wait_for(lambda: bool(running.failed), PATIENCE_S)
        wait_for(lambda: not attached & loaded(), PATIENCE_S)
    assert not pids(f"^{probe} watch")
    (error,) = running.failed
    assert isinstance(error, SipschedError)
    assert "host thehost" in str(error) or "the probe ended" in str(error)
    assert (running.output / "page.html").exists()
    # the record of the time before the loss is complete
    ds = open_messages(running.output / "messages.nc")
    assert (ds["name"].to_numpy() == NAMES["REGISTER"]).sum() == 20
    assert (
        "host" in read_watch(running.output).ended_by
        or "probe" in read_watch(running.output).ended_by
    )


@contextlib.contextmanager
def linked(place: Place) -> Iterator[tuple[str, ...]]:
    """Connect the proxy's namespace to this machine. Yield the command that runs a program in the namespace."""
    link, inside = f"watch{os.getpid()}", ("nsenter", f"--net=/proc/{place.holder}/ns/net")
    peer = ("peer", "name", "eth0", "netns", str(place.holder))
    commands = (
        ("ip", "link", "add", link, "type", "veth", *peer),
        ("ip", "address", "add", "198.51.100.1/30", "dev", link),
        ("ip", "link", "set", link, "up"),
        (*inside, "ip", "address", "add", f"{REMOTE}/30", "dev", "eth0"),
        (*inside, "ip", "link", "set", "eth0", "up"),
    )
    for argv in commands:
        subprocess.run(argv, check=True)
    try:
        yield inside
    finally:
        # The sshd of a silent connection waits for hours, so end each sshd in the namespace.
        namespace = Path(f"/proc/{place.holder}/ns/net").stat().st_ino
        for pid in pids("sshd"):
            with contextlib.suppress(OSError):
                if Path(f"/proc/{pid}/ns/net").stat().st_ino == namespace:
                    os.kill(pid, signal.SIGKILL)
        subprocess.run(["ip", "link", "delete", link], check=True)


@pytest.mark.parametrize("histograms", [False, True])
def test_silent_network_ends_the_watch_and_the_probe(
    place: Place, impatient_probe: PurePosixPath, monkeypatch: pytest.MonkeyPatch, histograms: bool
) -> None:
    probe = impatient_probe
    for limit in ("ANSWER_TIMEOUT_S", "END_TIMEOUT_S"):
        monkeypatch.setattr(measuring, limit, 2)
    folder = place.folder / "ssh"
    folder.mkdir()
    with (
        linked(place) as inside,
        ssh_to_this_machine(folder, monkeypatch, REMOTE, inside) as host,
    ):
        pid = place.started[0].pid
        with watching(place, probe, pid, host=host, histograms=histograms) as running:
            for i in range(20):
                assert place.ask(request("REGISTER", f"silent{i}")) is not None
            seen = running.seconds()
            wait_for(lambda: running.seconds() >= seen + 2, PATIENCE_S)
            attached = held(probe)
            assert attached
            subprocess.run([*inside, "ip", "link", "set", "eth0", "down"], check=True)
            wait_for(lambda: bool(running.failed), PATIENCE_S)
        # the network is still silent, so the probe ends without help
        wait_for(lambda: not pids(f"^{probe} "), 15)
        wait_for(lambda: not attached & loaded(), PATIENCE_S)
    (error,) = running.failed
    assert isinstance(error, SipschedError)
    assert str(error).startswith("host thehost: no answer")
    assert read_watch(running.output).ended_by == str(error)
    assert total(read_seconds(running.output)).messages["REGISTER"] == 20
    assert (running.output / "page.html").exists()
