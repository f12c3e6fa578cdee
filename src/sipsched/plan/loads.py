"""Settings for the loads of a study: how loads are chosen, searched and repeated."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Annotated, Literal

from msgspec import Meta

from sipsched.errors import StableError
from sipsched.plan.keys import Cps, Repetitions, Share

WIDEST_BRACKET = 1.25
"""Largest ratio of two loads, one above and one below the drop rate's limit, for an interpolation between the two."""


@dataclass(frozen=True, order=True)
class Capacity:
    """The accuracy of a search for the capacity. The two bounds that the search finds are the loads of a study."""

    limit: Annotated[
        float,
        Meta(ge=0.0001, lt=1, description="Packet drop rate at which capacity ends, such as 0.01."),
    ]
    relative_width: Annotated[
        float,
        Meta(
            ge=0.001,
            le=0.5,
            description="Distance of the two loads around the capacity, as a share of the upper load, such as 0.02.",
        ),
    ]

    @property
    def name(self) -> str:
        """Return the name of the file that records a search with this accuracy, without the file extension."""
        return f"capacity~{self.limit}~{self.relative_width}"

    @classmethod
    def from_name(cls, name: str) -> "Capacity":
        """Read the accuracy of a search from the name of its record.

        Raises
        ------
        StableError
            No search for a capacity has this name.
        """
        try:
            word, limit, width = name.split("~")
            goal = cls(float(limit), float(width))
        except ValueError:
            word, goal = "", cls(0, 0)
        if word != "capacity" or goal.name != name:
            raise StableError(
                f"{name}.json: no search has this name; expected {CROSSING} or capacity~LIMIT~WIDTH"
            )
        return goal

    def loads(self, lower_cps: int, upper_cps: int) -> tuple[int, ...]:
        """Return the loads of a study: the lower and the upper bound that a search found for the capacity."""
        return tuple(sorted({lower_cps, upper_cps}))


CROSSING = "crossing"
"""Name of the search whose result determines the loads of other measurements."""


@dataclass(frozen=True)
class Load:
    """The settings of the load that are equal in all runs, such as its duration and the length of calls."""

    law: Annotated[
        Literal["exponential", "constant"],
        Meta(
            description="Distribution of the inter-arrival times. The times are sampled before the run, from a seed "
            "that depends only on cps and repetition."
        ),
    ]
    duration_s: Annotated[
        float,
        Meta(gt=0, le=3600, description="Seconds of load; a run offers duration_s × cps calls."),
    ]
    warmup_s: Annotated[
        float,
        Meta(
            ge=0,
            le=600,
            description="Seconds of load before the measurement starts. No figure includes these seconds.",
        ),
    ]
    ring_time_ms: Annotated[
        int,
        Meta(
            ge=0,
            le=60_000,
            description="Milliseconds between 180 and 200 at the UAS. If this time is short, more 200 responses "
            "overtake their 180 in the SPS.",
        ),
    ]
    hold_time_ms: Annotated[
        int,
        Meta(
            ge=0,
            le=600_000,
            description="Milliseconds between ACK and BYE at the UAC. If this time is short, more BYE requests "
            "overtake their ACK in the SPS.",
        ),
    ]
    hold_law: Annotated[
        Literal["fixed", "exponential"],
        Meta(
            description="fixed: every call is held for hold_time_ms. exponential: hold times are sampled with mean "
            "hold_time_ms, from the seed of the run."
        ),
    ]
    retransmissions: Annotated[
        bool,
        Meta(
            description="Whether UAC and UAS retransmit (RFC 3261, T1 = 500 ms). Without retransmissions, a lost "
            "message is a lost call."
        ),
    ]
    drain_s: Annotated[
        float,
        Meta(
            gt=0,
            le=64,
            description="Seconds after the start of the last call, during which open calls can finish.",
        ),
    ]
    setup_limit_ms: Annotated[
        int,
        Meta(
            ge=1,
            le=60_000,
            description="Longest time from INVITE to its 200 in milliseconds, without the ring time. A call that "
            "takes longer is late.",
        ),
    ] = 500


CallCount = Annotated[int, Meta(ge=1, le=10_000_000)]
NumberOfCores = Annotated[str, Meta(pattern=r"\A[1-9][0-9]*\Z")]


@dataclass(frozen=True)
class DeclaredLoad(Load):
    """The load in the configuration file, with its length as a number of seconds or as a number of calls."""

    calls: Annotated[
        CallCount | Mapping[NumberOfCores, CallCount] | None,
        Meta(
            description="Instead of duration_s: calls that a run offers, as a number, or per number of cores, such as "
            '{"1": 200000, "2": 100000}. A run uses the entry with the largest listed number of cores that does not '
            "exceed the run's cores. The key has no effect on runs that compare modes."
        ),
    ] = None

    @property
    def in_seconds(self) -> Load:
        """Return the settings of this load without the number of calls, so that `duration_s` is the length."""
        return Load(**{field.name: getattr(self, field.name) for field in fields(Load)})

    @property
    def calls_by_cores(self) -> dict[int, int]:
        """Return the number of calls per run, by number of cores; empty if the length is a number of seconds."""
        if self.calls is None:
            return {}
        if isinstance(self.calls, int):
            return {1: self.calls}
        return {int(cores): calls for cores, calls in self.calls.items()}


