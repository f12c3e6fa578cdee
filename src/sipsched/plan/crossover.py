"""Crossover runs, which compare modes within one run, and the random order and length of their windows.

The mode of a crossover run is a *comparison*: the names of its modes, joined by commas, as in `default,batch,fifo`.
The first mode is the reference. docs/methodology/crossover.md explains the method.
"""

import math
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Annotated, Any, Literal

from msgspec import Meta

from sipsched.errors import StableError
from sipsched.plan.keys import Share
from sipsched.plan.loads import Load
from sipsched.plan.modes import Mode, OtherInstance, Setting, find_mode, first_start, split_name
from sipsched.plan.sut import Deployment, Sut

SEPARATOR = ","
CALL_MARGIN_MS = 30
"""Time for the messages of a call. With ring time and hold time, this time is the longest duration of a call."""
LONG_HOLD = math.log(100)
"""99th percentile of exponential hold times, divided by their mean."""
SHORT_TAIL_S = 0.05
"""The value of `Design.call_tail_s` for calls of more than `WASHOUT_MAX_S`, and in records of older versions."""
RELAXATIONS = 3
"""Length of the washout (the excluded start of a window), in relaxation times of the queue.

After the washout, 5 % of older calls' influence remains.
"""
WASHOUT_MAX_S = 1.0
"""Longest washout that `auto` chooses."""
WASHOUT_LIMIT_S = 60
"""Longest washout that the configuration can set."""
WINDOW_MIN_S = 0.5
WINDOW_WASHOUTS = 5
"""Length of a window, in washouts. With this length, the washouts take up a fifth of the load."""
JITTER = 0.1
"""Largest relative change of the window length from one block to the next.

Because of the change, periodic timers cannot stay in step with the windows.
"""
UTILISATION_MAX = 0.97
BLOCKS_MIN = 6
"""Smallest number of blocks (groups of one window per mode) for a randomisation test at 5 %.

The smallest p-value of 6 blocks is 2 / 2^6 = 3 %.
"""

BEHIND_FRONT = "no probe can timestamp messages behind a front end"
"""The reason why a run cannot compare modes or instances of a proxy behind a front end."""
REFUSED: Mapping[Deployment, str] = {
    "front": BEHIND_FRONT,
    "dispatcher": BEHIND_FRONT,
    "listeners": "the kernel assigns the connections of each instance to its workers at random, so two equal "
    "instances differ",
}
"""Deployments whose instances cannot be compared within one run, with the reasons."""


@dataclass(frozen=True)
class Crossover:
    """The settings of all runs of a campaign that compare modes."""

    mode_s: Annotated[
        float,
        Meta(
            gt=0,
            le=3600,
            description="Seconds of load per mode, and for the sham. A comparison of two modes takes three times as "
            "long, because the sham takes as long as a mode.",
        ),
    ]
    window_s: Annotated[
        Annotated[float, Meta(gt=0, le=600)] | Literal["auto"],
        Meta(
            description="Length of a window in seconds. auto means 0.5 s, and more near the knee "
            "(docs/methodology/crossover.md)."
        ),
    ]
    washout_s: Annotated[
        Annotated[float, Meta(ge=0, le=WASHOUT_LIMIT_S)] | Literal["auto"],
        Meta(
            description="Excluded seconds at the start of each window. In runs that compare instances, at least the "
            "duration of a call. auto means the time after which calls of the previous window no longer affect the "
            "queue."
        ),
    ]
    retransmissions: Annotated[
        bool,
        Meta(
            description="The value of load.retransmissions for these runs. With retransmissions, a lost message "
            "affects several seconds of the load."
        ),
    ]
    steal_share: Annotated[
        Share,
        Meta(
            description="Limit of the share of the SPS's CPU time that the hypervisor takes in a window. If a "
            "window exceeds the limit, its block gets a smaller weight, because blocks with stolen time scatter more."
        ),
    ]


