"""Long watches of a real proxy under SIPp's calls, while the proxy and the watch are disturbed at random.

The first watch records single messages, the second watch uses --histograms, and the third watch uses --cpu. Each watch
takes a third of the time.

The disturbances are: the proxy is restarted or crashes, malformed datagrams arrive, a busy loop takes the CPUs, and the
watch is stopped for some seconds. The log of the proxy and the printed lines of the watch are also rotated as by
logrotate: a file gets another name, or is copied and then truncated (copytruncate).

Checks at the end of each watch:

- The watch ended normally and wrote its page. No BPF program and no process of the probe remains.
- The watch counted every restart, and the BYE of every call that SIPp completed. Two kinds of calls may be missing:
  calls in the seconds in which the probe looks for new workers, and records that the watch reports as lost. With --cpu,
  most calls are missing.
- The rotated files contain the printed lines of every second. Lines between a copy and its truncation may be missing.
- The memory of the watch stayed below a limit.

If a check fails, the exit code is 1, and the last line names the check. The test needs root and SIPp.
"""

import argparse
import contextlib
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "live"))

from helpers import build_native, pids, wait_for
from test_watch import ADDRESS, CLIENT, MALFORMED, Place, loaded, placed

from sipsched.records.watch import SECONDS_FILE, WATCH_FILE, read_seconds, read_watch

CPS = 100
MOST_MEMORY_KB = 600_000
COPIED = "copied logs"
ROUNDS = ((), ("--histograms",), ("--cpu", "5%"))
"""The options of each watch."""
BLIND_S = 2
"""Longest time in seconds from a restart of the proxy until the probe finds the new workers."""


def restart(place: Place, number: signal.Signals) -> None:
    """End the proxy by a signal, and start the proxy again."""
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


def rotate(process: "subprocess.Popen[bytes]", folder: Path, *, copy: bool) -> None:
    """Rotate the file in `folder` to which the standard error of a program goes. The program keeps the file open."""
    current = Path(f"/proc/{process.pid}/fd/2").readlink()
    assert current.parent == folder, f"{current} is no log of this test"
    rotated = folder / f"{current.name.partition('.rotated')[0]}.rotated{time.monotonic_ns()}"
    if copy:
        shutil.copy(current, rotated)
        os.truncate(current, 0)
    else:
        current.rename(rotated)


def printed(log: Path) -> str:
    """Return the text of a log and of its rotated files."""
    files = sorted(log.parent.glob(f"{log.name}*"), key=lambda file: file.stat().st_mtime)
    return "".join(file.read_text(errors="replace") for file in files)


def disturb(
    place: Place, watch: "subprocess.Popen[bytes]", minutes: float, rng: random.Random
) -> tuple[Counter[str], int]:
    """Disturb the watch at random. Return the number of disturbances by kind, and the watch's largest memory in kB."""

    def stop_the_watch() -> None:
        watch.send_signal(signal.SIGSTOP)
        time.sleep(4)
        watch.send_signal(signal.SIGCONT)

    def rotate_logs(*, copy: bool) -> None:
        for process in (watch, place.started[0]):
            rotate(process, place.folder, copy=copy)

    disturbances: dict[str, Callable[[], None]] = {
        "restart": lambda: restart(place, signal.SIGTERM),
        "crash": lambda: restart(place, signal.SIGKILL),
        "malformed": lambda: send_malformed(place),
        "busy loop": lambda: occupy(place),
        "stopped watch": stop_the_watch,
        "renamed logs": lambda: rotate_logs(copy=False),
        COPIED: lambda: rotate_logs(copy=True),
    }
    done = Counter[str]()
    memory_kb = 0
    end = time.monotonic() + 60 * minutes
    while time.monotonic() < end and watch.poll() is None:
        name = rng.choice(sorted(disturbances))
        disturbances[name]()
        done[name] += 1
        time.sleep(rng.uniform(3, 10))
        if watch.poll() is not None:
            break
        status = Path(f"/proc/{watch.pid}/status").read_text()
        memory_kb = max(memory_kb, int(re.findall(r"VmRSS:\s+(\d+)", status)[0]))
    return done, memory_kb