@dataclass(frozen=True)
class Search:
    """The settings of the search for the load at which the drop rate passes its limit."""

    lowest_cps: Annotated[Cps, Meta(description="The lowest load that is tried.")]
    highest_cps: Annotated[Cps, Meta(description="The highest load that is tried.")]
    relative_width: Annotated[
        Share, Meta(description="Width of the resulting interval, as a share of its upper end.")
    ]
    trial_s: Annotated[float, Meta(gt=0, le=60, description="Seconds of one trial.")]
    trials_s: Annotated[
        float,
        Meta(
            gt=0,
            le=600,
            description="Total seconds of trials that a load needs to become a bound of the interval.",
        ),
    ]
    limit_s: Annotated[
        float,
        Meta(
            gt=0,
            le=3600,
            description="The longest time of a search in seconds, or in seconds of guest time on a testbed of kind "
            "virtual.",
        ),
    ]


@dataclass(frozen=True)
class AroundCrossing:
    """The loads of a study as multiples of a step, near the load at which the drop rate passes its limit.

    Attributes
    ----------
    step_cps
        Distance between two loads. The papers use 200 cps.
    steps
        Positions of the loads. 0 is the highest multiple of `step_cps` that the search found below the limit, and 1 is
        the next multiple. The two loads around the crossing, and the multiples between them, are always included.
        Between these two loads, `step_cps` is halved until a step is at most 25 % of the lower load (`WIDEST_BRACKET`).
    """

    mode: str
    step_cps: int
    steps: tuple[int, ...]

    def loads(self, lower_cps: int, upper_cps: int) -> tuple[int, ...]:
        """Return the study's loads near the drop limit, in ascending order, in cps.

        Parameters
        ----------
        lower_cps, upper_cps
            The highest load that the search found below the limit, and the lowest load above the limit.
        """
        # Count the steps from the lower load, not from the middle of the interval.
        # Drop rates near the capacity vary, and the search accepts a load if one trial's drop rate was below the limit.
        # So the mean drop rate of many runs exceeds the limit already near the lower load, or even below the lower
        # load.
        loads = {self.step_cps * (lower_cps // self.step_cps + step) for step in self.steps}
        near = self.step_cps
        while near > max(1, (WIDEST_BRACKET - 1) * (near * (lower_cps // near))):
            near //= 2
        below, above = near * (lower_cps // near), near * -(-upper_cps // near)
        loads |= set(range(below, above + 1, near))
        return tuple(sorted(load for load in loads if load > 0))


@dataclass(frozen=True)
class SharesOfCrossing:
    """The loads of a study as shares of the highest load that a search found below the drop limit."""

    mode: str
    shares: tuple[float, ...]

    def loads(self, lower_cps: int, upper_cps: int) -> tuple[int, ...]:
        """Return the loads of the study, rounded to multiples of ten."""
        return tuple(sorted({max(1, round(lower_cps * share / 10)) * 10 for share in self.shares}))


SearchedLoads = AroundCrossing | SharesOfCrossing | Capacity
"""Settings of a study whose loads depend on a search on the testbed."""


@dataclass(frozen=True)
class Precision:
    """The precision of a study, which repeats runs until a confidence interval is narrow enough."""

    of: Annotated[
        str,
        Meta(
            pattern=r"\A(k_rcv|k_stack|k_sockq|k_copy|t_sip|t_sip_off|k_snd)_(mean|p50|p95|p99)\Z",
            description="The statistic of a run that needs a narrow confidence interval: k_rcv, k_stack, k_sockq, "
            "k_copy, t_sip, t_sip_off or k_snd, with _mean, _p50, _p95 or _p99.",
        ),
    ]
    relative: Annotated[
        float,
        Meta(
            gt=0,
            le=1,
            description="The goal: half of the interval's width, divided by the estimate, such as 0.05.",
        ),
    ]
    at_least: Annotated[
        int, Meta(ge=2, le=1000, description="Repetitions before the first interim analysis.")
    ]
    at_most: Annotated[Repetitions, Meta(description="The largest number of repetitions.")]

    @property
    def looks(self) -> tuple[int, ...]:
        """Return the numbers of repetitions after which the interval is checked.

        Each number is 1.5 times the previous one.
        """
        numbers = [self.at_least]
        while numbers[-1] < self.at_most:
            numbers.append(min(self.at_most, numbers[-1] + -(-numbers[-1] // 2)))
        return tuple(numbers)
