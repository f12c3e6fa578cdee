"""Tests of the recommendation of a mode, on windows with known effects."""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import synthetic
from synthetic import Run

from sipsched.analysis import advice
from sipsched.analysis.advice import Advice, ModeEffect
from sipsched.plan.run import Point
from sipsched.records.crossing import SearchRecord
from sipsched.records.system_capacity import SystemCapacity
from sipsched.records.window_time import SWITCH
from sipsched.records.windows import write_windows

MODES = "default,batch,fifo"
FIFO = {"total_p99": -0.5, "total_mean": -0.2, "k_rcv_mean": 0.3}


def decided(*runs: Any, crossings: Any = ()) -> Advice:
    (result,) = advice.advise(advice.loads_of(runs, crossings))
    return result


def verdicts(found: Advice) -> dict[str, ModeEffect]:
    return {candidate.mode: candidate.verdict for candidate in found.rankings[0].candidates}


def test_a_mode_that_lowers_the_sum_beats_the_reference_and_is_ranked_first() -> None:
    effects = {"default": {}, "batch": {"total_p99": 0.4}, "fifo": FIFO}
    decision = decided(synthetic.windows(Run(mode=MODES), effects))
    (ranking,) = decision.rankings
    assert verdicts(decision) == {"fifo": ModeEffect.BETTER, "batch": ModeEffect.WORSE}
    assert ranking.best is not None
    assert ranking.best.mode == "fifo"
    assert ranking.best.decided_by == "total_p99"
    assert decision.tests == 4
    interval = ranking.best.effects["total_p99"].interval
    assert interval.low < -0.5 < interval.high
    assert interval.level == pytest.approx(1 - 0.05 / 4)
    # only the deciding quantity K_rcv + T_sip has a corrected level; K_rcv is a part of the sum and cannot be a cost
    assert ranking.best.effects["k_rcv_mean"].interval.level == 0.95
    assert ranking.best.costs == ()


def test_the_mean_decides_if_the_99th_percentile_is_within_chance() -> None:
    effects = {"default": {}, "fifo": {"total_mean": -0.3}}
    decision = decided(synthetic.windows(Run(mode="default,fifo"), effects))
    (candidate,) = decision.rankings[0].candidates
    assert candidate.verdict is ModeEffect.BETTER
    assert candidate.decided_by == "total_mean"


@pytest.mark.parametrize(
    ("cost", "named"),
    [
        ({"cpu_per_message": 0.2}, ("cpu_per_message",)),
        ({"pdr": 0.02}, ("pdr",)),
        ({"total_mean": 0.3}, ("total_mean",)),
        ({"k_rcv_mean": 2.0}, ()),
    ],
)
def test_a_cost_makes_a_mode_a_trade(cost: dict[str, float], named: tuple[str, ...]) -> None:
    effects = {"default": {}, "fifo": FIFO | cost}
    decision = decided(synthetic.windows(Run(mode="default,fifo"), effects))
    (candidate,) = decision.rankings[0].candidates
    assert candidate.costs == named
    assert candidate.verdict is (ModeEffect.TRADE if named else ModeEffect.BETTER)


@pytest.mark.parametrize(("rise", "named"), [(0.005, ()), (0.02, ("cpu_per_message",))])
def test_a_certain_rise_of_the_cpu_time_by_half_a_percent_is_no_cost(
    rise: float, named: tuple[str, ...]
) -> None:
    effects = {"default": {}, "fifo": FIFO | {"cpu_per_message": rise}}
    decision = decided(synthetic.windows(Run(mode="default,fifo"), effects, spread=0.002))
    (candidate,) = decision.rankings[0].candidates
    assert candidate.effects["cpu_per_message"].interval.low > 0
    assert candidate.costs == named


def test_modes_without_effect_are_rarely_advised() -> None:
    """In 20 campaigns of 12 comparisons each, about 1 in 20 may show a false effect."""
    effects = {"default": {}, "batch": {}, "fifo": {}}
    advised = 0
    for seed in range(20):
        runs = [synthetic.windows(Run(mode=MODES, cps=c), effects, seed=seed) for c in (1000, 1600)]
        (result,) = advice.advise(advice.loads_of(runs), quantities=())
        assert result.tests == 8
        advised += any(ranking.best for ranking in result.rankings)
    assert advised <= 3


