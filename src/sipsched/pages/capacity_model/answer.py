"""The page's answer to "How many cores does a load (calls per second) need?", with an input box and tables.

Sentences give the reasons why measured, extrapolated and simulated capacities, and those in virtual time, differ.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from sipsched.analysis.capacity.options import (
    EXTRAPOLATED,
    IN_VIRTUAL_TIME,
    MEASURED,
    SIMULATED,
    Option,
)
from sipsched.analysis.capacity.predictions import predictor
from sipsched.analysis.capacity.simulated import Simulated
from sipsched.analysis.capacity.sizing import MOST_CORES, SizedSystem, Sizing, sized
from sipsched.analysis.capacity.systems import CapacityEvidence
from sipsched.analysis.speedup import shares_cpus
from sipsched.pages.numbers import NO_ENTRY, in_words, with_unit
from sipsched.pages.parts import (
    Answer,
    Cell,
    Folded,
    LoadAnswers,
    LoadBox,
    Part,
    Several,
    Table,
    Words,
)
from sipsched.records.prediction import CapacityPrediction
from sipsched.records.system_capacity import SystemCapacity
from sipsched.words import grouped, listed, number, plural

LOADS = (500, 1000, 1500, 2000, 3000, 4000, 5000, 6000, 8000, 10_000)
"""The loads in the rows of the tables, in calls per second."""
TITLES = {IN_VIRTUAL_TIME: "in virtual time, at most"}
"""Titles of sources that differ from the name of the source."""
NAMED_CORES = 4
"""The answer contains the predicted capacities of this number of cores."""


def systems(
    evidence: CapacityEvidence,
    prediction: CapacityPrediction,
    rows: Sequence[Simulated],
    virtual: Sequence[SystemCapacity] = (),
    virtual_sut: str = "",
) -> tuple[SizedSystem, ...]:
    """Return the known and predicted capacities of each proxy. The page's main proxy comes first."""
    return sized(evidence, rows, prediction.fitted.sut, virtual, virtual_sut)


def answer(found_systems: Sequence[SizedSystem]) -> Answer:
    """Return sentences with the main proxy's measured capacity per number of cores, and predictions for 4 cores."""
    if not found_systems:
        return Answer("There is no answer yet, because no capacity of any proxy is known.")
    first = found_systems[0]
    name, options = first.system.name, first.known.options
    of_name = (
        f"Capacity of {name} according to the papers' tables"
        if first.system.published
        else f"Measured capacity of {name}"
    )
    known = [
        f"{plural(option.cores, 'core')} with {plural(option.threads, 'thread')} {_handles(option)}"
        for option in options
    ]
    lines = [f"{of_name}: {listed(known)}." if known else f"No capacity of {name} is known."]
    if first.system.published:
        lines.insert(0, "Nothing was measured here.")
    elif {option.cores for option in options} == {1}:
        lines.append("Only one core was measured.")
    predicted = [
        f"{TITLES.get(sizing.basis, sizing.basis)} {with_unit(option.interval, 'cps')}"
        for sizing in first.all
        for option in sizing.options
        if option.cores == NAMED_CORES and not option.known
    ]
    if predicted:
        lines.append(
            f"Predicted capacity on {plural(NAMED_CORES, 'core')}, not measured: {listed(predicted)}."
        )
    return Answer(" ".join(lines))


def _handles(option: Option) -> str:
    verb = "handles" if option.cores == 1 else "handle"
    if option.settled:
        return f"{verb} {with_unit(option.capacity, 'calls per second')}"
    if option.interval.estimate > 0:
        return f"{verb} at least {number(option.interval.estimate)} calls per second"
    return f"{verb} less than the lowest offered load"


def box(found_systems: Sequence[SizedSystem], cps: float) -> LoadBox:
    """Make the page's input box for a load in calls per second. The page then shows the number of cores per proxy."""
    return LoadBox(
        identity="load-box",
        first=cps,
        highest=max(
            (
                LOADS[-1],
                *(o.carries_cps for system in found_systems for s in system.all for o in s.steps),
            )
        ),
        kinds=(
            " or ".join(dict.fromkeys(system.known.basis for system in found_systems)) or MEASURED,
            *(EXTRAPOLATED, SIMULATED, TITLES[IN_VIRTUAL_TIME]),
        ),
        rows=tuple(
            (system.system.name, tuple(map(_answers, system.all))) for system in found_systems
        ),
    )


