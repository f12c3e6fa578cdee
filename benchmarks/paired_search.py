"""Measure the ratios of the capacities of two or more systems, with trials of all systems during the same minutes.

A system is SUT:CORES:THREADS, such as kamailio-udp:1:4. A round has one trial of each system, in random order. Slow
changes of the machine's speed therefore hardly affect the ratio. Each trial starts a new proxy. The carried load of a
trial is the number of messages that the proxy received per second, divided by the messages of a call. The next trial of
the system offers the carried load divided by 1 minus the intended drop rate, so each trial is slightly overloaded. The
capacity that a trial shows is the carried load divided by 1 minus the limit of the drop rate. A round counts if no
trial was disturbed, and if every trial dropped more messages than the limit, and less than half of its messages. The
ratio is the mean over the rounds on the log scale. The interval of the ratio is the interval on the pages, which comes
from random signs of the rounds.

`--simulate` measures nothing, and samples machines with a varying speed. The option counts how often the interval
contains the true ratio, and how often the intervals of two searches overlap.
"""

import argparse
import itertools
import math
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from sipsched.analysis.crossover import Effect, effect
from sipsched.errors import SipschedError, TransientError
from sipsched.measure.bracketing import Trial
from sipsched.measure.crossing_search import _offer
from sipsched.measure.serving import Serving
from sipsched.measure.tuning import tuned
from sipsched.plan.config import Config, load_config
from sipsched.plan.modes import find_mode, load_modes
from sipsched.plan.run import Point
from sipsched.records.record import UnfinishedRecord
from sipsched.testbed.inventory import load_testbed
from sipsched.testbed.session import open_hosts
from sipsched.validity.rules import SHARED_MACHINE, Limits

LIMIT = 0.01
AIM = 0.2
"""Intended drop rate of the next trial, at which the trial drops messages even if the machine becomes 20 % faster."""
MOST = 0.5
"""Drop rate above which a trial does not count, because the proxy was overloaded too much."""
STEP = 1.25
"""Factor by which the load rises after a trial that dropped no messages."""
MESSAGES_A_CALL = 6
TRIAL_S = 3.0

OfferTo = Callable[[int, int], Trial | None]
"""A function that performs a trial of a system (by its index) at a load (calls per second).

The function returns None if the trial was disturbed.
"""


@dataclass(frozen=True)
class Round:
    """One trial of each system, in the order of the systems."""

    trials: tuple[Trial, ...]

    @property
    def counts(self) -> bool:
        """Whether every trial overloaded its system slightly, so that the handled load is the system's capacity."""
        return all(LIMIT < trial.pdr < MOST for trial in self.trials)

    @property
    def capacities(self) -> list[float]:
        """The capacity in calls per second that each trial shows; NaN if the round does not count."""
        return [carried(trial) / (1 - LIMIT) if self.counts else math.nan for trial in self.trials]


def carried(trial: Trial) -> float:
    """Return the load in calls per second that the proxy handled in a trial, without the dropped messages."""
    return trial.received / MESSAGES_A_CALL / trial.duration_s


def search(
    offer: OfferTo, first: Sequence[int], rng: np.random.Generator, more: Callable[[], bool]
) -> list[Round]:
    """Perform rounds of trials, and return the rounds.

    Parameters
    ----------
    offer
        Function that performs a trial.
    first
        Load of the first trial of each system in cps.
    more
        Function that returns whether another round may begin.
    """
    loads, rounds = list(first), []
    while more():
        trials: dict[int, Trial] = {}
        for system in rng.permutation(len(loads)):
            trial = offer(int(system), loads[system])
            if trial is not None:
                trials[int(system)] = trial
        if len(trials) == len(loads):
            rounds.append(Round(tuple(trials[system] for system in range(len(loads)))))
        for system, trial in trials.items():
            dropped = trial.pdr > LIMIT
            loads[system] = round(carried(trial) / (1 - AIM) if dropped else trial.cps * STEP)
    return rounds


def ratio(rounds: Sequence[Round], reference: int = 0, other: int = 1) -> Effect:
    """Return the logarithm of a system's capacity divided by the capacity of the reference system."""
    return effect([np.array([each.capacities for each in rounds])], reference, other)


def words(found: Effect) -> str:
    interval = found.interval
    ends = f"{math.exp(interval.low):.3f} to {math.exp(interval.high):.3f}"
    half = (interval.high - interval.low) / 2
    return f"{math.exp(interval.estimate):.3f} ({ends}), half-width {100 * half:.1f} %, {interval.n} rounds"


# ---- on the testbed ----


def point_of(text: str) -> Point:
    sut, cores, threads = text.split(":")
    return Point("local", sut, "default", int(cores), int(threads))


