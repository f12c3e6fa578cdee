"""How the page of a comparison writes loads, modes, effects and designs."""

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sipsched.analysis.advice import SQUEEZED, Load, Place, settled
from sipsched.analysis.crossover import Effect, Scale, percent
from sipsched.analysis.statistics import Interval
from sipsched.pages.numbers import Number, told, with_unit
from sipsched.pages.parts import Figure, Several, Table, Words
from sipsched.plan.modes import DEFAULT
from sipsched.words import grouped, listed, plural

TITLES = {
    "k_rcv_mean": "K_rcv mean",
    "k_rcv_p99": "K_rcv p99",
    "t_sip_mean": "T_sip mean",
    "t_sip_p99": "T_sip p99",
    "total_mean": "sum mean",
    "total_p50": "sum p50",
    "total_p99": "sum p99",
    "cpu_per_message": "CPU a message",
    "pdr": "PDR",
    SQUEEZED: "time_squeeze",
}
IN_WORDS = {
    "k_rcv_mean": "the mean wait before the proxy (K_rcv)",
    "k_rcv_p99": "the 99th percentile of the wait before the proxy (K_rcv)",
    "t_sip_mean": "the mean time inside the proxy (T_sip)",
    "t_sip_p99": "the 99th percentile of the time inside the proxy (T_sip)",
    "total_mean": "the mean time from network card to answer (K_rcv + T_sip)",
    "total_p99": "the 99th percentile of the time from network card to answer (K_rcv + T_sip)",
    "cpu_per_message": "the proxy's CPU time a message",
    "pdr": "the packet drop rate (PDR)",
    SQUEEZED: "the rounds of the kernel's packet work that are cut short (time_squeeze)",
}
UNITS = {"pdr": "points", SQUEEZED: "a second"}
SCALES = {"pdr": 100.0, SQUEEZED: 1.0}


@dataclass(frozen=True)
class Section:
    """What belongs to one proxy, under its name; Jupyter shows it by itself."""

    title: str
    parts: tuple[Figure | Table | Words | Several, ...]

    def _repr_html_(self) -> str:
        return f"<h3>{self.title}</h3>" + "".join(part._repr_html_() for part in self.parts)


@dataclass(frozen=True)
class Sections:
    """Sections one after the other; a single one needs no name."""

    sections: tuple[Section, ...]

    def _repr_html_(self) -> str:
        if len(self.sections) == 1:
            return "".join(part._repr_html_() for part in self.sections[0].parts)
        return "".join(section._repr_html_() for section in self.sections)


def identity(*parts: object) -> str:
    """Make an id of an element."""
    return re.sub(r"[^a-z0-9]+", "-", "-".join(map(str, parts)).lower()).strip("-")


def place_name(place: Place) -> str:
    """Name what the load is put on."""
    return f"{place.sut}, {plural(place.cores, 'core')}, {plural(place.threads, 'thread')}"


def place_apart(place: Place, places: Iterable[Place]) -> str:
    """Name a place as far as it takes to tell it from others: not at all if there is none."""
    others = set(places) - {place}
    if not others:
        return ""
    if all(other.sut != place.sut for other in others):
        return f"{place.sut}, "
    return f"{place_name(place)}, against {place.reference}, "


def load_name(load: Load) -> str:
    """Name a load: as a share of what the SPS carries, where that was found, and in cps."""
    return loads_name([load])


def loads_name(loads: Sequence[Load]) -> str:
    """Name several loads of a place together."""
    cps = f"{listed([grouped(load.cps) for load in loads])} cps"
    shares = [load.share for load in loads]
    if any(share is None for share in shares):
        return cps
    told = listed([f"{100 * share:.0f}" for share in shares if share is not None])
    return f"{told} % of capacity ({cps})"


def short_load(load: Load) -> str:
    """Name a load in a cell or above a panel."""
    cps = f"{grouped(load.cps)} cps"
    return cps if load.share is None else f"{100 * load.share:.0f} % ({cps})"


def reference_name(load: Load) -> str:
    """Name the reference as a person would."""
    reference = load.place.reference
    return "the kernel's default" if reference == DEFAULT else load.label(reference)


def shown(effect: Effect, quantity: str, interval: Interval | None = None) -> Interval:
    """Give an effect in the unit in which it is printed: percent, points, or a second."""
    chosen = settled(effect) if interval is None else interval
    if effect.scale is Scale.RATIO:
        return percent(chosen)
    return chosen.map(lambda value: SCALES[quantity] * value)


def unit(quantity: str) -> str:
    """Give the unit of an effect on a quantity."""
    return UNITS.get(quantity, "%")


def effect_cell(effect: Effect, quantity: str) -> Number:
    """Write an effect for a cell: "−42 (−48 to −36)"."""
    return told(shown(effect, quantity), unit(quantity), plus="+")


def effect_words(effect: Effect, quantity: str) -> str:
    """Write an effect for a sentence: "−42 % (−48 to −36)"."""
    interval = shown(effect, quantity)
    if math.isnan(interval.estimate):
        return f"not known ({interval.why})"
    told = with_unit(interval, unit(quantity), "+")
    return told if interval.known else f"{told} ({no_interval(effect)})"


def no_interval(effect: Effect) -> str:
    """Say why an effect has no interval, as a reader of a page would."""
    if settled(effect).estimate == 0:
        return "always equal"
    return settled(effect).why.removeprefix("no interval, since ")


def raised(effect: Effect, quantity: str) -> str:
    """Write a rise: "by 42 % (36 to 48)"."""
    return _by(shown(effect, quantity), quantity)


def lowered(effect: Effect, quantity: str) -> str:
    """Write a fall: "by 42 % (36 to 48)"."""
    return _by(shown(effect, quantity).map(lambda value: -value), quantity)


def _by(interval: Interval, quantity: str) -> str:
    return f"by {with_unit(interval, unit(quantity))}"


def fall_seen(detectable: float) -> str:
    """Write the smallest fall, of a logarithm, that would have been seen: "12 %"."""
    share = -100 * math.expm1(-detectable)
    return f"{share:.0f}\u00a0%" if share >= 2 else f"{share:.1f}\u00a0%"


def design(loads: Iterable[Load]) -> str:
    """Say how runs were made: once on a page."""
    runs = [run for load in loads for run in load.runs]
    if not runs:
        return "Crossover; nothing was measured."
    lengths = sorted({round(float(run.attrs["window_s"]), 2) for run in runs})
    blocks = sum(int(run["block"].max()) + 1 for run in runs)
    again = {bool(run.attrs["retransmissions"]) for run in runs}
    sent = "retransmissions off" if again == {False} else "retransmissions on"
    if len(again) > 1:
        sent = "retransmissions on in some runs"
    span = f"{lengths[0]:g}" + (f" to {lengths[-1]:g}" if lengths[1:] else "")
    return f"Crossover, windows of {span} s, {plural(blocks, 'block')} in {plural(len(runs), 'run')}, {sent}."


def provenance(loads: Sequence[Load]) -> str:
    """Say what the numbers are where nothing was measured; of what was the page says once where."""
    runs = [run for load in loads for run in load.runs]
    simulated = [run for run in runs if run.attrs["kind"] == "simulated"]
    return "; ".join(dict.fromkeys(str(run.attrs["fidelity"]) for run in simulated))