def _answers(sizing: Sizing) -> LoadAnswers:
    return LoadAnswers(
        steps=tuple(
            (
                option.carries_cps,
                f"{plural(option.cores, 'core')}, {plural(option.threads, 'thread')}",
                option.interval.estimate,
                "" if option.settled else "at most ",
            )
            for option in sizing.steps
        ),
        beyond=_beyond(sizing),
    )


def _unknown(sizing: Sizing) -> str:
    return "no answer" if sizing.basis == IN_VIRTUAL_TIME else f"not {sizing.basis}"


def _beyond(sizing: Sizing) -> str:
    """Return the text for a load that is too high for every known number of cores."""
    if not sizing.options:
        return _unknown(sizing)
    last = sizing.options[-1]
    if sizing.basis == IN_VIRTUAL_TIME:
        return f"more than {plural(last.cores, 'core')}"
    if not last.known:
        return f"none up to {plural(last.cores, 'core')}"
    if not last.settled:
        return f"unknown above {number(last.interval.estimate)}\u00a0cps"
    return f"more than {plural(last.cores, 'core')}"


def _beyond_cell(sizing: Sizing) -> str:
    """Return the answer, as text for a table cell, for a load above the capacity on every known number of cores."""
    if not sizing.options:
        return _unknown(sizing)
    last = sizing.options[-1]
    if sizing.basis == IN_VIRTUAL_TIME:
        return f"> {last.cores}"
    if not last.known:
        return f"none up to {last.cores}"
    return f"> {last.cores}" if last.settled else "unknown"


def tables(found_systems: Sequence[SizedSystem]) -> Several:
    """Return a table per proxy with the number of cores that each load needs. Only the first table is not collapsed."""
    shown: list[Part] = [_table(system, i) for i, system in enumerate(found_systems)]
    others = [Folded("The tables of all other systems", shown[1:])] if shown[1:] else []
    return Several([*shown[:1], *others])


def _table(system: SizedSystem, place: int) -> Table:
    sources = system.all if system.virtual.options else system.all[:-1]
    rows: list[tuple[Cell, ...]] = []
    for cps in LOADS:
        cells: list[Cell] = [grouped(cps)]
        for sizing in sources:
            option = sizing.enough(cps)
            if option is None:
                cells += [_beyond_cell(sizing), NO_ENTRY]
            else:
                share = f"{100 * cps / option.interval.estimate:.0f}"
                cells += [str(option.cores), share if option.settled else f"at most {share}"]
        rows.append(tuple(cells))
    by_law = f"{EXTRAPOLATED} by {system.law}" if system.law else EXTRAPOLATED
    return Table(
        identity="table-sizing" if not place else f"table-sizing-{place + 1}",
        groups=(
            *(("", 1), (system.known.basis, 2), (by_law, 2)),
            *((TITLES.get(sizing.basis, sizing.basis), 2) for sizing in sources[2:]),
        ),
        header=("load (cps)", *("cores", "used (%)") * len(sources)),
        rows=tuple(rows),
        none="nothing is known",
        caption=f"The number of cores that {system.system.name} needs for each load.",
        reading="A number of cores is enough if the lower end of the capacity's 95 % interval is at least as large as "
        'the load. The column "used (%)" shows the load as a percentage of the estimated capacity. If only a '
        'lower bound of the capacity is known, this column shows "at most". The words "none up to 64" mean that '
        "no number of cores up to 64 is enough.",
        provenance=with_virtual_time(system.system.provenance, [system]),
    )


def with_virtual_time(provenance: str, systems: Sequence[SizedSystem]) -> str:
    """Return the provenance of a figure or table, with the label of virtual time if it shows such capacities.

    The label names the settings of the virtual clock.
    """
    shown = dict.fromkeys(system.virtual.fidelity for system in systems if system.virtual.options)
    if not shown:
        return provenance
    label = f"Capacities in virtual time: {'; '.join(shown)}"
    return f"{provenance.rstrip('.')}. {label}" if provenance else label


def reasons(
    found_systems: Sequence[SizedSystem], evidence: CapacityEvidence, prediction: CapacityPrediction
) -> Words:
    """Return sentences on why the capacities of the main proxy differ between the sources."""
    if not found_systems:
        return Words(("No capacity of any proxy is known, so there are no answers to compare.",))
    first = found_systems[0]
    return Words(
        (
            *_of_measurement(first, evidence),
            *_of_law(first, evidence),
            *_of_simulation(first, prediction),
            *_of_virtual_time(first),
        )
    )


