"""A small campaign under random faults, which checks that the host is restored and every recorded number is right.

The campaign measures pairs of runs of one deployment, far below its capacity: an undisturbed run, and a run with a
fault of tests/faults/table.py at a random time, in random order. Snakemake measures each run in a scratch project with
the default limits of the verdict. The undisturbed runs are the reference, because the machine is equally busy during
both runs of a pair. The test samples deployments (UDP, TCP, several sockets, several instances, a dispatcher, crossover
runs) and faults (such as busy loops of several classes).

Checks at the end:

- The host is as before, no recorded file has changed, and a plain run succeeds.
- No number is false. A fault is detected if its run was refused or is suspect. In every valid run, all calls
  completed, and the ledger's residual and the drops are 0. In a disturbed valid run, three means are checked: K_rcv,
  the call set-up time (minus the ring time), and the proxy's CPU time per message. Each mean lies in the prediction
  interval of the undisturbed valid runs of the same deployment.

If a check fails, the exit code is 1, records and logs are kept, and the last line names their folder. The same seed
samples the same deployments, faults and times.
"""

import argparse
import collections
import math
import os
import random
import re
import shutil
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
import yaml
from faults import checks
from faults.table import CASES, COMPETITION, CannotInjectError, Case, Target
from helpers import LOAD, pids
from scipy import stats

from sipsched.measure.generator import read_calls
from sipsched.plan.run import Run
from sipsched.records import record
from sipsched.records.run_document import RunDocument, read_run
from sipsched.records.trace import Event, read_trace
from sipsched.records.verification import verify
from sipsched.testbed import local
from sipsched.testbed.inventory import Testbed, load_testbed
from sipsched.validity.verdict import INVALID, SUSPECT, VALID

CPS = 200
THREADS = 2
DURATION_S = 3
MODE_S = 4
"""Seconds per mode in a crossover run, which lasts three times as long."""
DEPLOYMENTS = (
    ("kamailio-udp", "default"),
    ("kamailio-udp", "default,batch"),
    ("kamailio-udp-sockets", "default"),
    ("kamailio-udp-partitioned", "default"),
    ("kamailio-tcp", "default"),
    ("kamailio-tcp-dispatcher", "default"),
)
"""Pairs of SUT and mode from which the soak test samples."""
MINUTES_A_DEPLOYMENT = 2
"""Minutes of the soak test per deployment, so that a short test has enough undisturbed runs of its deployments."""
REFERENCE_RUNS = 3
"""The smallest number of undisturbed runs for a comparison."""
RAW_MIB = 1024
FALSE_ALARMS = 0.01
"""Probability of a false alarm in a soak test, over all comparisons."""
LEAST = 1.5
"""Factor by which every number may differ, because other programs on a shared machine change a mean by a third."""
HOLD_S = (1.0, 6.0)
"""Range of the duration of a fault."""
LONGEST_S = 180
"""Longest time for all attempts at a run."""
MEASURING = "measure_run"
"""Name of the process that performs a run (`snakemake_executor_plugin_campaign.forked`)."""


