"""The share of messages that take longer than a given time, for groups of runs."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter

from sipsched.analysis.exceedance import exceedance
from sipsched.errors import StableError
from sipsched.pages.drawing import SERIES, titled
from sipsched.pages.explore.timeline import Messages, provenance
from sipsched.pages.numbers import in_us
from sipsched.pages.parts import Figure
from sipsched.pages.plots import log_ticks, look, mode_look, panels
from sipsched.plan.run import Run
from sipsched.words import grouped, number, plural

Values = npt.NDArray[np.float64]
PANELS = ("K_rcv: wait", "T_sip: service", "K_rcv + T_sip")
SLOW = 0.01
NOUNS = {"cores": "core", "threads": "thread"}
"""Nouns that follow the numeric parameters of a run in its name, such as "threads" in "4 threads"."""


def ccdf(runs: Sequence[Messages], by: Sequence[str] | None = None) -> Figure:
    """Draw the share of messages that take longer than a given time, for wait (K_rcv), service (T_sip) and their sum.

    Parameters
    ----------
    by
        Parts of the run tuple by which runs are grouped. Each group has a line, the mean of its runs, and a band from
        the lowest to the highest run. None selects every part in which the runs differ, except the repetition.

    Raises
    ------
    StableError
        The figure would have more lines than colours.
    """
    keys = _varied(runs, by)
    groups: dict[str, list[Messages]] = {}
    for run in runs:
        groups.setdefault(_name(run.run, keys), []).append(run)
    if len(groups) > len(SERIES):
        raise StableError(
            f"{len(groups)} groups of runs ({', '.join(groups)}), but a figure has only {len(SERIES)} colours. Select "
            f"fewer runs with sel"
        )

    def draw(axis: Axes, row: int, column: int) -> None:
        for i, (name, members) in enumerate(groups.items()):
            style = mode_look(members[0].run.mode) if keys == ["mode"] else look(i)
            _draw(axis, [_times(run)[column] for run in members], name, style.color)
        axis.set_xscale("log")
        axis.set_yscale("log")
        log_ticks(axis.xaxis)
        axis.yaxis.set_major_formatter(FuncFormatter(lambda share, _: f"{100 * share:g} %"))
        axis.set_ylabel("share that takes longer")

    return Figure(
        identity="figure-ccdf",
        draw=panels([""], PANELS, draw, "time (µs)", shared=("", "all")),
        caption="The share of received messages that take longer than the time on the x axis.",
        reading="If a line is lower, fewer messages take longer than a given time. A line is the mean of the runs. A "
        "point marks the time that one message in a hundred exceeds. The band around the line reaches from the "
        "run with the lowest share to the run with the highest share. The proxy never receives datagrams that "
        "the full socket refused, so the lines exclude them.",
        seen=tuple(_words(name, members) for name, members in groups.items()),
        provenance=provenance(runs),
    )


def _times(run: Messages) -> tuple[Values, Values, Values]:
    """Return the wait (K_rcv), the service time (T_sip) and their sum for each message, in µs."""
    return run.wait_us, run.service_us, run.wait_us + run.service_us


def _varied(runs: Sequence[Messages], by: Sequence[str] | None) -> list[str]:
    """Return the names of the run parameters, such as "mode" or "cps", in which the runs differ."""
    keys = ("sut", "mode", "cores", "threads", "cps") if by is None else by
    return [key for key in keys if len({getattr(run.run, key) for run in runs}) > 1]


def _name(run: Run, keys: Sequence[str]) -> str:
    """Return the name of a run as text, made of the parameters in `keys`, such as "default, 4 threads, 900 cps"."""
    named = []
    for key in keys or ("mode", "cps"):
        value = getattr(run, key)
        counted = plural(value, NOUNS[key]) if key in NOUNS else str(value)
        named.append(f"{grouped(value)} cps" if key == "cps" else counted)
    return ", ".join(named)


def _draw(axis: Axes, runs: Sequence[Values], name: str, color: str) -> None:
    found_exceedance = exceedance(runs)
    if found_exceedance is None:
        return
    some = found_exceedance.mean > 0
    axis.plot(found_exceedance.at[some], found_exceedance.mean[some], color=color, label=name)
    slow = np.flatnonzero(found_exceedance.mean <= SLOW)
    if slow.size:
        us = float(np.nanpercentile(np.concatenate(runs), 100 * (1 - SLOW)))
        (point,) = axis.plot([us], [SLOW], "o", color=color, markersize=4)
        titled(point, [f"{name}: 1 in 100 messages takes {in_us(us)} or longer"])
    band = found_exceedance.lowest > 0
    if len(found_exceedance.shares) > 1:
        axis.fill_between(
            found_exceedance.at[band],
            found_exceedance.lowest[band],
            found_exceedance.highest[band],
            color=color,
            alpha=0.25,
            linewidth=0,
        )


def _words(name: str, runs: Sequence[Messages]) -> str:
    """Return a sentence with the 99th percentiles of message times and the number of refused datagrams of runs."""
    slow = [np.nanpercentile(total, 99) for run in runs if _known(total := _times(run)[2])]
    received = sum(len(run.at_s) for run in runs)
    refused = sum(len(run.drop_at_s) for run in runs)
    text = f"{name}, {plural(len(runs), 'run')}: "
    if slow:
        low, high = number(min(slow)), number(max(slow))
        text += "one message in a hundred takes longer than " + (
            f"{low} µs" if low == high else f"{low} to {high} µs, depending on the run"
        )
    else:
        text += "no message has both times, K_rcv and T_sip"
    return (
        f"{text}. Of {grouped(received + refused)} messages that reached the proxy, its full socket refused "
        f"{grouped(refused)}."
    )


def _known(values: Values) -> bool:
    return bool((~np.isnan(values)).any())
