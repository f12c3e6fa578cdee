"""A long watch of a real proxy under SIPp's calls, while the proxy and the watch are disturbed at random.

The disturbances are: the proxy is restarted or crashes, malformed datagrams arrive, a busy loop takes the CPUs, the
watch is stopped for some seconds, and a program rotates the files of the record.

Checks at the end:

- The watch ended normally and wrote its page. No BPF program and no process of the probe remains.
- The watch counted every restart, and the BYE of every call that SIPp completed. Two kinds of calls may be missing:
  calls in the seconds in which the probe looks for new workers, and records that the watch reports as lost.
- The memory of the watch stayed below a limit.

If a check fails, the exit code is 1, and the last line names the check. The test needs root and SIPp.
"""

import argparse
import contextlib
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "live"))

from helpers import build_native, pids, wait_for
from test_watch import ADDRESS, CLIENT, MALFORMED, Place, loaded, placed

from sipsched.records.watch import SECONDS_FILE, read_seconds, read_watch

CPS = 100
MOST_MEMORY_KB = 600_000
BLIND_S = 2
"""Longest time in seconds from a restart of the proxy until the probe finds the new workers."""


def restart(place: Place, number: signal.Signals) -> None:
    """End the proxy by a signal, and start it again."""
    main = place.started.pop(0)
    main.send_signal(number)
    main.wait()
    for left in pids(f"^kamailio .*{place.folder}"):
        with contextlib.suppress(ProcessLookupError):
            os.kill(left, signal.SIGKILL)
    time.sleep(2)
    place.started.insert(0, place.proxy())
    place.started.pop()


def send_malformed(place: Place) -> None:
    """Send datagrams that are no valid messages."""
    with place.socket() as sock:
        for datagram in MALFORMED * 50:
            sock.sendto(datagram, (ADDRESS, place.port))


def occupy(place: Place) -> None:
    """Run a busy loop on each CPU."""
    loops = [place.start("timeout", "5", "sh", "-c", "while :; do :; done") for _ in range(2)]
    for loop in loops:
        loop.wait()
        place.started.remove(loop)


def disturb(
    place: Place, watch: "subprocess.Popen[bytes]", record: Path, minutes: float, rng: random.Random
) -> tuple[Counter[str], int]:
    """Disturb the watch at random. Return the number of disturbances by kind, and the watch's largest memory in kB."""

    def stop_the_watch() -> None:
        watch.send_signal(signal.SIGSTOP)
        time.sleep(4)
        watch.send_signal(signal.SIGCONT)

    def rotate() -> None:
        (record / SECONDS_FILE).rename(record / f"{SECONDS_FILE}.1")
        (record / f"{SECONDS_FILE}.1").rename(record / SECONDS_FILE)

    disturbances: dict[str, Callable[[], None]] = {
        "restart": lambda: restart(place, signal.SIGTERM),
        "crash": lambda: restart(place, signal.SIGKILL),
        "malformed": lambda: send_malformed(place),
        "busy loop": lambda: occupy(place),
        "stopped watch": stop_the_watch,
        "rotated files": rotate,
    }
    done = Counter[str]()
    memory_kb = 0
    end = time.monotonic() + 60 * minutes
    while time.monotonic() < end and watch.poll() is None:
        name = rng.choice(sorted(disturbances))
        disturbances[name]()
        done[name] += 1
        time.sleep(rng.uniform(3, 10))
        status = Path(f"/proc/{watch.pid}/status").read_text()
        memory_kb = max(memory_kb, int(re.findall(r"VmRSS:\s+(\d+)", status)[0]))
    return done, memory_kb


def soak(minutes: float, seed: int, folder: Path) -> list[str]:
    """Watch a proxy for some minutes. Return the failed checks."""
    rng = random.Random(seed)  # noqa: S311
    probe = build_native("probe", folder, "sipprobe") / "sipprobe"
    before, record = loaded(), folder / "record"
    with placed(folder) as place:
        place.start("sipp", "-sn", "uas", "-i", ADDRESS, "-p", 5070, "-nostdin")
        time.sleep(1)
        calls = ("-r", CPS, "-m", round(CPS * 60 * minutes), "-nostdin", "-recv_timeout", 8000)
        uac = place.start("sipp", "-sn", "uac", "-i", CLIENT, "-p", 5080, f"{ADDRESS}:5060", *calls)
        argv = [str(Path(sys.executable).with_name("fab")), "watch", "--probe", str(probe)]
        argv += ["--pid", str(place.started[0].pid), "--output", str(record)]
        with (folder / "watch.log").open("wb") as log:
            watch = subprocess.Popen(argv, stdout=log, stderr=log)
        wait_for(lambda: (record / SECONDS_FILE).exists(), 30)
        done, memory_kb = disturb(place, watch, record, minutes, rng)
        with contextlib.suppress(subprocess.TimeoutExpired):
            uac.wait(60)
        time.sleep(3)
        watch.send_signal(signal.SIGINT)
        code = watch.wait(300)
        text = (folder / "log").read_text(errors="replace")
    document = read_watch(record)
    completed = int((re.findall(r"Successful call.*\|\s*(\d+)", text) or ["0"])[-1])
    restarts = done["restart"] + done["crash"]
    byes = sum(second.messages.get("BYE", 0) for second in read_seconds(record))
    print(
        f"soak of the watch: {minutes:g} min, seed {seed}, {dict(done)}; {completed} calls completed, {byes} BYE "
        f"counted, {document.lost} records lost, {document.restarts} restarts counted, {memory_kb} kB of memory"
    )
    checks = {
        f"the watch ended with code {code}": code == 0 and (record / "page.html").exists(),
        "a BPF program is left": not loaded() - before,
        "a probe is left": not pids(f"^{probe} "),
        "SIPp completed too few calls": completed > 0.5 * CPS * 60 * minutes,
        "restarts are not counted": document.restarts == restarts,
        "messages are missing": byes + document.lost + restarts * BLIND_S * CPS >= completed,
        "the watch needs too much memory": memory_kb < MOST_MEMORY_KB,
    }
    return [name for name, held in checks.items() if not held]


def main() -> None:
    assert __doc__ is not None
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 2**32)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="sipsched-soak-") as folder:
        failed = soak(options.minutes, options.seed, Path(folder))
        if failed:
            print((Path(folder) / "watch.log").read_text()[-2000:])
    for name in failed:
        print(f"FAILED: {name}")
    print(f"soak of the watch: {'FAILED' if failed else 'all checks passed'}")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