@dataclass
class Soak:
    """A soak test in progress.

    Attributes
    ----------
    faults
        Regular expression for the names of faults to sample.
    undisturbed
        Runs without a fault.
    disturbed
        Runs with a fault under load, and the name of the fault.
    """

    project: Path
    bed: Testbed
    draw: random.Random
    log: Path
    faults: str
    undisturbed: list[Run] = field(default_factory=list)
    disturbed: dict[Run, str] = field(default_factory=dict)
    missed: collections.Counter[str] = field(default_factory=collections.Counter)
    digests: dict[str, str] = field(default_factory=dict)
    changed: set[str] = field(default_factory=set)
    hanging: list[str] = field(default_factory=list)
    deck: list[Case] = field(default_factory=list)

    @property
    def raw(self) -> Path:
        return self.project / "raw"

    @property
    def runs(self) -> list[Run]:
        return [*self.undisturbed, *self.disturbed]

    def snakemake(self, run: Run) -> "subprocess.Popen[bytes]":
        """Start Snakemake for a run in its own process group, as a terminal does."""
        with self.log.open("a") as out:
            return subprocess.Popen(
                [sys.executable, "-m", "snakemake", f"raw/{run.path}/run.json"],
                cwd=self.project,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )

    def wait(self, process: "subprocess.Popen[bytes]", run: Run) -> None:
        """Wait until Snakemake ends. If Snakemake does not end in time, kill and report it."""
        try:
            process.wait(LONGEST_S)
        except subprocess.TimeoutExpired:
            self.hanging.append(f"{run}: no end after {LONGEST_S} s")
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def note_records(self) -> None:
        """Compute digests of all records, and collect the files that have changed."""
        self.changed |= set(checks.changed(self.digests, self.raw))
        self.digests = checks.digests(self.raw) | self.digests

    def measure(self, run: Run) -> None:
        """Measure a run without a fault. Snakemake repeats the run if other programs disturb the run."""
        self.wait(self.snakemake(run), run)

    def pair(self, deployments: Sequence[tuple[str, str]], number: int) -> None:
        """Measure a pair of runs of a deployment, with a random fault. All faults are sampled equally often."""
        if not self.deck:
            suts = {sut for sut, _ in deployments}
            self.deck = [
                case
                for case in (*CASES, *COMPETITION)
                if re.search(self.faults, case.name) and (case.sut is None or case.sut in suts)
            ]
            self.draw.shuffle(self.deck)
        case = self.deck.pop()
        fitting = [deployment for deployment in deployments if case.sut in (None, deployment[0])]
        sut, mode = fitting[number % len(fitting)]
        first, second = (
            Run("local", sut, mode, 1, THREADS, CPS, 2 * number + rep) for rep in (1, 2)
        )
        if self.draw.random() < 0.5:
            self.plain(first)
            self.faulty(second, case)
        else:
            self.faulty(first, case)
            self.plain(second)
        self.note_records()

    def plain(self, run: Run) -> None:
        """Measure an undisturbed run for the reference."""
        self.measure(run)
        self.undisturbed.append(run)

    def faulty(self, run: Run, case: Case) -> None:
        """Measure a run with a fault under load."""
        delay_s, hold_s = self.draw.uniform(0, DURATION_S / 2), self.draw.uniform(*HOLD_S)
        process = self.snakemake(run)
        deadline = time.monotonic() + LONGEST_S
        while not pids(LOAD) and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.05)
        time.sleep(delay_s)
        target = process.pid if case.through_snakemake else self.measuring()
        try:
            with case.inject(Target(target, self.raw, self.bed)):
                time.sleep(hold_s)
        except CannotInjectError as error:
            self.missed[f"{case.name} ({error})"] += 1
        except (ValueError, IndexError, AssertionError, OSError, subprocess.CalledProcessError):
            # The run, or the process that the fault needs, ended before the fault.
            self.missed[case.name] += 1
        self.disturbed[run] = case.name
        self.wait(process, run)
        if not record.is_recorded(self.raw, run):
            # Measure the run again, as a user does after Snakemake was killed or gave up.
            self.measure(run)

    def measuring(self) -> int | None:
        """Return the id of the process that performs a run, or None between runs."""
        listing = subprocess.run(["pgrep", "-x", MEASURING], capture_output=True, text=True)
        return next(map(int, listing.stdout.split()), None)


@contextmanager
def small_disk(folder: Path) -> Iterator[None]:
    """Put a folder on its own small disk, so that faults do not fill the machine's disk. Keep the files at the end."""
    folder.mkdir()
    options = f"size={RAW_MIB}m,mode=755"
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "none", str(folder)], check=True)
    kept = folder.with_name("kept")
    try:
        yield
    finally:
        try:
            shutil.copytree(folder, kept, symlinks=True)
        finally:
            subprocess.run(["umount", "--lazy", str(folder)], check=True)
        folder.rmdir()
        kept.rename(folder)


def numbers(folder: Path, document: RunDocument) -> dict[str, float]:
    """Return the means of a run in µs, by name, which a fault must not falsify. Without a probe, K_rcv is missing."""
    calls = read_calls(folder / "uac.calls.zst")
    answered = calls[calls["t_ok_invite"] > 0]
    setup_ns = answered["t_ok_invite"].astype("i8") - answered["t_invite"].astype("i8")
    means = {
        "call set-up": float(np.mean(setup_ns)) / 1e3 - 1e3 * document.load.ring_time_ms,
        "CPU a message": document.proxy.cpu_ns / document.ledger.to_sps.received / 1e3,
    }
    if document.probe.mode != "off":
        records = read_trace(folder / record.TRACE_FILE).records
        taken = records[(records["event"] == Event.MESSAGE) & (records["t_arr"] > 0)]
        waited_ns = taken["t_sip_in"].astype("i8") - taken["t_arr"].astype("i8")
        means["K_rcv"] = float(np.mean(waited_ns)) / 1e3
    return means