def test_equal_windows_are_recognised_with_and_without_an_interval() -> None:
    effects = {"default": {}, "fifo": {}}
    close = decided(synthetic.windows(Run(mode="default,fifo"), effects, spread=0.01))
    equal = decided(synthetic.windows(Run(mode="default,fifo"), effects, spread=0))
    assert verdicts(close) == verdicts(equal) == {"fifo": ModeEffect.ALIKE}
    assert close.rankings[0].alike
    assert equal.rankings[0].alike
    assert math.isnan(equal.rankings[0].detectable())


def test_an_effect_within_the_effect_of_the_sham_is_ignored() -> None:
    effects = {"default": {}, "batch": {"total_p99": -0.3}, "fifo": {"total_p99": -1.5}}
    decision = decided(synthetic.windows(Run(mode=MODES), effects, sham={"total_p99": -0.3}))
    (ranking,) = decision.rankings
    assert ranking.floors["total_p99"] > 0.3
    assert ranking.floors["total_mean"] == 0
    assert verdicts(decision) == {"fifo": ModeEffect.BETTER, "batch": ModeEffect.UNSURE}


def test_a_sham_without_effect_sets_no_floor() -> None:
    effects = {"default": {}, "fifo": FIFO}
    (ranking,) = decided(synthetic.windows(Run(mode="default,fifo"), effects)).rankings
    assert set(ranking.floors.values()) == {0.0}


def test_comparisons_with_the_same_reference_share_a_ranking() -> None:
    """A mode that occurs in two comparisons is judged by the runs of both comparisons."""
    first = {"default": {}, "batch": {"total_p99": 0.1}, "fifo": FIFO}
    second = {"default": {}, "rr": {}, "fifo": FIFO}
    decision = decided(
        synthetic.windows(Run(mode=MODES), first),
        synthetic.windows(Run(mode="default,rr,fifo"), second, seed=2),
    )
    (ranking,) = decision.rankings
    assert ranking.load.modes == ("batch", "fifo", "rr")
    by_mode = {candidate.mode: candidate.effects["total_p99"] for candidate in ranking.candidates}
    assert by_mode["fifo"].runs == 2
    assert by_mode["rr"].runs == 1
    assert ranking.sham["total_p99"].runs == 2


def test_references_proxies_and_loads_are_separate_groups() -> None:
    effects = {"default": {}, "fifo": FIFO}
    other = {"fifo": {}, "default": {}}
    runs = [synthetic.windows(Run(mode="default,fifo", cps=cps), effects) for cps in (1600, 1000)]
    runs.append(synthetic.windows(Run(mode="fifo,default"), other))
    runs.append(synthetic.windows(Run(sut="opensips-udp", mode="default,fifo"), effects))
    loads = advice.loads_of(runs)
    assert [(load.place.sut, load.place.reference, load.cps) for load in loads] == [
        ("kamailio-udp", "default", 1000),
        ("kamailio-udp", "default", 1600),
        ("kamailio-udp", "fifo", 1000),
        ("opensips-udp", "default", 1000),
    ]
    assert len(advice.advise(loads)) == 3


@pytest.mark.parametrize(
    ("mode", "reference"),
    [
        ("default,fifo", "default"),
        ("default,default+threads=2", "8 workers"),
        ("default,default+sut=kamailio-udp-fm", "kamailio-udp"),
        ("default,default+sut=kamailio-udp-fm+threads=2", "kamailio-udp with 8 workers"),
    ],
)
def test_instances_are_a_group_whose_reference_names_what_differs(
    mode: str, reference: str
) -> None:
    effects: dict[str, dict[str, float]] = {name: {} for name in mode.split(",")}
    plain = synthetic.windows(Run(mode="default,batch"), {"default": {}, "batch": {}})
    loads = advice.loads_of([plain, synthetic.windows(Run(mode=mode), effects)])
    assert [load.one_instance for load in loads] == (
        [True] if reference == "default" else [True, False]
    )
    assert loads[-1].label("default") == reference


