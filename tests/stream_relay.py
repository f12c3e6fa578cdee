"""A relay of SIP over TCP that timestamps every message.

`python stream_relay.py PLAN OUTPUT` reads a plan (JSON): `workers`, `rate` (messages per second), `size` (bytes per
message), `chunks` (bytes per send of the client, in turn; empty: one message per send), `read` (bytes per read of a
worker) and `cut` (connections that end within a message). A process accepts connections and passes them to the workers
(SCM_RIGHTS). A worker returns each message unchanged. At the end of its input, the relay writes the timestamps of the
client, the workers and a packet socket, in ns of CLOCK_MONOTONIC.
"""

import ctypes
import itertools
import json
import mmap
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

NAME = "siprelay"
PORT = 5060
PR_SET_PDEATHSIG = 1
ETH_P_ALL = 3
SOL_PACKET, PACKET_RX_RING, PACKET_VERSION, TPACKET_V2 = 263, 5, 10, 1
TP_STATUS_USER = 1
SLL_PACKET_TYPE = 32 + 10  # in a frame, struct sockaddr_ll follows struct tpacket2_hdr
FRAME, FRAMES, BLOCK = 256, 1 << 17, 1 << 16
HEAD = b"Content-Length: "
END = b"\r\n\r\n"


def request(number: int, size: int) -> bytes:
    """Return an INVITE with this CSeq and length in bytes."""
    head = f"INVITE sip:service@127.0.0.1 SIP/2.0\r\nCSeq: {number} INVITE\r\nCall-ID: {number}@relay\r\n"
    body = max(0, size - len(head) - len(HEAD) - 9)
    return head.encode() + HEAD + f"{body:05d}".encode() + END + b"x" * body


def cut(text: bytes) -> int:
    """Return the length of the first message of a text, or 0 if the message is incomplete."""
    end = text.find(END)
    if end < 0:
        return 0
    at = text.index(HEAD) + len(HEAD)
    length = end + len(END) + int(text[at : text.index(b"\r", at)])
    return length if length <= len(text) else 0


def number_of(message: bytes) -> int:
    """Return the CSeq of a request."""
    return int(message.split(b"CSeq: ", 1)[1].split(b" ", 1)[0])