@dataclass(frozen=True)
class Measured:
    """A recorded run and the means that the soak test checks."""

    document: RunDocument
    numbers: dict[str, float]

    @property
    def grade(self) -> str:
        return self.document.verdict.grade

    @property
    def untrue(self) -> list[str]:
        """Return the contents of the record that must be wrong at a low load, such as an invalid grade or drops."""
        calls, ledger = self.document.generator, self.document.ledger
        facts = {
            "calls not completed": self.document.load.calls - calls.calls_completed,
            "ledger residual": ledger.residual,
            "drops far below the knee": ledger.to_sps.refused,
        }
        if self.grade == INVALID:
            return ["graded invalid, and recorded"]
        return [
            f"{fact}: {value}" for fact, value in facts.items() if value and self.grade == VALID
        ]


def read_all(raw: Path, runs: Sequence[Run]) -> dict[Run, Measured]:
    """Read the records of runs, and skip runs without a record."""
    measured = {}
    for run in runs:
        if record.is_recorded(raw, run):
            document = read_run(raw / run.path)
            measured[run] = Measured(document, numbers(raw / run.path, document))
    return measured


def half_width(references: Sequence[Sequence[float]], runs: int, level: float) -> float:
    """Return half the width of the prediction interval for the logarithm of a number of one more run.

    Parameters
    ----------
    references
        The numbers of the undisturbed runs, per deployment. Each deployment has few runs, so the function estimates one
        common spread. Other programs on the machine cause the spread of the numbers.
    runs
        Number of undisturbed runs of the deployment.
    level
        Probability that the run lies outside the interval.
    """
    residuals = np.concatenate([np.log(values) - np.log(values).mean() for values in references])
    freedom = residuals.size - len(references)
    spread = math.sqrt(float(residuals @ residuals) / freedom * (1 + 1 / runs))
    return max(math.log(LEAST), float(stats.t.ppf(1 - level / 2, freedom)) * spread)


def false_numbers(
    undisturbed: dict[Run, Measured], disturbed: dict[Run, Measured]
) -> tuple[list[str], list[str]]:
    """Compare the disturbed valid runs with the undisturbed valid runs of their deployments.

    Returns
    -------
    list of str
        One line per false number.
    list of str
        One line per deployment and number with the basis of the comparison.
    """
    wrong = [
        f"{run}: {fact}"
        for run, measured in (undisturbed | disturbed).items()
        for fact in measured.untrue
    ]
    basis = []
    comparable: dict[str, list[tuple[str, list[float], dict[Run, float]]]] = {}
    for deployment in DEPLOYMENTS:
        quiet, hit = (
            {
                run: measured.numbers
                for run, measured in runs.items()
                if (run.sut, run.mode) == deployment and measured.grade == VALID
            }
            for runs in (undisturbed, disturbed)
        )
        title = "/".join(deployment)
        if len(quiet) < REFERENCE_RUNS or not hit:
            if quiet or hit:
                counts = f"{len(quiet)} undisturbed and {len(hit)} disturbed valid runs"
                basis.append(f"{title}: {counts}, not compared")
            continue
        for name in next(iter(hit.values())):
            reference = [means[name] for means in quiet.values()]
            values = {run: means[name] for run, means in hit.items()}
            comparable.setdefault(name, []).append((title, reference, values))
    if not comparable:
        wrong.append("no disturbed run could be compared; make the soak longer")
    compared = sum(len(values) for groups in comparable.values() for *_, values in groups)
    for name, groups in comparable.items():
        references = [reference for _, reference, _ in groups]
        for title, reference, values in groups:
            half = half_width(references, len(reference), FALSE_ALARMS / compared)
            middle = math.exp(float(np.log(reference).mean()))
            low, high = middle * math.exp(-half), middle * math.exp(half)
            basis.append(
                f"{title}: {name}: {len(reference)} undisturbed valid runs {min(reference):.1f} to "
                f"{max(reference):.1f} µs, {len(values)} disturbed valid runs {min(values.values()):.1f} to "
                f"{max(values.values()):.1f} µs, allowed {low:.1f} to {high:.1f} µs"
            )
            wrong += [
                f"{run}: {name} {value:.1f} µs, allowed {low:.1f} to {high:.1f} µs"
                for run, value in values.items()
                if not low <= value <= high
            ]
    return wrong, basis