def test_a_load_is_a_share_of_the_capacity_and_names_its_search() -> None:
    run = synthetic.windows(Run(mode="baseline,enhanced"), {"baseline": {}, "enhanced": {}})

    def crossing(mode: str, lower: int, sut: str = "kamailio-udp") -> SearchRecord:
        return SearchRecord(Point("synthetic", sut, mode, 1, 8), mode, lower, lower + 100, ())

    def load(
        *crossings: SearchRecord, capacities: Sequence[SystemCapacity] = ()
    ) -> advice.ComparedLoad:
        (result,) = advice.loads_of([run], crossings, capacities)
        return result

    assert load().planned_cps is None and load().share is None
    assert load(crossing("default", 900, "opensips-udp")).planned_cps is None
    assert load(crossing("default", 2000)).planned_cps == 2000
    assert load(crossing("default", 2000), crossing("baseline", 1250)).planned_cps == 1250
    of_default, of_baseline = (
        synthetic.capacity(cps, mode=mode) for mode, cps in (("default", 2000), ("baseline", 1600))
    )
    assert load(capacities=[of_default]).share == 0.5
    assert load(capacities=[of_default, of_baseline]).share == 1000 / 1600
    at_least = synthetic.capacity(None, highest_cps=1800)
    assert load(capacities=[at_least]).share is None


def test_runs_that_differ_give_no_advice() -> None:
    apart = [
        synthetic.windows(
            Run(mode="default,fifo", rep=rep), {"default": {}, "fifo": {"total_p99": effect}}
        )
        for rep, effect in ((1, -0.9), (2, -0.1), (3, 0.3))
    ]
    (candidate,) = decided(*apart).rankings[0].candidates
    assert not candidate.effects["total_p99"].conditional
    assert candidate.verdict is ModeEffect.UNSURE


def test_a_mode_is_compared_with_both_windows_of_the_reference() -> None:
    run = synthetic.windows(Run(mode="default,fifo"), {"default": {}, "fifo": FIFO})
    (load,) = advice.loads_of([run])
    (table,) = load.tables("fifo", "total_p99")
    logs = np.log(table)
    expected = (logs[:, 2] - logs[:, :2].mean(axis=1)).mean()
    assert load.effect("fifo", "total_p99").interval.estimate == pytest.approx(expected)
    expected = (logs[:, 1] - logs[:, 0]).mean()
    assert load.effect("sham", "total_p99").interval.estimate == pytest.approx(expected)


def test_one_comparison_of_a_reference_with_itself_has_one_interval() -> None:
    """The table of washouts and the ranking of modes print the same interval for the same comparison."""
    effects = {"default": {}, "batch": {}, "fifo": FIFO}
    (ranking,) = decided(synthetic.windows(Run(mode=MODES), effects)).rankings
    assert ranking.tests > ranking.sham_tests
    for arm, tests in (("sham", ranking.sham_tests), ("fifo", ranking.tests)):
        judged = {"sham": ranking.sham} | {
            candidate.mode: candidate.effects for candidate in ranking.candidates
        }
        for quantity in advice.DECIDING:
            assert ranking.load.change(arm, quantity, tests).first == judged[arm][quantity]


def test_a_mode_without_valid_windows_is_unknown() -> None:
    effects = {"default": {}, "fifo": FIFO}
    spoilt = dict.fromkeys(range(118), SWITCH)
    run = synthetic.windows(Run(mode="default,fifo"), effects, left_out=spoilt)
    assert (run["left_out"] == SWITCH).mean() > 0.9
    every = run.assign(left_out=run["left_out"] * 0 + SWITCH)
    decision = decided(every)
    assert verdicts(decision) == {"fifo": ModeEffect.UNKNOWN}
    assert not decision.rankings[0].judged
    assert decision.tests == 0
    one = every.assign(left_out=every["left_out"].where(every["block"] != 3, 0))
    decision = decided(one)
    assert verdicts(decision) == {"fifo": ModeEffect.UNKNOWN}
    assert sum(decision.rankings[0].candidates[0].effects["total_p99"].blocks) == 1