def serve(channel: socket.socket, read: int, output: Path) -> None:
    """Send each message back on its connection. Another process passes the connections to this worker."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    Path("/proc/self/comm").write_text(NAME)
    seen: list[dict[str, int]] = []
    while True:
        _, fds, _, _ = socket.recv_fds(channel, 1, 1)
        if not fds:
            break
        with socket.socket(fileno=fds[0]) as sock:
            text, reads = b"", 0
            while True:
                before = time.monotonic_ns()
                data = sock.recv(read)
                after = time.monotonic_ns()
                if not data:
                    break
                text += data
                reads += 1
                found = []
                while length := cut(text):
                    found.append(text[:length])
                    text = text[length:]
                for message in found:
                    row = {"number": number_of(message), "before_read": before, "after_read": after}
                    row |= {
                        "reads": reads,
                        "together": len(found),
                        "before_send": time.monotonic_ns(),
                    }
                    sock.sendall(message)
                    row["after_send"] = time.monotonic_ns()
                    seen.append(row)
                    reads = 1
                if found and not text:
                    reads = 0
    output.write_text(json.dumps(seen))
    os._exit(0)


class Capture:
    """A capture of the loopback: a ring in memory, in which the kernel timestamps each packet."""

    def __init__(self) -> None:
        self.sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
        self.sock.setsockopt(SOL_PACKET, PACKET_VERSION, TPACKET_V2)
        ring = struct.pack("IIII", BLOCK, FRAMES * FRAME // BLOCK, FRAME, FRAMES)
        self.sock.setsockopt(SOL_PACKET, PACKET_RX_RING, ring)
        self.ring = mmap.mmap(self.sock.fileno(), FRAMES * FRAME)
        self.sock.bind(("lo", ETH_P_ALL))
        # Read both clocks many times, and use the two readings that are closest in time.
        readings = []
        for _ in range(100):
            before = time.monotonic_ns()
            real = time.clock_gettime_ns(time.CLOCK_REALTIME)
            after = time.monotonic_ns()
            readings.append((after - before, (before + after) // 2 - real))
        self.to_monotonic = min(readings)[1]

    def segments(self) -> list[tuple[bool, bool, int, int, int, int]]:
        """Return the segments with data, as (direction, departure or arrival, port, sequence, length, time in ns)."""
        found = []
        for at in range(0, FRAMES * FRAME, FRAME):
            status, _, _, _, ip, seconds, ns = struct.unpack_from("IIIHHII", self.ring, at)
            if not status & TP_STATUS_USER:
                break
            leaves = self.ring[at + SLL_PACKET_TYPE] == socket.PACKET_OUTGOING
            ip += at
            ahead = (self.ring[ip] & 15) * 4
            if self.ring[ip + 9] != socket.IPPROTO_TCP:
                continue
            total = struct.unpack_from("!H", self.ring, ip + 2)[0]
            source, target, seq = struct.unpack_from("!HHI", self.ring, ip + ahead)
            length = total - ahead - (self.ring[ip + ahead + 12] >> 4) * 4
            if length > 0:
                client = target if source == PORT else source
                t = seconds * 10**9 + ns + self.to_monotonic
                found.append((target == PORT, leaves, client, seq, length, t))
        return found


class Client(threading.Thread):
    """A connection that sends messages in chunks and reads the answers."""

    def __init__(self, plan: dict[str, Any], numbers: Any) -> None:
        super().__init__()
        self.plan = plan
        self.numbers = numbers
        self.sock = socket.create_connection(("127.0.0.1", PORT))
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.port = self.sock.getsockname()[1]
        self.order: list[int] = []
        self.sent: dict[int, int] = {}
        self.returned: dict[int, int] = {}
        self.reader = threading.Thread(target=self.collect)
        self.ending = threading.Event()

    def collect(self) -> None:
        text = b""
        while data := self.sock.recv(1 << 16):
            now = time.monotonic_ns()
            text += data
            while length := cut(text):
                self.returned[number_of(text[:length])] = now
                text = text[length:]

    def run(self) -> None:
        plan = self.plan
        self.reader.start()
        chunks = itertools.cycle(plan["chunks"] or [0])
        waiting = b""
        due = time.monotonic()
        interval = plan["workers"] / plan["rate"]
        while not self.ending.is_set():
            size = next(chunks)
            while not waiting or len(waiting) < size:
                number = next(self.numbers)
                self.order.append(number)
                # Take the time before the send, because no byte of the message leaves earlier.
                self.sent[number] = time.monotonic_ns()
                waiting += request(number, plan["size"])
                due += interval
            piece, waiting = (waiting[:size], waiting[size:]) if size else (waiting, b"")
            self.sock.sendall(piece)
            time.sleep(max(0.0, due - time.monotonic()))
        self.sock.sendall(waiting)
        time.sleep(0.3)
        self.sock.shutdown(socket.SHUT_WR)
        self.reader.join()
        self.sock.close()


def break_off() -> None:
    """Connect to the relay, and close the connection in the middle of a message."""
    with socket.create_connection(("127.0.0.1", PORT)) as sock:
        sock.sendall(request(1, 500)[:300])
        time.sleep(0.1)


def hand_over(listener: socket.socket, cut: int, channels: list[socket.socket]) -> None:
    """Accept connections. Pass connections that will be cut to the first worker, and one other to each worker."""
    Path("/proc/self/comm").write_text(NAME)
    for channel in (*itertools.repeat(channels[0], cut), *channels):
        with listener.accept()[0] as sock:
            socket.send_fds(channel, [b"x"], [sock.fileno()])
    # Exit the accepting process, because all connections are passed on.
    os._exit(0)


def main() -> None:
    """Run the workers, and offer the load."""
    plan = json.loads(sys.argv[1])
    output = Path(sys.argv[2])
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    listener = socket.create_server(("127.0.0.1", PORT))
    channels, seen = [], []
    for worker in range(plan["workers"]):
        ours, theirs = socket.socketpair()
        seen.append(output.with_suffix(f".{worker}"))
        if not os.fork():
            ours.close()
            listener.close()
            for other in channels:
                other.close()
            serve(theirs, plan["read"], seen[-1])
        theirs.close()
        channels.append(ours)
    if not os.fork():
        hand_over(listener, plan["cut"], channels)
    listener.close()
    for channel in channels:
        channel.close()
    print("serving", flush=True)
    sys.stdin.readline()
    capture = Capture()
    numbers = itertools.count(1)
    for _ in range(plan["cut"]):
        break_off()
    clients = [Client(plan, numbers) for _ in range(plan["workers"])]
    for client in clients:
        client.start()
    select.select([sys.stdin], [], [])
    sys.stdin.readline()
    for client in clients:
        client.ending.set()
    for client in clients:
        client.join()
    for path in seen:
        while not path.exists() or not path.read_text().endswith("]"):
            time.sleep(0.01)
    found = {
        "rows": [row for path in seen for row in json.loads(path.read_text())],
        "clients": {
            client.port: {"order": client.order, "sent": client.sent, "returned": client.returned}
            for client in clients
        },
        "segments": capture.segments(),
    }
    output.write_text(json.dumps(found))
    sys.stdin.readline()


if __name__ == "__main__":
    main()
