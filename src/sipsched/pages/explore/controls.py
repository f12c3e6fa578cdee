"""JupyterLab controls that select runs and a period of time. Each change redraws the figures."""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from sipsched.pages.explore.single import MOST_SINGLE, single
from sipsched.pages.explore.timeline import Messages, read_messages, timeline, within
from sipsched.plan.run import Run
from sipsched.records.catalogue import Catalogue
from sipsched.words import plural

LABELS = {
    "sut": "SUT",
    "mode": "mode",
    "cores": "cores",
    "threads": "threads",
    "cps": "load (cps)",
    "rep": "repetition",
}
NONE = "none"
WHOLE = ("the whole run", None)
LENGTHS_S = (10.0, 5.0, 2.0, 1.0, 0.5, 0.2, 0.1, 0.05, 0.02, 0.01, 0.005, 0.002, 0.001)
STEP_S = 0.001
WIDE, NARROW = {"width": "40em"}, {"width": "20em"}
STYLE = {"description_width": "7em"}


class RunChoice:
    """Menus that select one run, with one menu per parameter, such as mode or load. Each choice limits later menus.

    Attributes
    ----------
    menus
        The menus, by the name of their part of the run tuple. Only the mode and parts in which the runs differ have a
        menu.
    """

    def __init__(self, runs: Sequence[Run], run: Run | None, *, may_be_none: bool) -> None:
        # Import ipywidgets only inside functions, because only a notebook in JupyterLab needs it.
        import ipywidgets

        self._runs = runs
        self._may_be_none = may_be_none
        self._busy = False
        self._told: Callable[[], None] = lambda: None
        keys = [
            key for key in LABELS if len({getattr(one, key) for one in runs}) > 1 or key == "mode"
        ]
        self.menus = {
            key: ipywidgets.Dropdown(description=LABELS[key], style=STYLE, layout=NARROW)
            for key in keys
        }
        self._show({key: None if run is None else getattr(run, key) for key in keys})
        for menu in self.menus.values():
            menu.observe(self._changed, names="value")

    @property
    def run(self) -> Run | None:
        """The selected run. None if the user selected no run."""
        return next((run for run in self._runs if self._fits(run, self.menus)), None)

    def tell(self, action: Callable[[], None]) -> None:
        """Set the function that is called when the user selects another run."""
        self._told = action

    def _fits(self, run: Run, keys: Mapping[str, Any] | Sequence[str]) -> bool:
        return all(self.menus[key].value == getattr(run, key) for key in keys)

    def _show(self, wanted: Mapping[str, Any]) -> None:
        """Fill each menu with the values that the earlier menus allow, and select the wanted values."""
        before: list[str] = []
        for key, menu in self.menus.items():
            there = sorted({getattr(run, key) for run in self._runs if self._fits(run, before)})
            none = [(NONE, None)] if self._may_be_none and not before else []
            menu.options = [*none, *((str(value), value) for value in there)]
            if wanted[key] in there or (none and wanted[key] is None):
                menu.value = wanted[key]
            else:
                menu.value = there[0] if there else None
            before.append(key)

    def _changed(self, change: Any) -> None:
        if self._busy:
            return
        self._busy = True
        try:
            self._show({key: menu.value for key, menu in self.menus.items()})
        finally:
            self._busy = False
        self._told()


class Stretch:
    """Controls that select a period of time.

    Attributes
    ----------
    start, length, buttons
        A slider for the start in s, a menu for the length in s (None is the whole run), and buttons that move the
        period.
    """

    def __init__(self) -> None:
        import ipywidgets

        self._busy = False
        self._told: Callable[[], None] = lambda: None
        self.start = ipywidgets.FloatSlider(
            value=0.0,
            min=0.0,
            max=STEP_S,
            step=STEP_S,
            description="from (s)",
            readout_format=".3f",
            continuous_update=False,
            layout=WIDE,
            style=STYLE,
        )
        self.length = ipywidgets.Dropdown(
            options=[WHOLE, *((f"{length_s:g}", length_s) for length_s in LENGTHS_S)],
            description="show (s)",
            layout=NARROW,
            style=STYLE,
        )
        self.buttons = {
            name: ipywidgets.Button(description=name)
            for name in ("earlier", "later", "slowest message", "whole run")
        }
        self.buttons["earlier"].on_click(lambda _: self._move(-0.5))
        self.buttons["later"].on_click(lambda _: self._move(0.5))
        self.buttons["whole run"].on_click(lambda _: self.show(0.0, None))
        for control in (self.start, self.length):
            control.observe(self._changed, names="value")

    def tell(self, action: Callable[[], None]) -> None:
        """Set the function that is called when the user selects another period."""
        self._told = action

    def show(self, start_s: float, length_s: float | None) -> None:
        """Set the controls to a period of time, which redraws the figures."""
        self._busy = True
        try:
            self.length.value = length_s
            self.start.value = start_s
        finally:
            self._busy = False
        self._changed(None)

    def end_at(self, longest_s: float) -> None:
        """Set the end of the slider to the end of the longest shown run."""
        self._busy = True
        try:
            self.start.max = max(longest_s, STEP_S)
        finally:
            self._busy = False

    def _move(self, by: float) -> None:
        if self.length.value is not None:
            self.show(self.start.value + by * self.length.value, self.length.value)

    def _changed(self, change: Any) -> None:
        if not self._busy:
            self._told()