def soak(
    minutes: float, rng: random.Random, folder: Path, probe: Path, options: Sequence[str]
) -> list[str]:
    """Watch a proxy for some minutes. Return the failed checks."""
    folder.mkdir()
    before, record = loaded(), folder / "record"
    with placed(folder) as place, contextlib.ExitStack() as stack:
        place.start("sipp", "-sn", "uas", "-i", ADDRESS, "-p", 5070, "-nostdin")
        time.sleep(1)
        argv = [str(Path(sys.executable).with_name("fab")), "watch", "--probe", str(probe)]
        argv += ["--pid", str(place.started[0].pid), "--output", str(record), *options]
        # After a truncation, only a file that is open for appending continues at its new end.
        with (folder / "watch.log").open("ab") as log:
            watch = subprocess.Popen(argv, stdout=log, stderr=log)
        stack.callback(watch.kill)
        seconds_file = record / SECONDS_FILE
        wait_for(lambda: seconds_file.exists() and seconds_file.stat().st_size > 0, 30)
        calls = ("-r", CPS, "-m", round(CPS * 60 * minutes), "-nostdin", "-recv_timeout", 8000)
        uac = place.start("sipp", "-sn", "uac", "-i", CLIENT, "-p", 5080, f"{ADDRESS}:5060", *calls)
        done, memory_kb = disturb(place, watch, minutes, rng)
        with contextlib.suppress(subprocess.TimeoutExpired):
            uac.wait(60)
        time.sleep(3)
        watch.send_signal(signal.SIGINT)
        code = watch.wait(300)
    if not (record / WATCH_FILE).exists():
        return [f"the watch ended with code {code} after {dict(done)}, and wrote no record"]
    document, seconds = read_watch(record), read_seconds(record)
    calls_by_time = re.findall(r"Successful call.*\|\s*(\d+)", printed(folder / "log"))
    completed = max(map(int, calls_by_time), default=0)
    restarts = done["restart"] + done["crash"]
    byes = sum(second.messages.get("BYE", 0) for second in seconds)
    expected = completed - document.lost - restarts * BLIND_S * CPS
    lines = re.findall(r"^ *\d+ s  ", printed(folder / "watch.log"), re.MULTILINE)
    print(
        f"soak of the watch{' '.join(('', *options))}: {minutes:g} min, {dict(done)}; {completed} calls completed, "
        f"{byes} BYE counted, {document.lost} records lost, {document.restarts} restarts counted, "
        f"{len(lines)} of {len(seconds)} seconds printed, {memory_kb} kB of memory"
    )
    checks = {
        f"the watch ended with code {code}": code == 0 and (record / "page.html").exists(),
        "a BPF program is left": not loaded() - before,
        "a probe is left": not pids(f"^{probe} "),
        "SIPp completed too few calls": completed > 0.5 * CPS * 60 * minutes,
        "restarts are not counted": document.restarts == restarts,
        "messages are missing": byes > 0 if "--cpu" in options else byes >= expected,
        "printed lines are missing": len(lines) >= len(seconds) - done[COPIED],
        "the watch needs too much memory": memory_kb < MOST_MEMORY_KB,
    }
    return [name for name, held in checks.items() if not held]


def main() -> None:
    assert __doc__ is not None
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 2**32)
    options = parser.parse_args()
    print(f"seed {options.seed}")
    rng = random.Random(options.seed)  # noqa: S311
    failures = 0
    with tempfile.TemporaryDirectory(prefix="sipsched-soak-") as name:
        probe = build_native("probe", Path(name), "sipprobe") / "sipprobe"
        for number, chosen in enumerate(ROUNDS):
            folder = Path(name) / str(number)
            failed = soak(options.minutes / len(ROUNDS), rng, folder, probe, chosen)
            if failed:
                print(printed(folder / "watch.log")[-2000:])
            for check in failed:
                print(f"FAILED: {check}")
            failures += len(failed)
    print(f"soak of the watch: {'FAILED' if failures else 'all checks passed'}")
    sys.exit(bool(failures))


if __name__ == "__main__":
    main()