@dataclass(frozen=True)
class Instance:
    """A copy of the proxy program in a run, with the settings of this copy. A run can have several copies at once.

    Attributes
    ----------
    sut, threads
        Name of the SUT, and number of workers.
    cores
        Number of CPUs for the processes of the instance, counted from the first CPU of the SPS. None in older records,
        in which all instances run on the cores of the run.
    receive_buffer_bytes
        Size to which SO_RCVBUF of the instance's socket is set; None for the size in the SUT's configuration.
    start
        Number that distinguishes instances with equal settings.
    """

    sut: str
    threads: int
    cores: int | None = None
    receive_buffer_bytes: int | None = None
    start: int = 1


@dataclass(frozen=True)
class Instances:
    """The proxy instances of a run. All instances run during the whole run, each with its own port.

    Attributes
    ----------
    started
        The instances in the order of their ports. If a run compares instances, the last instance repeats the first
        instance for the sham, so the sham shows by how much two equal instances differ.
    of_mode
        Per mode of the run, the index in `started` of the instance that serves the mode.
    """

    started: tuple[Instance, ...]
    of_mode: tuple[int, ...]

    def of_window(self, window: "Window") -> int:
        """Return the index of the proxy instance that receives the calls of a window (a stretch in one mode)."""
        return len(self.started) - 1 if window.sham else self.of_mode[window.mode]


@dataclass(frozen=True)
class Window:
    """A part of a run during which the proxy runs in one scheduler mode.

    Attributes
    ----------
    block
        Number of the block. All windows of a block repeat the same calls.
    mode
        Index of the mode in the comparison.
    sham
        Whether the window repeats the reference mode, at a separate random position in the block.
    start_ns, length_ns
        Start and length on the clock of the schedule.
    """

    block: int
    mode: int
    sham: bool
    start_ns: int
    length_ns: int


@dataclass(frozen=True)
class Design:
    """The windows (stretches in one mode) of a run, and the utilisation and relaxation time that set their lengths.

    Attributes
    ----------
    modes
        Modes in the order of the comparison.
    window_s, washout_s
        Mean length of the windows, and length of the washout at the start of each window, in seconds.
    utilisation
        Share of the SPS's CPU time that the proxy used in the warm-up; None if no warm-up was measured.
    relaxation_s
        Relaxation time of the queue at this utilisation in seconds; None if no warm-up was measured.
    call_tail_s
        The part of the washout in which the calls of the previous window end, in seconds; None if the configuration
        sets the washout.
    """

    modes: tuple[str, ...]
    window_s: float
    washout_s: float
    windows: tuple[Window, ...]
    utilisation: float | None = None
    relaxation_s: float | None = None
    call_tail_s: float | None = SHORT_TAIL_S

    @property
    def end_ns(self) -> int:
        """Return the end of the last window in ns, counted from the start of the schedule."""
        last = self.windows[-1]
        return last.start_ns + last.length_ns

    @property
    def replays(self) -> int:
        """Return the number of windows in a block. The generator sends the same calls in each of these windows."""
        return len(self.modes) + 1


def is_comparison(mode: str) -> bool:
    """Return True if a mode's name is a list of modes that one run compares, such as `default,batch`."""
    return SEPARATOR in mode


def compared(mode: str) -> tuple[str, ...]:
    """Return the modes that a run compares, with the reference first. For a single mode, return only this mode."""
    return tuple(mode.split(SEPARATOR))


def instance_of(other: OtherInstance, sut: str, threads: int, cores: int) -> Instance:
    """Return the proxy instance of a compared mode, whose name can override the other arguments."""
    return Instance(
        other.sut or sut,
        other.threads or threads,
        other.cores or cores,
        other.receive_buffer_bytes,
        other.start or 1,
    )


def instances(modes: Sequence[Mode], sut: str, threads: int, cores: int) -> Instances:
    """Return the proxy instances that a run needs, one for each distinct set of settings.

    Parameters
    ----------
    modes
        Modes of the run, with the reference first.
    sut, threads, cores
        The run's own SUT, number of workers and number of cores, which the modes' names can override.
    """
    wanted = [instance_of(mode.other, sut, threads, cores) for mode in modes]
    started = list(dict.fromkeys(wanted))
    of_mode = tuple(map(started.index, wanted))
    if len(started) > 1:
        started.append(wanted[0])
    return Instances(tuple(started), of_mode)


