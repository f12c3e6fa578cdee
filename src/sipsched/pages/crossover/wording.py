"""Functions that put loads, modes and effects into words for the page of a comparison."""

import math
import re
from collections.abc import Callable, Iterable, Sequence

from sipsched.analysis.advice import SQUEEZED, Advice, ComparedLoad, ReferenceSystem
from sipsched.analysis.crossover import Effect, Scale, percent
from sipsched.analysis.intervals import Interval
from sipsched.analysis.run_table import LABELLED_KINDS
from sipsched.pages.capacities import disagreements, estimate, share_words
from sipsched.pages.numbers import Number, told, with_unit
from sipsched.pages.parts import Part, Several
from sipsched.pages.plots import Look, mode_looks
from sipsched.plan.modes import DEFAULT
from sipsched.words import grouped, listed, number, plural

AA = "A/A"
"""The name of the comparison of the reference mode with itself, between two windows (periods) in each block."""
TITLES = {
    "k_rcv_mean": "K_rcv mean",
    "k_rcv_p99": "K_rcv p99",
    "t_sip_mean": "T_sip mean",
    "t_sip_p99": "T_sip p99",
    "total_mean": "K_rcv + T_sip mean",
    "total_p50": "K_rcv + T_sip p50",
    "total_p99": "K_rcv + T_sip p99",
    "cpu_per_message": "CPU per message",
    "pdr": "PDR",
    SQUEEZED: "time_squeeze",
}
IN_WORDS = {
    "k_rcv_mean": "the mean waiting time K_rcv",
    "t_sip_mean": "the mean service time T_sip",
    "total_mean": "the mean time per message (K_rcv + T_sip)",
    "total_p99": "the 99th percentile of the time per message (K_rcv + T_sip)",
    "cpu_per_message": "the proxy's CPU time per message",
    "pdr": "the packet drop rate (PDR)",
}
"""Names of the quantities that an answer mentions, for use within sentences."""
UNITS = {"pdr": "percentage points", SQUEEZED: "per second"}
SCALES = {"pdr": 100.0, SQUEEZED: 1.0}


def by_proxy(
    comparisons: Iterable[Advice], parts_of: Callable[[Advice], Sequence[Part]]
) -> Several:
    """Join the page parts of several proxies into one part. Proxies without parts are excluded.

    Each proxy has a heading, unless the page shows only one proxy.
    """
    groups = [
        Several(parts, place_name(advice.place))
        for advice in comparisons
        if (parts := parts_of(advice))
    ]
    return Several(groups if len(groups) != 1 else groups[0].parts)


def identity(*parts: object) -> str:
    """Make the HTML id of an element from the given parts."""
    return re.sub(r"[^a-z0-9]+", "-", "-".join(map(str, parts)).lower()).strip("-")


def place_name(system: ReferenceSystem) -> str:
    """Return the name of a system as text: its SUT (proxy), its cores and its workers."""
    return f"{system.sut}, {plural(system.cores, 'core')}, {plural(system.threads, 'worker')}"


def load_among(load: ComparedLoad, loads: Iterable[ComparedLoad]) -> str:
    """Return the name of a load as text. If `loads` are from several systems, the name also identifies the system."""
    others = {other.place for other in loads} - {load.place}
    if not others:
        return short_load(load)
    if all(other.sut != load.place.sut for other in others):
        return f"{load.place.sut}, {short_load(load)}"
    return (
        f"{place_name(load.place)}, against {load.label(load.place.reference)}, {short_load(load)}"
    )


def looks_of(loads: Iterable[ComparedLoad]) -> dict[str, Look]:
    """Return the colour and the marker of each compared mode, which are the same in all figures of a page."""
    return mode_looks(mode for load in loads for mode in (load.place.reference, *load.modes))