def controls(runs: Catalogue) -> Any:
    """Make controls that select one or two runs and a period of time, which can be as short as a single message.

    Parameters
    ----------
    runs
        Runs that can be selected. Initially, the runs at the lowest and the highest load of one setting are selected.

    Raises
    ------
    StableError
        No run has recorded single messages.
    """
    import ipywidgets

    known = [run for run in runs.runs if runs.has_messages(run)]
    if not known:
        raise runs.without_messages(runs.runs[0])
    first, *other = default_pair(known)
    left = RunChoice(known, first, may_be_none=False)
    right = RunChoice(known, other[0] if other else None, may_be_none=True)
    stretch = Stretch()
    read = lru_cache(maxsize=4)(lambda run: read_messages(runs, run))
    # Avoid an Output widget, because nbclient waits forever for an Output widget to end.
    shown = ipywidgets.HTML()

    def chosen() -> list[Messages]:
        return [read(run) for run in dict.fromkeys((left.run, right.run)) if run is not None]

    def draw() -> None:
        runs = chosen()
        stretch.end_at(max(run.length_s for run in runs))
        length_s = stretch.length.value
        start_s = 0.0 if length_s is None else stretch.start.value
        shown.value = timeline(runs, start_s, length_s)._repr_html_() + "".join(
            _one_by_one(run, start_s, length_s or run.length_s) for run in runs
        )

    def to_slowest(_: Any) -> None:
        start_s = 0.0 if stretch.length.value is None else stretch.start.value
        span = around_slowest(chosen()[0], start_s, stretch.length.value)
        if span is not None:
            stretch.show(*span)

    stretch.buttons["slowest message"].on_click(to_slowest)
    for control in (left, right, stretch):
        control.tell(draw)
    draw()
    columns = [
        ipywidgets.VBox([ipywidgets.Label(title), *choice.menus.values()])
        for title, choice in (("run", left), ("beside it", right))
    ]
    return ipywidgets.VBox(
        [
            ipywidgets.HBox(columns),
            stretch.start,
            ipywidgets.HBox([stretch.length, *stretch.buttons.values()]),
            shown,
        ]
    )


def default_pair(runs: Sequence[Run]) -> tuple[Run, ...]:
    """Return two runs: the first repetitions at the lowest and highest load, in mode `default` if possible."""
    first = next((run for run in runs if run.mode == "default"), runs[0])
    alike = [run for run in runs if run.point == first.point]
    loads = dict.fromkeys((min(run.cps for run in alike), max(run.cps for run in alike)))
    return tuple(
        min((run for run in alike if run.cps == cps), key=lambda run: run.rep) for cps in loads
    )


def around_slowest(
    messages: Messages, start_s: float, length_s: float | None
) -> tuple[float, float] | None:
    """Return the longest period with at most `MOST_SINGLE` messages around the message with the longest wait.

    Parameters
    ----------
    start_s, length_s
        Period in which the longest wait is searched. A length of None extends the period to the end of the run.

    Returns
    -------
    start_s, length_s
        The period. The message arrives in its middle. None if no wait is known in the searched period.
    """
    seen = within(
        messages.at_s, start_s, messages.length_s if length_s is None else start_s + length_s
    )
    wait = messages.wait_us[seen]
    if not len(wait) or np.isnan(wait).all():
        return None
    at_s = float(messages.at_s[seen][int(np.nanargmax(wait))])
    for length in LENGTHS_S:
        begin = max(0.0, at_s - length / 2)
        stretch = within(messages.at_s, begin, begin + length)
        if stretch.stop - stretch.start <= MOST_SINGLE:
            break
    return begin, length


def _one_by_one(messages: Messages, start_s: float, length_s: float) -> str:
    figure = single(messages, start_s, length_s)
    if figure is not None:
        return figure._repr_html_()
    stretch = within(messages.at_s, start_s, start_s + length_s)
    count = stretch.stop - stretch.start
    if not count:
        return "<p>No message arrived in this period.</p>"
    return (
        f"<p>{plural(count, 'message')} arrived in this period, but at most {MOST_SINGLE} are drawn individually. "
        f"Select a shorter period, or the slowest message.</p>"
    )
