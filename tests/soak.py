"""A small campaign under random faults for an hour: does the host stay as it was, and is a number false?

First some runs of one point, far below the knee, are measured undisturbed. Then the same point is measured
again and again through Snakemake, in a scratch project, while every minute a fault of tests/faults/table.py is
done to whatever runs at that moment. A Snakemake that is killed, or gives up, is started again.

At the end, with the configuration's own rules in force all the time:

- the host is as before, nothing recorded changed by a byte, a plain run succeeds;
- no number is false: each record of the disturbed campaign is valid or suspect, every call completed, the
  ledger's residual is 0, the packet drop rate is 0, and the mean K_rcv and the proxy's CPU time a message are
  within the range of the undisturbed runs, widened by TOLERANCE of itself at either end.

Exit code 1 if one of these fails. The same seed draws the same faults at the same times; what runs at those
times is not drawn.
"""

import argparse
import collections
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from faults import checks
from faults.table import CASES, CannotInjectError, Case, Target
from helpers import LOAD, pids

from sipsched.plan.config import Run
from sipsched.records import record
from sipsched.records.run_document import RunDocument, read_run
from sipsched.records.trace import Event, read_trace
from sipsched.records.verification import verify
from sipsched.testbed import local
from sipsched.testbed.inventory import Testbed, load_testbed
from sipsched.validity.verdict import INVALID

CPS = 200
THREADS = 2
DURATION_S = 3
BATCH = 10
"""Runs a Snakemake is asked for."""
LAST_REP = 1000
"""The largest that a configuration may ask for."""
RAW_MIB = 1024
TOLERANCE = 0.5
"""Of the range's ends: what else a shared machine does moves a mean of some 3,600 messages by a third."""
HOLD_S = (1.0, 6.0)
"""How long a fault that lasts does."""
MEASURING = "measure_run"
"""Name of the process that performs a run (`snakemake_executor_plugin_campaign.forked`)."""


@dataclass
class Soak:
    """A soak in progress."""

    project: Path
    bed: Testbed
    draw: random.Random
    every_s: float
    done: collections.Counter[str] = field(default_factory=collections.Counter)
    missed: collections.Counter[str] = field(default_factory=collections.Counter)
    digests: dict[str, str] = field(default_factory=dict)
    changed: set[str] = field(default_factory=set)

    @property
    def raw(self) -> Path:
        return self.project / "raw"

    def snakemake(self, runs: Sequence[Run], log: Path) -> "subprocess.Popen[bytes]":
        """Start a Snakemake for some runs, in a process group of its own, as a terminal does."""
        targets = [f"raw/{run.path}/run.json" for run in runs]
        with log.open("a") as out:
            return subprocess.Popen(
                [sys.executable, "-m", "snakemake", *targets],
                cwd=self.project,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )

    def missing(self, runs: Sequence[Run]) -> list[Run]:
        return [run for run in runs if not record.is_recorded(self.raw, run)]

    def note_records(self) -> None:
        """Take the digests of what is recorded, and find what is no longer as it was."""
        self.changed |= set(checks.changed(self.digests, self.raw))
        self.digests = checks.digests(self.raw) | self.digests

    def undisturbed(self, runs: Sequence[Run], log: Path) -> None:
        """Measure runs with nothing done to them; what the machine's other work spoiled is tried again."""
        for _ in range(5):
            if left := self.missing(runs):
                self.snakemake(left, log).wait()

    def disturbed(self, first: int, seconds: float, log: Path) -> list[Run]:
        """Measure runs from a repetition on, with a fault every so often; all that were asked for come back."""
        asked: list[Run] = []
        started = time.monotonic()
        end = started + seconds
        slot = 0
        due = started + self.draw.uniform(0, self.every_s)
        process: subprocess.Popen[bytes] | None = None
        while time.monotonic() < end:
            if process is None or process.poll() is not None:
                left = self.missing(asked)
                if not left:
                    left = [run_of(first + len(asked) + number) for number in range(BATCH)]
                    asked += left
                process = self.snakemake(left, log)
            if time.monotonic() >= due and pids(LOAD):
                self.disturb(self.draw.choice(CASES), process)
                slot += 1
                due = started + slot * self.every_s + self.draw.uniform(0, self.every_s)
            time.sleep(0.2)
        if process is not None and process.poll() is None:
            os.killpg(process.pid, signal.SIGINT)
            process.wait(60)
        return asked

    def measuring(self) -> int | None:
        """Process that performs a run; None between two."""
        found = subprocess.run(["pgrep", "-x", MEASURING], capture_output=True, text=True)
        return next(map(int, found.stdout.split()), None)

    def disturb(self, case: Case, process: "subprocess.Popen[bytes]") -> None:
        """Do one fault to what runs."""
        self.note_records()
        delay_s, hold_s = self.draw.uniform(0, DURATION_S / 2), self.draw.uniform(*HOLD_S)
        time.sleep(delay_s)
        target = process.pid if case.through_snakemake else self.measuring()
        try:
            with case.inject(Target(target, self.raw, self.bed)):
                time.sleep(hold_s)
        except CannotInjectError as error:
            self.missed[f"{case.name} ({error})"] += 1
        except (ValueError, IndexError, AssertionError, OSError, subprocess.CalledProcessError):
            # the run, or that process of it, was over in the meantime
            self.missed[case.name] += 1
        else:
            self.done[case.name] += 1


def run_of(rep: int) -> Run:
    return Run("local", "kamailio-udp", "default", 1, THREADS, CPS, rep)


