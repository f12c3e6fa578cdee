"""Sentences, for pages and the terminal, about the headroom: how much more load a running proxy can handle."""

from collections.abc import Mapping

from sipsched.analysis.crossing_load import PDR_LIMIT
from sipsched.analysis.headroom import (
    LEAST_BUSY,
    LEAST_CYCLES,
    LEAST_MESSAGES,
    Headroom,
    Lack,
    TimeAt,
)
from sipsched.analysis.intervals import Interval
from sipsched.pages.numbers import in_us, with_unit
from sipsched.pages.parts import Section, Words
from sipsched.validity.rules import RULES
from sipsched.words import grouped, number, plural

WIDE = 0.5
"""A sentence warns the reader if the half-width of the predicted load's interval exceeds this share of the load."""
LIMIT = f"{PDR_LIMIT:.0%}".replace("%", " %")
LACKS: Mapping[Lack, str] = {
    Lack.SAMPLED: (
        "The recording contains only a sample of the calls. The prediction replays every message in a simulation, so "
        "record all calls."
    ),
    Lack.STREAM: "The recording contains messages over TCP. A TCP socket drops no messages, so this method cannot "
    "predict the load at which calls fail.",
    Lack.MESSAGES: f"The recording has fewer than {grouped(LEAST_MESSAGES)} messages. Record for longer.",
    Lack.BREAKS: "The recording has a break: no message arrived for more than a second, and for more than 100 times "
    "the mean time between messages. Record without breaks. The option `--cpu` of `fab watch` causes breaks, so omit "
    "it.",
    Lack.TIMES: "The wait (K_rcv) is unknown for more than 1 % of the messages, or the service time (T_sip) is "
    "unknown for more than half of the messages. So nothing can be predicted. Use the probe with BPF.",
    Lack.LOAD: f"The messages need less than {LEAST_BUSY:.0%} of the CPU time. ".replace("%", " %")
    + "At such a low load, the cost of a message at a high load cannot be measured. Record when the load is higher.",
    Lack.CYCLES: f"The recording has fewer than {LEAST_CYCLES} busy periods of the proxy. Record for longer, or when "
    "the load is higher.",
    Lack.CORES: (
        f"In fewer than {LEAST_CYCLES} cases, all CPUs were busy while messages waited. So few cases do not show how "
        "the proxy scales over its CPUs. Record for longer, or when the load is higher."
    ),
}
"""The sentences for each reason why the headroom (the load that can be added) is unknown."""


def sentences(headroom: Headroom) -> tuple[str, ...]:
    """Return up to nine sentences that predict how much load can be added, or why no prediction is possible.

    If nothing was simulated, the sentences state the bound for Poisson arrivals instead of the prediction.
    """
    server = headroom.server
    today = (
        f"In the recording, {plural(headroom.messages, 'message')} arrived in {number(headroom.seconds)} s, which is "
        f"{number(headroom.per_s)} messages per second (today's load). Of these messages, "
        f"{100 * headroom.dropped:.2g}\u00a0% were dropped. The prediction assumes {plural(server.cores, 'CPU')}, "
        f"{plural(server.workers, 'worker')} and a receive buffer of {grouped(server.receive_buffer_bytes)} bytes."
    )
    if headroom.lack or not (headroom.work_us and headroom.slope):
        return today, f"The headroom is unknown. {LACKS[headroom.lack]}"
    work = (
        f"A message needs {with_unit(headroom.work_us, 'µs')} of CPU time, so the messages need "
        f"{100 * headroom.busy:.0f} % of the CPU time. Doubling the load changes the CPU time of a message by "
        f"{with_unit(headroom.slope.map(lambda slope: 100 * (2**slope - 1)), '%', '+')}."
    )
    poisson = (
        f"If messages arrived as a Poisson process, {LIMIT} of the messages would be dropped at "
        f"{headroom.poisson:.2f} times today's load."
    )
    if headroom.growth is None:
        command = (
            "With bursts of calls, drops begin at a lower load. The command `fab headroom` simulates the recorded "
            "arrivals, and predicts this load."
        )
        return today, work, poisson, *_stolen(headroom), command
    return (
        today,
        work,
        _growth(headroom, headroom.growth),
        poisson,
        *_times(headroom),
        *_stolen(headroom),
        "The prediction is valid only if the arrivals and the competing programs resemble those of this recording.",
    )


def _growth(headroom: Headroom, growth: Interval) -> str:
    """Return a sentence with the predicted load at which 1 % of messages would be dropped, and its interval."""
    per_s = growth.map(lambda factor: factor * headroom.per_s)
    if growth.estimate <= 1:
        text = (
            f"The proxy is already saturated: {LIMIT} of the messages would be dropped at {with_unit(growth)} times "
            "today's load"
        )
    else:
        text = f"{LIMIT} of the messages would be dropped at {with_unit(growth)} times today's load"
    text += f", which is {with_unit(per_s)} messages per second."
    if headroom.half_width > WIDE:
        text += " The interval is wide, because the recording contains too little information about this load."
    return text


def _stolen(headroom: Headroom) -> tuple[str, ...]:
    """Return a warning if the hypervisor took so much CPU time that a run of a campaign would be invalid."""
    if not headroom.stolen > RULES["steal_share"].invalid:
        return ()
    return (
        f"The prediction may be wrong: the hypervisor took {100 * headroom.stolen:.0f} % of the CPU time during the "
        "recording. Record again when the hypervisor takes less CPU time.",
    )


def _times(headroom: Headroom) -> tuple[str, ...]:
    """Return sentences that predict the 99th percentile of the time per message at multiples of today's load.

    If a replay of today's load does not reproduce the measured time, return one sentence without a prediction.
    """
    measured = in_us(headroom.p99_us)
    if not headroom.times:
        return (
            f"The 99th percentile of the time per message is {measured} in the recording, and "
            f"{in_us(headroom.replayed_p99_us)} in the simulated replay of the recording. These two times differ too "
            "much, so the time at higher loads is not predicted.",
        )
    return tuple(_time(at, measured) for at in headroom.times)


def _time(at: TimeAt, measured: str) -> str:
    text = (
        f"At {at.factor:g} times today's load, the 99th percentile of the time per message would be "
        f"{with_unit(at.p99_us, 'µs')}. In the recording, this time is {measured}."
    )
    if at.dropped.high > PDR_LIMIT:
        share = with_unit(at.dropped.map(lambda share: 100 * share), "%")
        text += f" This load may saturate the proxy: {share} of the messages would be dropped."
    return text


def section(headroom: Headroom | str) -> Section:
    """Return the section of a page about the load that the proxy can additionally handle, or why it is unknown."""
    expected = (
        "Expected: the load can grow until the messages need all the CPU time. If messages arrive in bursts, drops "
        "begin at a lower load. Shortly below the load at which drops begin, the times of messages grow fast."
    )
    words = (headroom,) if isinstance(headroom, str) else sentences(headroom)
    return Section("How much load can be added?", expected, (Words(words),))
