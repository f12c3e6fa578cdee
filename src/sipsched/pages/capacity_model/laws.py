"""A figure and tables of the capacity by number of cores: measured, extrapolated by scaling laws, and simulated."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullFormatter, NullLocator

from sipsched.analysis.capacity.options import (
    EXTRAPOLATED,
    IN_VIRTUAL_TIME,
    MEASURED,
    SIMULATED,
    Option,
)
from sipsched.analysis.capacity.predictions import choose, predictor
from sipsched.analysis.capacity.simulated import Simulated
from sipsched.analysis.capacity.sizing import SizedSystem, Sizing
from sipsched.analysis.capacity.systems import CapacityEvidence, CapacityModel
from sipsched.analysis.intervals import Estimates
from sipsched.pages.capacity_model.answer import with_virtual_time
from sipsched.pages.numbers import in_words, told
from sipsched.pages.parts import Cell, Figure, Folded, Table
from sipsched.pages.plots import Curve, draw_curve, draw_line, look, panels
from sipsched.plan.modes import DEFAULT
from sipsched.records.prediction import CapacityPrediction
from sipsched.words import grouped, listed, number, plural

DRAWN_CORES = (1, 2, 4, 8, 16)
NOT_MEASURED = "Predicted by simulation, not measured"
WIDENING = ("migrations cost nothing", "migrations cost thrice as much")
"""Assumptions that the simulation varies. The intervals of simulated capacities include the varied results."""


def by_cores(systems: Sequence[SizedSystem], evidence: CapacityEvidence) -> Figure:
    """Draw capacity against the number of cores, for the page's main proxy and the proxy that the papers measured."""
    shown = [*systems[:1], *(system for system in systems[1:] if system.system.published)]

    def draw(axis: Axes, _: int, column: int) -> None:
        system = shown[column]
        curve = _curve(system.known)
        if len(curve.x):
            draw_curve(axis, curve)
        most = max((option.cores for option in system.known.options), default=0)
        beyond = [option for option in system.extrapolated.options if option.cores >= most]
        _draw_predicted(axis, beyond, EXTRAPOLATED, 1)
        _draw_predicted(axis, system.simulated.options, SIMULATED, 2)
        _draw_predicted(axis, system.virtual.options, IN_VIRTUAL_TIME, 4)
        axis.set_xscale("log", base=2)
        axis.set_yscale("log")
        axis.xaxis.set_major_locator(FixedLocator(DRAWN_CORES))
        axis.xaxis.set_minor_locator(NullLocator())
        axis.xaxis.set_major_formatter(FuncFormatter(grouped))
        axis.yaxis.set_major_locator(LogLocator(10, (1.0, 2.0, 5.0)))
        axis.yaxis.set_major_formatter(FuncFormatter(grouped))
        axis.yaxis.set_minor_formatter(NullFormatter())
        axis.set_ylabel("capacity (cps)")

    return Figure(
        identity="figure-cores",
        draw=panels(
            [""],
            [system.system.name for system in shown],
            draw,
            "cores",
            shared=("all", "all"),
            beside=False,
        ),
        caption=f"Capacity, the load at which {100 * evidence.limit:g} % of messages are dropped, against the number "
        f"of cores.",
        seen=tuple(
            f"{system.system.name}, {_known_words(system.known.options)}." for system in shown
        ),
        reading="Each point is the largest capacity that was measured (or published) for this number of cores, with "
        'its 95\u00a0% interval. A hollow point is a lower bound of the capacity. The line "extrapolated" is a '
        'formula that is fitted to the points. The line "simulated" comes from a model of the proxy. The line "in '
        'virtual time" is the measured capacity of one core, multiplied by speed-ups of a real kernel and proxy in '
        "virtual time, in which caches cost no time. Both axes are logarithmic.",
        provenance=with_virtual_time(evidence.provenance, shown),
    )


def _curve(sizing: Sizing) -> Curve:
    known = [option for option in sizing.options if option.capacity.estimate > 0]
    return Curve(
        name=sizing.basis,
        look=look(0 if sizing.basis == MEASURED else 3),
        x=np.array([option.cores for option in known], float),
        of=Estimates.of([option.capacity for option in known]),
        runs=np.empty((len(known), 0)),
        unit="cps",
        x_names=[plural(option.cores, "core") for option in known],
        hollow=np.array([not option.settled for option in known], bool),
    )


def _draw_predicted(axis: Axes, options: Sequence[Option], name: str, i: int) -> None:
    drawn = [option for option in options if option.cores in DRAWN_CORES or option.known]
    if not drawn:
        return
    titles = [f"{name}, {plural(o.cores, 'core')}: {in_words(o.interval, 'cps')}" for o in drawn]
    cores, cps = [o.cores for o in drawn], [o.interval.estimate for o in drawn]
    draw_line(axis, cores, cps, look(i), titles, linestyle="--", label=name)


def _known_words(options: Sequence[Option]) -> str:
    words = [
        f"on {plural(option.cores, 'core')} with {plural(option.threads, 'thread')}: {capacity}"
        for option in options
        for capacity in [
            in_words(option.capacity, "cps")
            if option.settled
            else f"at least {number(option.interval.estimate)}\u00a0cps"
            if option.interval.estimate > 0
            else "less than every offered load"
        ]
    ]
    return "; ".join(words) or "no capacity is known"


