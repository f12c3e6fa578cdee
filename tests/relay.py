"""A relay of SIP datagrams that timestamps every message.

`python relay.py WORKERS RATE BURST RCVBUF OUTPUT` sends RATE requests per second in bursts of BURST. Workers with a
common socket (receive buffer RCVBUF bytes) return each request unchanged. At the end of its input, the relay writes the
times at which each request was sent and came back (0: never), by CSeq, in ns of CLOCK_MONOTONIC.
"""

import ctypes
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

NAME = "siprelay"
PORT = 5060
SO_RCVBUFFORCE = 33
PR_SET_PDEATHSIG = 1


def request(number: int) -> bytes:
    """Return an INVITE with the given CSeq."""
    head = f"INVITE sip:service@127.0.0.1 SIP/2.0\r\nCSeq: {number} INVITE\r\n"
    return f"{head}Call-ID: {number}@relay\r\nContent-Length: 0\r\n\r\n".ljust(500).encode()


def number_of(datagram: bytes) -> int:
    """Return the CSeq of a request."""
    return int(datagram.split(b"CSeq: ", 1)[1].split(b" ", 1)[0])


def serve(sock: socket.socket) -> None:
    """Return each datagram to its sender until the parent ends."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    Path("/proc/self/comm").write_text(NAME)
    while True:
        data, sender = sock.recvfrom(2048)
        sock.sendto(data, sender)


def offer(rate: float, burst: int) -> dict[str, list[int]]:
    """Send requests until the input ends. Return the times of requests and answers, by CSeq."""
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.setblocking(False)
    # Use a large buffer, because answers wait until the burst is sent.
    sock.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 1 << 24)
    sent: list[int] = []
    returned: list[int] = []

    def collect(wait_s: float) -> None:
        if not select.select([sock], [], [], wait_s)[0]:
            return
        while True:
            try:
                data = sock.recv(2048)
            except BlockingIOError:
                return
            returned[number_of(data) - 1] = time.monotonic_ns()

    due = time.monotonic()
    while not select.select([sys.stdin], [], [], 0)[0]:
        for _ in range(burst):
            returned.append(0)
            sent.append(time.monotonic_ns())
            sock.sendto(request(len(sent)), ("127.0.0.1", PORT))
        due += burst / rate
        while (left := due - time.monotonic()) > 0:
            collect(left)
    for _ in range(20):
        collect(0.01)
    return {"sent": sent, "returned": returned}


def main() -> None:
    """Run the workers, and offer the load."""
    workers, rate, burst, receive_buffer, output = sys.argv[1:]
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, int(receive_buffer))
    sock.bind(("127.0.0.1", PORT))
    for _ in range(int(workers)):
        if not os.fork():
            serve(sock)
    print("serving", flush=True)
    Path(output).write_text(json.dumps(offer(float(rate), int(burst))))
    # Keep the workers alive until the probe ends.
    sys.stdin.readline()


if __name__ == "__main__":
    main()
