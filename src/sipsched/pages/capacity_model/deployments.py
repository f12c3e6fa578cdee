"""Speed-ups of deployments by cores, predicted by simulation."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.ticker import FuncFormatter

from sipsched.pages.capacity_model.simulated import SIMULATED
from sipsched.pages.drawing import INK, MARKERS, NARROW_IN, SERIES, STYLE, WIDTH_IN, legend, themed
from sipsched.pages.parts import Figure, Table, Words
from sipsched.records.speedups import Speedup, read_speedups
from sipsched.words import grouped, number, plural

NONE = "No deployment was simulated."
FROM = f"{SIMULATED}, with the fit to the campaign that comes with the repository."
ONE, EACH = "one CPU receives", "each core receives"
LOCK = "assumed lock share"


def read(path: Path) -> tuple[Speedup, ...]:
    """Read what was simulated; nothing where it was not."""
    return read_speedups(path) if path.is_file() else ()


def words(rows: Sequence[Speedup]) -> Words:
    """Say what each deployment gains with cores, by transport."""
    lines = []
    for transport in dict.fromkeys(row.transport for row in rows):
        for who in (ONE, EACH):
            among = [
                row
                for row in rows
                if row.transport == transport and who in row.model and LOCK not in row.model
            ]
            if not among:
                continue
            most = max(row.cores for row in among)
            last = [row for row in among if row.cores == most]
            said = ", ".join(
                f"{row.deployment} {_times(row)}"
                for row in sorted(last, key=lambda row: -row.capacity_cps)
            )
            lines.append(
                f"{SIMULATED}: over {transport.upper()}, {who}, {plural(most, 'core')} "
                f"{'carries' if most == 1 else 'carry'} as many times what one carries: {said}."
            )
    locked = [row for row in rows if LOCK in row.model]
    if locked:
        most = max(row.cores for row in locked)
        said = ", ".join(
            f"{row.deployment} over {row.transport.upper()} {_times(row)}"
            for row in locked
            if row.cores == most
        )
        share = locked[0].model.partition(LOCK)[2].strip()
        lines.append(
            f"Were {number(100 * float(share))} % of the service time under one lock, as was fitted to the papers' "
            f"OpenSIPS, {plural(most, 'core')} would carry: {said}. Instances share none."
        )
    if rows:
        lines.append(
            "Assumed: the lock within a socket costs nothing, a message over TCP takes as much more on any number of "
            "cores as it took on one, costs of a migration; the UAC has the connections that the table names, "
            "the UAS one an instance."
        )
    return Words(tuple(lines) or (NONE,))


def figure(rows: Sequence[Speedup]) -> Figure | Words:
    """Draw speed-up by cores, a panel for who receives and a line a deployment."""
    plain = [row for row in rows if LOCK not in row.model]
    if not plain:
        return Words((NONE,))
    caption = (
        "Speed-up by cores, both in logarithmic steps: the capacity over that of the same deployment on one core, "
        "with intervals of fits to samples of the recorded runs; dashed over TCP; dotted: as many times as cores."
    )
    most = [row for row in plain if row.cores == max(each.cores for each in plain)]
    seen = " ".join(
        f"{row.deployment} over {row.transport.upper()}, {plural(row.cores, 'core')}: {_times(row)}."
        for row in most
    )
    return Figure(
        identity="figure-simulated-speedups",
        svg=_draw(plain, WIDTH_IN),
        narrow=_draw(plain, NARROW_IN),
        alt=f"Speed-up by cores and deployment by simulation. {caption} {seen}",
        caption=caption,
        seen=(),
        provenance=FROM,
    )


def table(rows: Sequence[Speedup]) -> Table:
    """List capacity and speed-up of every deployment by cores."""
    return Table(
        identity="table-simulated-speedups",
        header=(
            *("transport", "deployment", "cores", "threads", "receiving CPUs"),
            *("capacity (cps)", "speed-up", "model"),
        ),
        rows=tuple(
            (
                *(row.transport, row.deployment, str(row.cores), str(row.threads)),
                *(str(row.receive_cpus), _interval(row.capacity_cps, row.low, row.high)),
                *(_interval(row.speedup, row.speedup_low, row.speedup_high), row.model),
            )
            for row in rows
        ),
        none=NONE,
        caption="Capacity of deployments by cores by simulation, with the number of threads that carries most of those "
        "tried, and over that of one core.",
        provenance=FROM,
        shown=24,
    )


def _interval(estimate: float, low: float, high: float) -> str:
    if not np.isfinite([low, high]).all():
        return grouped(estimate) if estimate >= 100 else number(estimate)
    write = grouped if estimate >= 100 else number
    return f"{write(estimate)} ({write(low)} to {write(high)})"


def _times(row: Speedup) -> str:
    return f"{_interval(row.speedup, row.speedup_low, row.speedup_high)} ({grouped(row.capacity_cps)} cps)"


def _draw(rows: Sequence[Speedup], width: float) -> str:
    panels = [who for who in (ONE, EACH) if any(who in row.model for row in rows)]
    kinds = list(dict.fromkeys((row.transport, row.deployment) for row in rows))
    wide = width >= WIDTH_IN
    shape = (1, len(panels)) if wide else (len(panels), 1)
    with rc_context({**STYLE, "font.size": 8.5}):
        canvas = Canvas(
            figsize=(width, 3.4 if wide else 2.6 * len(panels) + 1), layout="constrained"
        )
        grid = np.array(canvas.subplots(*shape, sharey=True, squeeze=False)).ravel()
        for axis, who in zip(grid, panels, strict=True):
            among = [row for row in rows if who in row.model]
            cores = sorted({row.cores for row in among})
            axis.plot(cores, cores, color=INK, linestyle=":", linewidth=0.8)
            for place, (transport, deployment) in enumerate(kinds):
                line = [
                    row
                    for row in among
                    if (row.transport, row.deployment) == (transport, deployment)
                ]
                _line(axis, line, place, f"{deployment}, {transport.upper()}")
            axis.set_xscale("log", base=2)
            axis.set_yscale("log", base=2)
            axis.set_xticks(cores, [grouped(value) for value in cores])
            axis.yaxis.set_major_formatter(FuncFormatter(grouped))
            axis.set_title(who)
            axis.set_xlabel("cores")
        grid[0].set_ylabel("speed-up")
        legend(canvas, grid, columns=4 if wide else 2)
        return themed(canvas)


def _line(axis: Axes, rows: Sequence[Speedup], place: int, label: str) -> None:
    if not rows:
        return
    cores = [row.cores for row in rows]
    colour = SERIES[place % len(SERIES)]
    axis.vlines(
        cores, [row.speedup_low for row in rows], [row.speedup_high for row in rows], color=colour
    )
    axis.plot(
        cores,
        [row.speedup for row in rows],
        color=colour,
        marker=MARKERS[place % len(MARKERS)],
        linestyle="--" if rows[0].transport == "tcp" else "-",
        label=label,
    )