def fitted(evidence: CapacityEvidence) -> Folded:
    """Make the collapsed table of scaling laws: their parameters, errors and predicted capacities for eight cores."""
    rows: list[tuple[Cell, ...]] = []
    for system in evidence.systems:
        chosen, law = choose(system.models), predictor(system, evidence)
        for model in system.models:
            if model.predict is None:
                cells = ("not fitted", "not fitted", model.why)
                rows.append((system.name, model.name, str(model.points), *cells))
                continue
            error = (
                "too few points"
                if np.isnan(model.rms_percent)
                else f"{model.rms_percent:.1f}\u00a0%"
            )
            if model is chosen:
                error += " (smallest)"
            # The law that the page uses for its answers may have another interval than the model.
            predict = law[1] if law and law[0] == model.name else model.predict
            predicted = told(predict(8), "cps")
            rows.append(
                (system.name, model.name, str(model.points), error, predicted, _parameters(model))
            )
    table = Table(
        identity="table-laws",
        places=1,
        header=(
            *("system", "law", "points", "leave-one-out error"),
            *("predicted for 8 cores (cps)", "parameters"),
        ),
        rows=tuple(rows),
        none="nothing to fit",
        caption="Scaling laws: formulas that compute the capacity from the number of cores.",
        reading="Each law is fitted to the capacity with the best number of threads, for each number of cores. A point "
        "is one such capacity. The Universal Scalability Law is C(N) = λ N / (1 + σ (N − 1) + κ N (N − 1)), "
        "where N is the number of cores and C(N) is the capacity on N cores. The parameter λ is the capacity on "
        "one core, σ describes how much cores wait for each other, and κ describes the cost of their "
        "communication. The capacity is largest at N* cores. In Amdahl's law, κ is 0. The rule of the two papers "
        "is C(p,c) = T(p,c) × C(1,1), where C(p,c) is the capacity of c cores in p processors, and T(p,c) is the "
        "best number of threads according to this rule. To compute the leave-one-out error, the law is fitted to "
        "all points but one, and then predicts this point. The table shows the root mean square (rms) of these "
        "errors. A law has 95 % intervals if the number of points exceeds the number of parameters by two or "
        "more. The interval of a prediction contains a new measurement with a probability of 95 %. If only two "
        "points exist, Amdahl's law goes through both points. The interval of its prediction is then between the "
        "laws through the lower ends and through the upper ends of the points' own intervals. The papers' "
        "system with one core ran another kernel than the papers' other systems. docs/methodology/models.md "
        "describes the laws.",
        provenance=evidence.provenance,
    )
    return Folded("Laws over cores, with their parameters and errors", (table,))


def _parameters(model: CapacityModel) -> str:
    """Return the parameters of a scaling law as text, with confidence intervals or the reason for missing intervals."""
    values = [value for _, _, value in model.parameters]
    if any(value.known for value in values):
        return "; ".join(f"{name} = {in_words(v, unit)}" for name, unit, v in model.parameters)
    said = "; ".join(
        f"{name} = {_parameter(value.estimate)} {unit}".strip()
        for name, unit, value in model.parameters
    )
    return f"{said}; n = {values[0].n}: {values[0].why}"


def _parameter(value: float) -> str:
    return "unbounded" if np.isinf(value) else "0" if abs(value) < 1e-6 else number(value)


def _by_cps(capacities: Mapping[str, float]) -> str:
    """Return capacities with the names of their settings as text. Settings with equal capacities share one entry."""
    names: dict[str, list[str]] = {}
    for name, cps in capacities.items():
        names.setdefault(grouped(cps), []).append(name)
    return "; ".join(f"{listed(of_cps)}: {cps}" for cps, of_cps in names.items())


def simulated(prediction: CapacityPrediction, simulated_rows: Sequence[Simulated]) -> Table:
    """Return a table of simulated capacities, with the best number of threads and the limiting resource.

    The table has one row per number of cores.
    """
    rows: list[tuple[Cell, ...]] = []
    for row in simulated_rows:
        tried = _by_cps({str(capacity.threads): capacity.cps for capacity in row.tried})
        others = _by_cps(row.alternatives)
        rows.append(
            (
                *(str(row.cores), str(row.threads), told(row.capacity, "cps")),
                *(f"{100 * row.receive_share:.0f} %", f"{100 * row.busy_share:.0f} %", row.bound),
                *(tried, others),
            )
        )
    fitted_to = prediction.fitted
    return Table(
        identity="table-simulated-capacity",
        header=(
            *("cores", "threads", "capacity (cps)", "receive softirqs", "busy", "limited by"),
            *("threads: capacity", "otherwise"),
        ),
        rows=tuple(rows),
        none=fitted_to.why or "nothing was simulated",
        caption="Simulated capacity for each number of cores, with the best number of threads.",
        reading="The capacity is the load at which PDR reaches its limit, or at which receive softirqs saturate a CPU. "
        'The column "receive softirqs" shows the share of time that the busiest receiving CPU needs for receive '
        'softirqs at this load. The column "busy" shows the busy share of all CPUs. The column "limited by" '
        'names what limits the capacity. The column "threads: capacity" shows the capacity in cps for each '
        'simulated number of threads. The column "otherwise" shows the capacity in cps under other assumptions. '
        'The column "busy" also counts the time after the last call starts, when the CPUs become idle. This time is a '
        "larger share of a short simulation, and simulations of high loads are short. While calls start, the CPUs are "
        "therefore busier than this column shows. "
        f"The simulated machine has {plural(prediction.cores_per_processor, 'core')} per processor, and the "
        "proxy has one socket. In the simulation, no worker waits for a lock, and neither the load generators "
        "nor the links limit the load.",
        provenance=f"{NOT_MEASURED}: {fitted_to.sut}, mode {DEFAULT}, fitted to "
        f"{plural(len(fitted_to.runs), 'run')} on one core."
        if rows
        else f"{NOT_MEASURED}.",
    )