def show_faults(state: Soak, disturbed: dict[Run, Measured]) -> None:
    """Print, per fault, the number of runs by result, and the reasons of refused and suspect runs."""
    print(
        f"faults: {len(state.disturbed)} runs; columns: refused at first, suspect, valid; reasons"
    )
    for name in sorted(set(state.disturbed.values())):
        runs = [run for run, fault in state.disturbed.items() if fault == name]
        attempts = record.failed_attempts(state.raw, runs)
        refused = {attempt.run for attempt in attempts}
        grades = [disturbed[run].grade for run in runs if run in disturbed and run not in refused]
        causes = [cause[:100] for attempt in attempts for cause in attempt.causes]
        causes += [
            finding.rule
            for run in runs
            if run in disturbed
            for finding in disturbed[run].document.verdict.broken
        ]
        counts = (len(refused), grades.count(SUSPECT), grades.count(VALID))
        print(
            f"  {counts[0]:3d} {counts[1]:3d} {counts[2]:3d}  {name}: {', '.join(sorted(set(causes))) or '-'}"
        )
    for name, count in state.missed.most_common():
        print(f"  {count:3d} times the run had ended, or this machine lacks a feature: {name}")


def prepare(folder: Path, seed: int, faults: str) -> Soak:
    """Make the scratch project, and return the initial state of the soak test."""
    settings = checks.make_project(
        folder, timing=True, duration_s=DURATION_S, warmup_s=0.2, drain_s=1.0
    )
    document = yaml.safe_load(settings.read_text())
    document["crossover"] |= {"mode_s": MODE_S}
    settings.write_text(yaml.safe_dump(document))
    draw = random.Random(seed)  # noqa: S311
    return Soak(
        settings.parent.parent, load_testbed("local"), draw, folder / "snakemake.log", faults
    )


def soak(minutes: float, seed: int, faults: str, folder: Path) -> bool:
    """Run the soak test, print the results, and return whether all checks hold."""
    state = prepare(folder, seed, faults)
    count = min(len(DEPLOYMENTS), max(1, round(minutes / MINUTES_A_DEPLOYMENT)))
    deployments = state.draw.sample(DEPLOYMENTS, count)
    failed: dict[str, Collection[str]] = {}
    with small_disk(state.raw):
        local.take_down()
        local.ensure_up(state.bed)
        try:
            plain = Run("local", "kamailio-udp", "default", 1, THREADS, CPS, 1000)
            state.measure(plain)
            if not record.is_recorded(state.raw, plain):
                print("soak: FAILED: the first plain run did not succeed; see snakemake.log")
                return False
            time.sleep(1)
            before = checks.host_state()
            end = time.monotonic() + minutes * 60
            number = 0
            while time.monotonic() < end:
                state.pair(deployments, number)
                number += 1
            failed["the host is not as before"] = checks.unlike(before, settle_s=20)
            state.measure(last := Run("local", "kamailio-udp", "default", 1, THREADS, CPS, 999))
            failed["a plain run did not succeed"] = [
                str(run) for run in (plain, last) if not record.is_recorded(state.raw, run)
            ]
            state.note_records()
            failed["a Snakemake did not end"] = state.hanging
            failed["records changed"] = sorted(state.changed)
            verified = verify(state.raw)
            failed["a record is damaged"] = [] if verified.intact else list(verified.lines)
            quiet, hit = (
                read_all(state.raw, state.undisturbed),
                read_all(state.raw, [*state.disturbed]),
            )
            failed["numbers are false"], basis = false_numbers(quiet, hit)
            print(f"soak: {minutes:g} min, {number} pairs of runs at {CPS} cps, seed {seed}")
            grades = collections.Counter(measured.grade for measured in quiet.values())
            refused = len(record.failed_attempts(state.raw, state.undisturbed))
            print(
                f"undisturbed: {len(state.undisturbed)} runs, {grades[VALID]} valid, {grades[SUSPECT]} suspect, "
                f"{refused} attempts refused because the machine was busy"
            )
            show_faults(state, hit)
        finally:
            local.take_down()
    for line in basis:
        print(line)
    for check, failures in failed.items():
        for failure in failures:
            print(f"FAILED: {check}: {failure}")
    held = not any(failed.values())
    print(f"soak: {'all checks passed' if held else 'FAILED'}")
    return held


def main() -> None:
    assert __doc__ is not None
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 2**32)
    parser.add_argument(
        "--faults", default="", help="regular expression for the names of faults; default: all"
    )
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    folder = Path(tempfile.mkdtemp(prefix="sipsched-soak-"))
    held = False
    # Raise an exception on SIGTERM, so that a stopped soak test also keeps its records and stops the testbed.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("soak: stopped by SIGTERM"))
    try:
        held = soak(options.minutes, options.seed, options.faults, folder)
    finally:
        if held:
            shutil.rmtree(folder)
        else:
            print(f"records and logs: {folder}")
    sys.exit(not held)


if __name__ == "__main__":
    main()