def cores_of(mode: str, cores: int) -> tuple[int, ...]:
    """Return the number of cores that the proxy has in each mode of a run, with the reference mode first.

    Parameters
    ----------
    cores
        The run's own number of cores, which the modes' names can override.
    """
    return tuple(split_name(name)[1].cores or cores for name in compared(mode))


def compares_instances(mode: str) -> bool:
    """Return True if a run compares proxy instances with different settings, such as two numbers of workers."""
    return any(split_name(name)[1] != OtherInstance() for name in compared(mode))


def check_instances(
    mode: str, sut: Sut, suts: Mapping[str, Sut], where: str, *, within_run: bool = True
) -> None:
    """Raise an error if the modes in a mode's name need proxy instances that cannot be compared.

    Parameters
    ----------
    within_run
        Whether the instances are compared within a run. Otherwise, the trials of a search alternate between them, so
        the instances may differ in program and deployment.

    Raises
    ------
    StableError
        A SUT is not defined. Or the reference overrides a key of its instance. Or an instance overrides its receive
        buffer over TCP, or by the size that its SUT already has. Within a run: a SUT has another program, transport or
        number of connections than the reference, or its deployment is in `REFUSED`. In a search: a SUT uses TCP or a
        front end.
    """
    names = compared(mode)
    what = f"{where}: '{mode}'"
    if not within_run and is_comparison(mode):
        _check_searched(sut, what)
    for name in names:
        base, other, rest = split_name(name)
        if other == OtherInstance():
            continue
        if name == names[0]:
            raise StableError(
                f"{what}: the reference has the SUT, workers, cores and receive buffer of the study; "
                f"write '{'+'.join((base, *rest))}' and set suts, threads and cores"
            )
        if other.sut is not None and other.sut not in suts:
            raise StableError(
                f"{what}: '{other.sut}' is not defined under suts ({', '.join(sorted(suts))})"
            )
        second = suts[other.sut] if other.sut else sut
        if within_run:
            _check_within_run(sut, second, what)
        else:
            _check_searched(second, what)
        if other.receive_buffer_bytes and sut.over_tcp:
            raise StableError(
                f"{what}: {second.name} is TCP, and receive_buffer_bytes in a mode sets the buffer of a UDP socket; "
                "define a second SUT with another receive_buffer_bytes, and compare it with +sut=NAME"
            )
        if other.receive_buffer_bytes == second.receive_buffer_bytes:
            raise StableError(
                f"{what}: {second.name} already has a receive buffer of {second.receive_buffer_bytes} bytes; "
                "choose another size"
            )


def _check_within_run(sut: Sut, second: Sut, what: str) -> None:
    """Raise an error if a run cannot compare instances of two SUTs."""
    for one in (sut, second):
        if one.deployment in REFUSED:
            raise StableError(
                f"{what}: {one.name} has deployment {one.deployment}, and {REFUSED[one.deployment]}; measure "
                f"{one.name} in separate runs"
            )
    if (second.transport, second.connections) != (sut.transport, sut.connections):
        raise StableError(
            f"{what}: {sut.name} and {second.name} differ in transport or connections, and the generator uses "
            "the same for all instances; measure them in separate runs"
        )
    if second.proxy != sut.proxy:
        raise StableError(
            f"{what}: {sut.name} runs {sut.proxy}, {second.name} runs {second.proxy}; the probe finds the "
            "workers of one program, so measure two programs in separate runs"
        )


def _check_searched(sut: Sut, what: str) -> None:
    """Raise an error if a paired search cannot find the load that a SUT handles in an overload."""
    reason = ""
    if sut.over_tcp:
        reason = "over TCP, an overload delays calls instead of dropping messages"
    elif sut.deployment == "front":
        reason = "the kernel counts each message twice, at the front end and at an instance"
    if reason:
        raise StableError(
            f"{what}: {sut.name} has no comparable load, because {reason}; search its capacity in a study with single "
            "modes"
        )