def measure(options: argparse.Namespace) -> None:
    config, points = campaign(options), [point_of(text) for text in options.systems]
    testbed, until = load_testbed("local"), time.monotonic() + options.limit_s
    rng = np.random.default_rng(options.seed)
    longest_s = 0.0
    began = time.monotonic()

    def more() -> bool:
        nonlocal longest_s, began
        now = time.monotonic()
        longest_s, began = max(longest_s, now - began), now
        return now + longest_s < until

    with tempfile.TemporaryDirectory() as scratch, open_hosts(testbed, "a paired search") as hosts:
        record = UnfinishedRecord.begin(Path(scratch), points[0].run(0, 0))
        servings = [Serving(hosts, point, config, record, options.limit_s + 60) for point in points]
        servings[0].clear_hosts()

        def offer(system: int, cps: int) -> Trial | None:
            point = points[system]
            mode = find_mode(point.mode, load_modes())
            with tuned(hosts.sps, testbed, mode, point.cores, point.threads) as state:
                rep = -int(rng.integers(1, 1_000_000))
                try:
                    trial = _offer(
                        servings[system], state, config.validity, cps, options.trial_s, rep
                    )
                except TransientError as error:
                    print(error, file=sys.stderr, flush=True)
                    return None
            counted = trial.account.account if trial.account else None
            others = f"{counted.parts.competitor_share:.1%}" if counted else "not counted"
            print(
                f"{point.sut} on {point.cores} cores: {trial.pdr:.2%} dropped at {cps} cps; other programs {others}",
                flush=True,
            )
            return trial

        rounds = search(offer, [options.first] * len(points), rng, more)
    for reference, other in itertools.combinations(range(len(points)), 2):
        found = words(ratio(rounds, reference, other))
        print(f"{options.systems[other]} / {options.systems[reference]}: {found}")
    for system, name in enumerate(options.systems):
        loads = [each.capacities[system] for each in rounds if each.counts]
        if loads:
            print(f"  {name}: {np.median(loads):.0f} cps ({min(loads):.0f} to {max(loads):.0f})")


def campaign(options: argparse.Namespace) -> Config:
    config = load_config()
    limits = {**config.validity, "unexpected_messages": Limits(math.inf, math.inf)}
    if options.disturbed:
        limits |= dict.fromkeys(
            (*SHARED_MACHINE, "uas_lateness_p99_us"), Limits(math.inf, math.inf)
        )
    # switch retransmissions off, because the carried load would count a retransmitted message twice
    load = replace(config.load, retransmissions=False, warmup_s=0.5, drain_s=0.5)
    return replace(config, load=load, validity=limits)


# ---- sampled ----


@dataclass
class SampledMachine:
    """A machine whose speed changes from trial to trial, with two systems of known capacities."""

    rng: np.random.Generator
    wander: float
    rounds: int
    true: tuple[float, float] = (1500.0, 2400.0)
    log_speed: float = 0.0

    def more(self) -> bool:
        """Return whether another round may begin, and count each round that may begin."""
        self.rounds -= 1
        return self.rounds >= 0

    def offer(self, system: int, cps: int) -> Trial:
        """Sample the result of a trial of a system at a load of `cps`."""
        self.log_speed = 0.99 * self.log_speed + self.wander * self.rng.standard_normal()
        luck = 0.05 * self.rng.standard_normal()
        capacity = self.true[system] * math.exp(self.log_speed + luck)
        messages = int(self.rng.poisson(MESSAGES_A_CALL * cps * TRIAL_S))
        refused = round(messages * max(0.0, 1 - capacity / cps))
        return Trial(cps, TRIAL_S, messages - refused, refused)


def simulate(searches: int, rounds: int) -> None:
    for wander in (0.0, 0.02, 0.05):
        rng = np.random.default_rng(1)
        found = []
        for _ in range(2 * searches):
            machine = SampledMachine(rng, wander, rounds)
            found.append(ratio(search(machine.offer, (1500, 1500), rng, machine.more)).interval)
        truth = math.log(machine.true[1] / machine.true[0])
        covered = np.mean([each.low <= truth <= each.high for each in found])
        half = np.mean([(each.high - each.low) / 2 for each in found])
        pairs = zip(found[::2], found[1::2], strict=True)
        agree = np.mean([one.low <= two.high and two.low <= one.high for one, two in pairs])
        print(
            f"speed changes by {100 * wander:g} % per trial: coverage {100 * covered:.1f} %, half-width "
            f"{100 * half:.1f} %, two searches agree in {100 * agree:.0f} % of {searches} pairs",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "systems", nargs="*", help="systems, such as kamailio-udp:1:4 kamailio-udp:2:4"
    )
    parser.add_argument(
        "--simulate", action="store_true", help="sample searches, and measure nothing"
    )
    parser.add_argument("--searches", type=int, default=100, help="pairs of sampled searches")
    parser.add_argument("--rounds", type=int, default=40, help="rounds of a sampled search")
    parser.add_argument("--limit-s", type=float, default=600, help="seconds for all trials")
    parser.add_argument("--trial-s", type=float, default=TRIAL_S)
    parser.add_argument(
        "--first", type=int, default=1500, help="load of the first trial of each system, in cps"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--disturbed", action="store_true", help="use disturbed trials too")
    options = parser.parse_args()
    if options.simulate:
        simulate(options.searches, options.rounds)
        return
    if len(options.systems) < 2:
        parser.error("name two systems or more")
    try:
        measure(options)
    except SipschedError as error:
        print(f"paired_search: {error}", file=sys.stderr)


if __name__ == "__main__":
    main()