@contextmanager
def small_disk(folder: Path) -> Iterator[None]:
    """Put a folder on a disk of its own, so that a full one is not the machine's."""
    folder.mkdir()
    options = f"size={RAW_MIB}m,mode=755"
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "none", str(folder)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def numbers(folder: Path, document: RunDocument) -> dict[str, float]:
    """Mean K_rcv and CPU time a message of a run, in µs."""
    records = read_trace(folder / record.TRACE_FILE).records
    taken = records[(records["event"] == Event.MESSAGE) & (records["t_arr"] > 0)]
    waited_ns = taken["t_sip_in"].astype("i8") - taken["t_arr"].astype("i8")
    return {
        "K_rcv": float(np.mean(waited_ns)) / 1e3,
        "CPU a message": document.proxy.cpu_ns / document.ledger.to_sps.received / 1e3,
    }


def false_numbers(
    raw: Path, undisturbed: Sequence[Run], disturbed: Sequence[Run]
) -> tuple[list[str], list[str]]:
    """Compare a disturbed campaign with an undisturbed one.

    Returns
    -------
    list of str
        The numbers that are false, one line each.
    list of str
        What the comparison rests on, one line a number.
    """
    found = {
        run: (document := read_run(raw / run.path), numbers(raw / run.path, document))
        for run in (*undisturbed, *disturbed)
        if record.is_recorded(raw, run)
    }
    wrong, basis = [], []
    for run in disturbed:
        if run not in found:
            continue
        document, _ = found[run]
        calls, ledger = document.generator, document.ledger
        facts = {
            "graded invalid": document.verdict.grade == INVALID,
            "calls not completed": calls.calls_completed != document.load.calls,
            "ledger residual": ledger.residual,
            "drops far below the knee": ledger.to_sps.refused,
        }
        wrong += [f"{run}: {fact}: {value}" for fact, value in facts.items() if value]
    for name in ("K_rcv", "CPU a message"):
        base = [found[run][1][name] for run in undisturbed if run in found]
        here = {run: found[run][1][name] for run in disturbed if run in found}
        if not base or not here:
            wrong.append(f"{name}: nothing to compare")
            continue
        low, high = min(base) * (1 - TOLERANCE), max(base) * (1 + TOLERANCE)
        values = here.values()
        basis.append(
            f"{name}: {len(base)} undisturbed runs {min(base):.1f} to {max(base):.1f} µs, "
            f"{len(here)} disturbed ones {min(values):.1f} to {max(values):.1f} µs, "
            f"allowed {low:.1f} to {high:.1f} µs"
        )
        wrong += [
            f"{run}: {name} {value:.1f} µs"
            for run, value in here.items()
            if not low <= value <= high
        ]
    return wrong, basis


def show(title: str, counts: "collections.Counter[str]") -> None:
    print(f"{title}: {counts.total()}")
    for name, count in counts.most_common():
        print(f"  {count:4d}  {name}")


def soak(minutes: float, every_s: float, seed: int, folder: Path) -> bool:
    """Run it and print what came of it; True if all checks held."""
    settings = checks.make_project(
        folder, timing=True, duration_s=DURATION_S, warmup_s=0.2, drain_s=1.0
    )
    state = Soak(settings.parent.parent, load_testbed("local"), random.Random(seed), every_s)  # noqa: S311
    log = folder / "snakemake.log"
    failed: dict[str, Collection[str]] = {}
    with small_disk(state.raw):
        local.take_down()
        local.ensure_up(state.bed)
        try:
            count = min(20, max(5, round(minutes / 3)))
            quiet = [run_of(rep) for rep in range(1, count + 1)]
            state.undisturbed(quiet, log)
            time.sleep(1)
            before = checks.host_state()
            asked = state.disturbed(count + 1, minutes * 60, log)
            failed["the host is not as before"] = checks.unlike(before, settle_s=20)
            state.note_records()
            plain = run_of(LAST_REP)
            state.snakemake([plain], log).wait()
            failed["the next plain run did not succeed"] = list(map(str, state.missing([plain])))
            state.note_records()
            failed["records changed"] = sorted(state.changed)
            verified = verify(state.raw)
            failed["a record is not as it was written"] = (
                [] if verified.intact else list(verified.lines)
            )
            failed["numbers are false"], basis = false_numbers(state.raw, quiet, asked)
            attempts = record.failed_attempts(state.raw, [*quiet, *asked, plain])
            recorded = len(asked) - len(state.missing(asked))
        finally:
            local.take_down()
    print(f"soak: {minutes:g} min, a fault every {every_s:g} s, seed {seed}")
    print(f"runs of {DURATION_S} s at {CPS} cps: {recorded} recorded under faults")
    show("faults done", state.done)
    show("faults that met nothing or cannot be done here", state.missed)
    refused = collections.Counter(
        cause[:120] or "none kept: the disk took none" for each in attempts for cause in each.causes
    )
    show("attempts refused, by reason", refused)
    for line in basis:
        print(line)
    for what, found in failed.items():
        for one in found:
            print(f"FAILED: {what}: {one}")
    held = not any(failed.values())
    print("soak: all checks held" if held else f"soak: FAILED; log: {log}")
    return held


def main() -> None:
    assert __doc__ is not None
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--every-s", type=float, default=60)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 2**32)
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    folder = Path(tempfile.mkdtemp(prefix="sipsched-soak-"))
    sys.exit(not soak(options.minutes, options.every_s, options.seed, folder))


if __name__ == "__main__":
    main()
