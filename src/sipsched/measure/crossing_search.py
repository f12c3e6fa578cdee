"""Where a proxy starts to drop: trials that close in on the load of a packet drop rate."""

from collections.abc import Callable
from dataclasses import dataclass

from MLRsearch import (
    AbstractMeasurer,
    Config,
    MeasurementResult,
    MultipleLossRatioSearch,
    SearchGoal,
)

from sipsched.errors import StableError, TransientError
from sipsched.plan.config import Search


@dataclass(frozen=True)
class Trial:
    """A load and what the SPS's socket made of it.

    Attributes
    ----------
    cps
        Offered calls per second.
    duration_s
        For how long.
    received, refused
        SIP messages that the socket took, and that it refused (RcvbufErrors).
    """

    cps: int
    duration_s: float
    received: int
    refused: int

    @property
    def pdr(self) -> float:
        """Packet drop rate: refused / reached."""
        reached = self.received + self.refused
        return self.refused / reached if reached else 0.0


@dataclass(frozen=True)
class Bracket:
    """Two loads with the crossing of the limit between them.

    Attributes
    ----------
    lower_cps
        The highest load found at or under the limit.
    upper_cps
        The lowest load found above it.
    trials
        All of them, in their order.
    """

    lower_cps: int
    upper_cps: int
    trials: tuple[Trial, ...]


def find_crossing(
    offer: Callable[[int, float], Trial], pdr_limit: float, search: Search
) -> Bracket:
    """Search for the load at which the packet drop rate crosses a limit.

    Multiple Loss Ratio search (Polák and Konstantynowicz, draft-ietf-bmwg-mlrsearch), from the library of
    that name: a load is a bound once trials of `trial_s` on it, at least `trials_s` together, agree by majority.

    Parameters
    ----------
    offer
        Offers a load in calls per second for some seconds.
    pdr_limit
        Packet drop rate, 0 to 1.
    search
        Range of loads, width and durations.

    Raises
    ------
    StableError
        The limit is exceeded at the lowest load, or not at the highest.
    TransientError
        No crossing within the time allowed: the trials contradict each other too often.
    """
    measurer = _Measurer(offer)
    goal = SearchGoal(
        loss_ratio=pdr_limit,
        exceed_ratio=0.5,
        relative_width=search.relative_width,
        initial_trial_duration=search.trial_s,
        final_trial_duration=search.trial_s,
        duration_sum=search.trials_s,
        preceding_targets=2,
        fail_fast=False,
    )
    settings = Config()
    settings.goals = [goal]
    settings.min_load = search.lowest_cps
    settings.max_load = search.highest_cps
    settings.search_duration_max = search.limit_s
    settings.warmup_duration = None
    try:
        result = MultipleLossRatioSearch(settings).search(measurer, debug=lambda text: None)[goal]
    except RuntimeError as error:
        raise TransientError(f"search for the crossing: {error}") from error
    lower, upper = result.relevant_lower_bound, result.relevant_upper_bound
    if lower is None or upper is None:
        where, bound = (
            ("at the lowest load", search.lowest_cps)
            if lower is None
            else ("not even at the highest load", search.highest_cps)
        )
        raise StableError(
            f"search for the crossing: more than {pdr_limit:.0%} is dropped {where}, {bound} cps; "
            "widen `search` in the configuration"
        )
    return Bracket(round(float(lower)), round(float(upper)), tuple(measurer.trials))


class _Measurer(AbstractMeasurer):  # type: ignore[misc]
    """The library's side of a trial."""

    def __init__(self, offer: Callable[[int, float], Trial]) -> None:
        self._offer = offer
        self.trials: list[Trial] = []

    def measure(self, intended_duration: float, intended_load: float) -> MeasurementResult:
        trial = self._offer(round(intended_load), intended_duration)
        self.trials.append(trial)
        return MeasurementResult(
            intended_duration=intended_duration,
            intended_load=intended_load,
            offered_count=trial.received + trial.refused,
            loss_count=trial.refused,
            # the library sums this up, and `trials_s` is about seconds of load
            duration_with_overheads=intended_duration,
        )
