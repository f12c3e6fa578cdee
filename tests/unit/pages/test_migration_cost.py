"""Tests of the page on the cost of migration, on data with a known best cost."""

import json
import re

import numpy as np
import pytest
import synthetic

from sipsched.errors import StableError
from sipsched.pages import migration_cost

COSTS = (0, 100_000, 250_000, 500_000, 1_000_000, 2_500_000, 5_000_000)
BEST = {2: 0, 4: 0, 6: 500_000}
SPOTS = ((2, 4, 4200), (4, 6, 5400), (6, 8, 6200))


def plan(costs=COSTS, reps=5, spots=SPOTS):
    return [
        synthetic.Run(
            mode=f"enhanced+migration_cost_ns={cost}", cores=c, threads=t, cps=cps, rep=rep
        )
        for cost in costs
        for c, t, cps in spots
        for rep in range(1, reps + 1)
    ]


def outcome(run, unavailable="", applied=None):
    cost = int(run.mode.partition("=")[2])
    distance = abs(np.log10(cost + 1e4) - np.log10(BEST[run.cores] + 1e4))
    values = synthetic.two_modes(run, translated=False)
    step = synthetic.step("migration_cost_ns", cost, place="file", unavailable=unavailable)
    step["applied"] = step["applied"] if applied is None else applied
    luck = 1 + 0.01 * run.rep
    settings = {"translated": False, "steps": [step], "in_force": {"file": str(step["applied"])}}
    return values | {
        "pdr": 0.008 * luck * (1 + distance),
        "k_rcv_mean": 200 * luck * (1 + distance),
        "mode_settings": json.dumps(settings),
    }


def test_the_cost_is_read_from_the_modes_name():
    assert migration_cost.cost_of("enhanced+migration_cost_ns=250000") == 250_000
    assert migration_cost.cost_of("enhanced") is None


def test_the_best_cost_is_found_and_compared_with_the_default():
    study = migration_cost.study(synthetic.combined(plan(), outcome))
    assert len(study.points) == 21
    assert study.against.tests == 2 * 3 * 6
    (free,) = [
        cell
        for asked, cell in study.against.cells.items()
        if (asked.spot.place.cores, asked.mode, asked.quantity)
        == (2, "enhanced+migration_cost_ns=0", "pdr")
    ]
    assert free.comparison.percent_lower.estimate == pytest.approx(63.0, abs=0.1)
    assert free.p_value < 0.001
    line = migration_cost.answer(study).line
    for change in ("the proxy drops fewer messages", "messages wait for a shorter time"):
        assert f"With a migration cost of 0, {change} at " in line
    text = " ".join(migration_cost.best(study).lines)
    # the text names the best cost for PDR and for K_rcv, each on 2, 4 and 6 cores
    lowest = re.findall("is lowest.*? at a cost of ([^,;:.]+)", text)
    assert lowest == [*["0"] * 4, *["500\u00a0µs"] * 2]
    table = migration_cost.costs(study)
    assert len(table.rows) == 21
    assert len(table.rows[0]) == len(table.header)


def test_the_mode_of_a_cost_is_identified_by_its_effective_settings():
    def told(translated, **more):
        def run_of(run):
            values = outcome(run)
            settings = json.loads(values["mode_settings"]) | {"translated": translated}
            settings["steps"].append(synthetic.step("latency_ns", 1, **more))
            return values | {"mode_settings": json.dumps(settings)}

        study = migration_cost.study(synthetic.combined(plan(), run_of))
        return migration_cost.curves(study).caption

    assert "all other settings are those of enhanced (EEVDF translation)." in told(
        True, unavailable="no"
    )
    assert "all other settings are those of enhanced (without latency_ns)." in told(
        False, unavailable="no"
    )
    assert "all other settings are those of enhanced." in told(False)


def test_noise_is_not_reported_as_a_best_cost():
    def noise(run):
        rng = np.random.default_rng([run.cores, run.rep, int(run.mode.partition("=")[2])])
        luck = np.exp(0.3 * rng.standard_normal(2))
        return outcome(run) | {"pdr": 0.01 * luck[0], "k_rcv_mean": 200 * luck[1]}

    study = migration_cost.study(synthetic.combined(plan(), noise))
    line = migration_cost.answer(study).line
    assert line.startswith("No migration cost changes waits or drops by more than chance explains")
    (detectable,) = re.findall(r"decrease of the mean wait K_rcv by at least (\d+)", line)
    assert 20 < int(detectable) < 100
    assert "decrease of the drop rate by at least " in line
    lines = migration_cost.best(study).lines
    said = [line for line in lines if "PDR is lowest" in line]
    assert len(said) == 3
    assert all(
        "indistinguishable from chance" in line or "is the default cost" in line for line in said
    )


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (
            {"unavailable": "locked down"},
            "this kernel does not allow setting the cost: locked down",
        ),
        ({"applied": 7}, "the kernel applied another cost, 7\u00a0ns"),
    ],
)
def test_costs_that_were_not_in_force_are_not_drawn(options, why):
    study = migration_cost.study(synthetic.combined(plan(), lambda run: outcome(run, **options)))
    assert all(point.why == why for point in study.points)
    figure = migration_cost.curves(study)
    assert f"There is nothing to show yet ({why})." in figure.seen
    assert not study.against.cells
    assert all(row[3] == why for row in migration_cost.costs(study).rows)


def test_records_without_the_cost_in_force_are_not_drawn():
    def silent(run):
        return outcome(run) | {"mode_settings": "{}"}

    study = migration_cost.study(synthetic.combined(plan(), silent))
    assert (
        "There is nothing to show yet (the record does not say"
        in migration_cost.curves(study).seen[0]
    )


def test_a_partly_measured_study_and_an_empty_study_are_shown():
    def half(run):
        return outcome(run) if run.cores == 2 and not run.mode.endswith("=500000") else None

    study = migration_cost.study(synthetic.combined(plan(), half))
    text = " ".join(migration_cost.best(study).lines)
    assert "The figure excludes these costs (not measured: 5 missing): " in text
    assert "The default, 500\u00a0µs, was not measured" in text
    assert "default not measured" in migration_cost.costs(study)._repr_html_()
    nothing = migration_cost.study(synthetic.combined(plan(), lambda run: None))
    assert (
        migration_cost.answer(nothing).line == "There is no answer yet (not measured: 5 missing)."
    )
    assert "no costs are compared" in migration_cost.costs(nothing).reading
    assert (
        "There is nothing to show yet (not measured: 5 missing)."
        in migration_cost.curves(nothing).seen
    )


def test_one_core_and_one_run_are_named():
    study = migration_cost.study(synthetic.combined(plan(reps=1, spots=SPOTS[:1]), outcome))
    assert "(one run)" in " ".join(migration_cost.best(study).lines)
    assert migration_cost.answer(study).line.startswith("There is no answer yet. To compare costs")
    alone = [synthetic.Run(mode="enhanced+migration_cost_ns=0", cores=1)]
    lines = migration_cost.best(
        migration_cost.study(synthetic.combined(alone, lambda run: None))
    ).lines
    assert any("With one core, workers cannot migrate" in line for line in lines)


def test_a_study_without_costs_is_refused():
    with pytest.raises(StableError, match="no mode of this study overrides it"):
        migration_cost.study(synthetic.combined([synthetic.Run()], lambda run: None))