def test_a_comparison_with_only_refused_modes_has_no_candidates() -> None:
    run = synthetic.windows(
        Run(mode="default,fifo"), {"default": {}}, unavailable=json.dumps({"fifo": "EPERM"})
    )
    (ranking,) = decided(run).rankings
    assert ranking.candidates == ()
    assert not ranking.judged
    assert ranking.load.unavailable == {"fifo": "EPERM"}
    assert advice.advise(()) == ()


def test_a_mode_refused_in_one_run_and_played_in_another_is_not_refused() -> None:
    effects = {"default": {}, "fifo": FIFO}
    refused = json.dumps({"fifo": "EPERM"})
    runs = [
        synthetic.windows(Run(mode="default,fifo"), {"default": {}}, unavailable=refused),
        synthetic.windows(Run(mode="default,fifo", rep=2), effects),
    ]
    (load,) = advice.loads_of(runs)
    assert load.unavailable == {}
    assert load.modes == ("fifo",)


def test_cut_short_softirqs_are_compared_per_second() -> None:
    effects = {"default": {}, "fifo": {"time_squeeze": 2.0}}
    (candidate,) = (
        decided(synthetic.windows(Run(mode="default,fifo"), effects)).rankings[0].candidates
    )
    result = candidate.effects[advice.SQUEEZED].interval
    assert result.estimate == pytest.approx(4, rel=0.02)
    assert result.low > 3


def test_the_reference_without_the_probe_is_no_candidate() -> None:
    """Exclude the mode without the probe, which has no times, and would win the ranking by its lower CPU time."""
    alone = Run(mode="default,default+recording=off")
    effects = {"default": {}, "default+recording=off": {"cpu_per_message": -0.1}}
    assert advice.loads_of([synthetic.windows(alone, effects)]) == ()
    beside = Run(mode="default,default+recording=off,fifo")
    decision = decided(synthetic.windows(beside, effects | {"fifo": FIFO}))
    assert verdicts(decision) == {"fifo": ModeEffect.BETTER}


def test_windows_of_valid_runs_are_found(tmp_path: Path) -> None:
    runs = [Run(mode="default,fifo", rep=rep) for rep in (1, 2)] + [Run(cps=500)]
    path = synthetic.write_study(
        tmp_path, runs, lambda run: {"valid": run.rep == 1, "calls": 30}, study="crossover"
    )
    assert advice.find_windows(path) == []
    files = [tmp_path / "results" / "runs" / run.path / "windows.nc" for run in runs[:2]]
    for run, file in zip(runs, files, strict=False):
        write_windows(synthetic.windows(run, {"default": {}, "fifo": FIFO}), file)
    assert advice.find_windows(path) == files[:1]
    assert advice.find_windows(path, map(str, files)) == files[:1]
    (load,) = advice.read_loads(files[:1])
    assert np.array_equal(
        load.tables("fifo", "total_p99")[0][:, :2], load.tables("sham", "total_p99")[0][:, [0, 2]]
    )


@pytest.mark.filterwarnings("error")
def test_a_quantity_that_varies_only_between_runs_has_a_mean_without_an_interval() -> None:
    effects = {"default": {}, "fifo": {}}
    runs = [synthetic.windows(Run(mode="default,fifo", rep=rep), effects) for rep in (1, 2)]
    for run, value in zip(runs, (0.0, 0.5), strict=True):
        run["pdr"][:] = value
    (load,) = advice.loads_of(runs)
    mean = load.mean("default", "pdr")
    assert mean.estimate == 0.25
    assert not mean.known


def test_no_interval_of_a_mean_time_is_below_0() -> None:
    run = synthetic.windows(Run(mode="default,fifo"), {"default": {}, "fifo": {}}, spread=3.0)
    (load,) = advice.loads_of([run])
    assert load.mean("default", "k_rcv_mean").low >= 0