def check(names: Iterable[str], declared: Mapping[str, Any]) -> None:
    """Raise an error if a mode or a list of modes cannot be measured.

    Raises
    ------
    StableError
        A mode is not declared, an override is wrong, or a single mode switches the probe. Or a list names a mode twice,
        or has a mode with the override `start=N`, but lacks the same mode without this override.
    """
    for name in names:
        several = compared(name)
        modes = [find_mode(mode, declared) for mode in several]
        if len(several) == 1 and Setting.RECORDING in modes[0].overrides:
            raise StableError(
                f"mode '{name}': {Setting.RECORDING} can only be switched in a comparison, as in "
                f"'default,default+{Setting.RECORDING}=off'; for a run without the probe, set probe: off in its SUT"
            )
        lonely = next((mode for mode in several if first_start(mode) not in several), None)
        if lonely is not None:
            raise StableError(
                f"comparison '{name}': '{lonely}' is a further start of '{first_start(lonely)}', which the comparison "
                "lacks; add it"
            )
        twice = next((mode for mode in several if several.count(mode) > 1), None)
        if twice is not None:
            raise StableError(
                f"comparison '{name}': '{twice}' is named twice; name it once, each block has a sham window of "
                "its reference anyway"
            )


def duration_s(mode: str, crossover: Crossover) -> float:
    """Return the duration of the load in seconds for a run that compares modes."""
    return crossover.mode_s * (len(compared(mode)) + 1)


def call_tail_s(load: Load) -> float:
    """Return the time in seconds in which the calls of a window end after the window.

    If hold times are exponential, the result contains their 99th percentile. So of the calls that start at the end of
    the window, up to 1 % last longer.
    """
    hold_ms = load.hold_time_ms * (LONG_HOLD if load.hold_law == "exponential" else 1)
    return (load.ring_time_ms + hold_ms + CALL_MARGIN_MS) / 1000


def washout_tail_s(load: Load) -> float:
    """Return the part of a washout in seconds in which the calls of the previous window end.

    An automatic washout cannot wait for calls that last longer than `WASHOUT_MAX_S`. With an automatic washout, only
    runs that compare scheduler modes may have such calls.
    """
    tail_s = call_tail_s(load)
    return tail_s if tail_s <= WASHOUT_MAX_S else SHORT_TAIL_S


def check_calls(modes: Iterable[str], load: Load, crossover: Crossover, where: str) -> None:
    """Raise an error if a run compares instances although its calls last longer than the washout.

    A call ends at the instance at which it began. If only scheduler modes are compared, one instance serves all calls,
    and the messages of long calls are a constant part of the load in every window.

    Raises
    ------
    StableError
        Calls of a window would still send messages after the washout of the next window.
    """
    if not any(map(compares_instances, modes)):
        return
    tail_s = call_tail_s(load)
    longest_s = WASHOUT_MAX_S if crossover.washout_s == "auto" else crossover.washout_s
    if tail_s > longest_s:
        remedy = (
            f"set crossover.washout_s to {math.ceil(tail_s)} or more, lower"
            if tail_s <= WASHOUT_LIMIT_S
            else "instances cannot be compared within a run with such calls: lower"
        )
        raise StableError(
            f"{where}: calls end up to {tail_s:g} s after their window (load.ring_time_ms + load.hold_time_ms + "
            f"{CALL_MARGIN_MS} ms, load.hold_law: {load.hold_law}), but the washout of the next window lasts at most "
            f"{longest_s:g} s (crossover.washout_s: {crossover.washout_s}); {remedy} load.hold_time_ms or "
            "load.ring_time_ms, or measure each instance in separate runs"
        )


def lengths(
    crossover: Crossover, utilisation: float, service_s: float, tail_s: float
) -> tuple[float, float, float]:
    """Return the length of the windows, and of the excluded start of each window.

    The lengths come from the configuration, or, for `auto`, from the proxy's utilisation.

    The influence of a queue's past decays with the relaxation time. For M/M/1, this time is E[S] / (1 - sqrt(rho))^2.
    SEE Cohen, The Single Server Queue, 1982, III.

    Parameters
    ----------
    utilisation
        Share of the SPS's CPU time that the proxy uses.
    service_s
        CPU time per message, divided by the number of CPUs.
    tail_s
        See `washout_tail_s`.

    Returns
    -------
    window_s, washout_s, relaxation_s
        Length of the windows, of their washout, and relaxation time, in seconds.
    """
    busy = min(max(utilisation, 0.0), UTILISATION_MAX)
    relaxation_s = service_s / (1 - math.sqrt(busy)) ** 2
    washout_s = min(tail_s + RELAXATIONS * relaxation_s, WASHOUT_MAX_S)
    if crossover.washout_s != "auto":
        washout_s = crossover.washout_s
    window_s = max(WINDOW_MIN_S, WINDOW_WASHOUTS * washout_s)
    if crossover.window_s != "auto":
        window_s = crossover.window_s
    return window_s, washout_s, relaxation_s