def _of_measurement(first: SizedSystem, evidence: CapacityEvidence) -> Iterator[str]:
    if first.system.published:
        yield "Nothing was measured on this testbed. The published capacities are from the papers' server."
        return
    cores = [option.cores for option in first.known.options]
    if not cores:
        yield "No capacity was measured."
        return
    counts = listed([str(count) for count in cores])
    yield f"The measured answer is the capacity on {counts} core{'s' if cores != [1] else ''} of this testbed."
    shared = [
        count
        for count in cores
        if any(shares_cpus(campaign, count) for campaign in evidence.campaigns)
    ]
    if shared:
        yield (
            f"With {plural(min(shared), 'core')}, the proxy shares a CPU with the load generators, which have "
            "priority on this CPU. A proxy without generators on its CPUs handles more load, so the measured "
            "capacity is an underestimate."
        )
        if len(cores) > 1:
            yield (
                "The scaling law is fitted to this underestimate. The law therefore underestimates the capacity on "
                "more cores, and overestimates the number of cores that a load needs."
            )


def _of_law(first: SizedSystem, evidence: CapacityEvidence) -> Iterator[str]:
    law = predictor(first.system, evidence)
    if law is None:
        yield "Nothing is extrapolated, because no capacity was found within the offered loads."
        return
    name, predict = law
    fitted = sorted({option.cores for option in first.system.fitted})
    yield (
        f"The extrapolated answer uses {name}, and starts from the capacity on "
        f"{listed([str(count) for count in fitted])} core{'s' if fitted != [1] else ''}. Beyond "
        f"{plural(fitted[-1], 'core')}, no measurement checks this law."
    )
    yield f"By this law, {plural(MOST_CORES, 'core')} handle {in_words(predict(MOST_CORES), 'cps')}."


def _of_simulation(first: SizedSystem, prediction: CapacityPrediction) -> Iterator[str]:
    options = first.simulated.options
    if not options:
        why = prediction.fitted.why or f"{first.system.name} was not simulated"
        yield f"There is no simulated answer: {why}."
        return
    yield (
        "The simulated answer comes from a model of the proxy, which is fitted to "
        f"{plural(len(prediction.fitted.runs), 'run')} on one core. In the model, each core serves only the proxy, "
        "and workers never wait for a lock."
    )
    by_cores = {option.cores: option for option in options}
    for known in first.known.options:
        predicted = by_cores.get(known.cores)
        if predicted is None or not known.settled:
            continue
        yield (
            f"On {plural(known.cores, 'core')}, the simulated proxy handles {with_unit(predicted.interval, 'cps')}, "
            f"which is {_against(known, predicted)}."
        )
    most = max(options, key=lambda option: (option.interval.estimate, -option.cores))
    enough = next(o for o in options if o.interval.estimate >= 0.95 * most.interval.estimate)
    if enough is not options[-1] and np.isfinite(enough.interval.estimate):
        yield (
            f"In the simulation, using more than {plural(enough.cores, 'core')} does not increase the capacity, "
            f"because "
            f"one CPU receives all messages of a socket."
        )


def _against(known: Option, predicted: Option) -> str:
    off = 100 * (predicted.interval.estimate / known.capacity.estimate - 1)
    return f"{abs(off):.0f}\u00a0% {'more' if off > 0 else 'less'} than measured"


def _of_virtual_time(first: SizedSystem) -> Iterator[str]:
    """Say where the speed-ups in virtual time come from, and how they compare with measured capacities."""
    options = {option.cores: option for option in first.virtual.options if not option.known}
    if not options:
        return
    most = options[max(options)]
    base = first.virtual.options[0]
    yield (
        "The answer in virtual time multiplies the measured capacity of one core (with "
        f"{plural(base.threads, 'worker')}) by a speed-up. Kamailio had this speed-up with "
        f"{plural(most.threads, 'worker')} on a real Linux kernel, on a machine whose clock counts instructions. On "
        f"{plural(most.cores, 'core')}, the speed-up is {most.interval.estimate / base.capacity.estimate:.1f}."
    )
    yield (
        "In virtual time, cache misses and the cores' common memory cost no time, but workers wait for locks. The "
        "answer is therefore an upper estimate: on a real machine with 16 cores, the speed-ups were smaller "
        "(docs/virtual-time/capacity.md)."
    )
    for known in first.known.options:
        if known.cores in options and known.settled:
            yield (
                f"On {plural(known.cores, 'core')}, the answer in virtual time is "
                f"{with_unit(options[known.cores].interval, 'cps')}, which is {_against(known, options[known.cores])}."
            )
