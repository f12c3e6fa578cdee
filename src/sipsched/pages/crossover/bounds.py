"""The measured mean time of a message (K_rcv + T_sip), compared with two bounds of queueing theory for one core."""

import math
from collections.abc import Sequence

from sipsched.analysis.advice import Advice, ComparedLoad
from sipsched.analysis.sojourn import Sojourn, sojourn
from sipsched.pages.crossover.wording import (
    by_proxy,
    identity,
    provenance,
    short_load,
)
from sipsched.pages.numbers import NO_ENTRY, in_us, told
from sipsched.pages.parts import Cell, Several, Table, Words
from sipsched.words import number

NEAR = 2.0
"""The page gives possible reasons for a measured mean that is at least this many times the lower bound."""


def page(comparisons: Sequence[Advice]) -> Several:
    """Return a table per proxy on one core: the measured mean message time and two bounds from queueing theory."""
    if not comparisons:
        return Several((Words(("There are no bounds, because nothing was measured.",)),))
    return by_proxy(comparisons, _parts)


def _parts(advice: Advice) -> tuple[Table | Words, ...]:
    if advice.place.cores != 1:
        return (Words(("The bounds apply only to one core, and this proxy has more cores.",)),)
    loads = [ranking.load for ranking in advice.rankings]
    known = [(load, times) for load in loads if (times := sojourn(load)) is not None]
    if not known:
        why = "There are no bounds, because no window of the reference has a CPU time per message."
        return (Words((why,)),)
    table = Table(
        identity=identity("table-bounds", *advice.place[1:4]),
        groups=(("", 3), ("bounds", 2), ("computed from", 3)),
        places=1,
        header=(
            *(
                "load",
                "mode",
                "mean of K_rcv + T_sip",
                "processor sharing",
                "first come first served",
            ),
            *("CPU per message (µs)", "busy (%)", "scv"),
        ),
        rows=tuple(_row(load, times) for load, times in known),
        none="nothing was measured",
        caption="The measured mean time per message (K_rcv + T_sip) in the reference mode, and two bounds from "
        "queueing theory.",
        reading="The bounds are mean sojourn times (waiting plus service) in the queue M/G/1, with the measured CPU "
        "time per message as service time. One bound assumes processor sharing, and the other bound assumes that "
        "messages are served in their order of arrival (first come, first served). A scheduler with short slices "
        "resembles processor sharing. SCHED_FIFO resembles first come, first served. The measured times also contain "
        "the proxy's other work and the kernel's packet processing. The column \"scv\" shows the squared coefficient "
        "of variation of the service time.",
        provenance=provenance(loads),
    )
    return Words(tuple(_finding(*each) for each in known)), table


def _finding(load: ComparedLoad, times: Sojourn) -> str:
    """Return a sentence that compares the measured mean with the lower of the two bounds."""
    bounds = (times.sharing_us, times.fcfs_us)
    lower = min((bound for bound in bounds if math.isfinite(bound)), default=math.nan)
    mean = load.mean(load.place.reference, "total_mean").estimate
    ratio = mean / lower
    if math.isnan(ratio):
        return f"{short_load(load)}: the measured mean cannot be compared with a bound."
    text = f"{short_load(load)}: the measured mean is {number(ratio)} times the lower bound"
    if ratio < NEAR:
        return f"{text}, as expected."
    return (
        f"{text}. The model of the bounds may lack a part of the measured time, such as waits for locks, for the "
        "kernel's packet processing or for other programs."
    )


def _row(load: ComparedLoad, found_sojourn: Sojourn) -> tuple[Cell, ...]:
    reference = load.place.reference
    return (
        short_load(load),
        load.label(reference),
        told(load.mean(reference, "total_mean"), "µs"),
        _bound(found_sojourn.sharing_us),
        _bound(found_sojourn.fcfs_us),
        number(found_sojourn.service_us),
        f"{100 * found_sojourn.utilisation:.0f}",
        NO_ENTRY if math.isnan(found_sojourn.scv) else f"{found_sojourn.scv:.2g}",
    )


def _bound(value: float) -> str:
    if math.isnan(value):
        return "not known"
    return "no bound, because the CPU is fully used" if math.isinf(value) else in_us(value)