def loads_name(loads: Sequence[ComparedLoad]) -> str:
    """Return the loads of a system as text, in cps (calls per second) and as percentages of the system's capacity."""
    cps = f"{listed([grouped(load.cps) for load in loads])} cps"
    capacity, planned_cps = loads[0].capacity, loads[0].planned_cps
    if capacity is not None and capacity.estimate_cps is not None:
        whole, kind = capacity.estimate_cps, f"the capacity of {estimate(capacity)} cps"
    elif planned_cps is not None:
        whole, kind = planned_cps, f"the {number(planned_cps)} cps that a search found"
    else:
        return cps
    shares = listed([f"{100 * load.cps / whole:.0f}" for load in loads])
    return f"{cps} ({shares}\u00a0% of {kind})"


def planned(loads: Sequence[ComparedLoad]) -> str:
    """Return a sentence with a system's loads as shares of its capacity. Empty if no capacity is known."""
    first = loads[0]
    if first.capacity is None:
        return ""
    shares = share_words([load.cps for load in loads], first.planned_cps, first.capacity)
    cps = listed([grouped(load.cps) for load in loads])
    return " ".join(
        (f"Load{'s' * (len(loads) > 1)}: {cps} cps, {shares}.", *disagreements(first.capacity))
    )


def short_load(load: ComparedLoad) -> str:
    """Return a load as short text with its share of the capacity, for a table cell or the heading of a panel."""
    cps = f"{grouped(load.cps)} cps"
    return cps if load.share is None else f"{100 * load.share:.0f} % ({cps})"


def reference_name(load: ComparedLoad) -> str:
    """Return the name of the reference mode, such as "the kernel's default", for use within a sentence."""
    reference = load.place.reference
    kept = reference == DEFAULT and load.one_instance
    return "the kernel's default" if kept else load.label(reference)


def shown(effect: Effect, quantity: str) -> Interval:
    """Return the estimate and the confidence interval of an effect in the unit that pages print, such as percent."""
    if effect.scale is Scale.RATIO:
        return percent(effect.interval)
    return effect.interval.map(lambda value: SCALES[quantity] * value)


def unit(quantity: str) -> str:
    """Return the unit in which pages print an effect on a quantity, such as "%"."""
    return UNITS.get(quantity, "%")


def effect_cell(effect: Effect, quantity: str) -> Number:
    """Return an effect with its confidence interval as a table cell: "−42 (−48 to −36)"."""
    return told(shown(effect, quantity), unit(quantity), plus="+")


def effect_words(effect: Effect, quantity: str) -> str:
    """Return an effect with its confidence interval as text: "−42 % (−48 to −36)"."""
    interval = shown(effect, quantity)
    if math.isnan(interval.estimate):
        return f"not known ({interval.why})"
    text = with_unit(interval, unit(quantity), "+")
    return text if interval.known else f"{text} ({no_interval(effect)})"


def no_interval(effect: Effect) -> str:
    """Return as text the reason why an effect has no confidence interval."""
    if effect.interval.estimate == 0:
        return "always equal"
    return effect.interval.why


def size_words(effect: Effect, quantity: str) -> str:
    """Return the size of an increase or a decrease as text without a sign: "42 % (36 to 48)"."""
    interval = shown(effect, quantity)
    if interval.estimate < 0:
        interval = interval.map(lambda value: -value)
    return with_unit(interval, unit(quantity))


def fall_words(detectable: float) -> str:
    """Return a relative decrease of a quantity in percent as text, such as "12 %".

    `detectable` is the decrease of the natural logarithm of the quantity.
    """
    share = -100 * math.expm1(-detectable)
    return f"{share:.0f}\u00a0%" if share >= 2 else f"{share:.1f}\u00a0%"


def provenance(loads: Iterable[ComparedLoad]) -> str:
    """Return the label that marks numbers as simulated or emulated; empty for other numbers.

    Other numbers have no label, because the end of the page states their origin.
    """
    runs = [run for load in loads for run in load.runs]
    labelled = [run for run in runs if run.attrs["kind"] in LABELLED_KINDS]
    return "; ".join(dict.fromkeys(str(run.attrs["fidelity"]) for run in labelled))