def choose(
    modes: Sequence[str],
    load: Load,
    crossover: Crossover,
    utilisation: float,
    service_s: float,
    seed: int,
) -> Design:
    """Choose random windows for a run, with a length from the configuration or from the proxy's utilisation.

    Parameters
    ----------
    load
        The load of the run, whose duration is the sum of all windows.
    utilisation, service_s
        See `lengths`.

    Raises
    ------
    StableError
        See `check_calls` and `draw`.
    """
    check_calls(modes, load, crossover, "crossover")
    tail_s = washout_tail_s(load)
    window_s, washout_s, relaxation_s = lengths(crossover, utilisation, service_s, tail_s)
    if crossover.window_s == "auto":
        # A busy proxy needs long windows. A run excludes a larger part of shorter windows rather than fail for too few
        # blocks. The factor prevents that a rounding error costs a block.
        longest_s = (1 - 1e-9) * load.duration_s / (BLOCKS_MIN * (len(modes) + 1))
        if longest_s * (1 - JITTER) > 2 * washout_s:
            window_s = min(window_s, longest_s)
    design = draw(modes, load.duration_s, window_s, washout_s, seed)
    return replace(
        design,
        utilisation=utilisation,
        relaxation_s=relaxation_s,
        call_tail_s=tail_s if crossover.washout_s == "auto" else None,
    )


def draw(
    modes: Sequence[str], total_s: float, window_s: float, washout_s: float, seed: int
) -> Design:
    """Choose the order of modes in each block and the length of windows at random.

    Parameters
    ----------
    total_s
        Seconds of load. A remainder that is too short for a block is not used.
    window_s, washout_s
        Mean length of a window, and length of the excluded start of a window.
    seed
        Seed of the orders and lengths. The same seed produces the same windows.

    Raises
    ------
    StableError
        The windows are shorter than twice the washout, or the load is too short for the smallest number of blocks.
    """
    # The analysis checks its results with a washout of double length, so a window must be longer than two washouts.
    if window_s * (1 - JITTER) <= 2 * washout_s:
        raise StableError(
            f"crossover: windows of {window_s:g} s (less {JITTER:.0%} in some blocks) are too short for "
            f"twice the washout of {washout_s:g} s; set crossover.window_s to "
            f"{WINDOW_WASHOUTS * washout_s:g} or more"
        )
    playing = len(modes) + 1
    blocks = int(total_s / (playing * window_s))
    if blocks < BLOCKS_MIN:
        raise StableError(
            f"crossover: {total_s:g} s of load have room for {blocks} blocks of {playing} windows of "
            f"{window_s:.3g} s; at least {BLOCKS_MIN} are needed: set crossover.mode_s to "
            f"{math.ceil(BLOCKS_MIN * window_s)} or more, or crossover.window_s lower"
        )
    rng = random.Random(seed)  # noqa: S311 - orders of windows are no secret
    windows: list[Window] = []
    start_ns = 0
    for block in range(blocks):
        length_ns = round(window_s * 1e9 * rng.uniform(1 - JITTER, 1 + JITTER))
        # The reference mode has a second window in each block, the sham, at its own random position.
        # The two windows of the reference mode in a block therefore differ only by chance.
        for arm in rng.sample(range(playing), playing):
            sham = arm == len(modes)
            windows.append(Window(block, 0 if sham else arm, sham, start_ns, length_ns))
            start_ns += length_ns
    assert all(a.start_ns + a.length_ns == b.start_ns for a, b in pairwise(windows))
    return Design(tuple(modes), window_s, washout_s, tuple(windows))
