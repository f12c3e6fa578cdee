"""The decision between modes, on windows whose truth is known."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import synthetic
from synthetic import Run

from sipsched.analysis import advice
from sipsched.analysis.advice import Advice, Verdict
from sipsched.plan.config import Point
from sipsched.records.crossing import Crossing
from sipsched.records.window_time import STOLEN
from sipsched.records.windows import write_windows

MODES = "default,batch,fifo"
FIFO = {"total_p99": -0.5, "total_mean": -0.2, "k_rcv_mean": 0.3}


def decided(*runs: Any, crossings: Any = ()) -> Advice:
    (found,) = advice.advise(advice.loads_of(runs, crossings))
    return found


def verdicts(found: Advice) -> dict[str, Verdict]:
    return {each.mode: each.verdict for each in found.rankings[0].candidates}


def test_a_mode_that_lowers_the_sum_beats_the_reference_and_is_ranked_first() -> None:
    effects = {"default": {}, "batch": {"total_p99": 0.4}, "fifo": FIFO}
    found = decided(synthetic.windows(Run(mode=MODES), effects))
    (ranking,) = found.rankings
    assert verdicts(found) == {"fifo": Verdict.BETTER, "batch": Verdict.WORSE}
    assert ranking.best is not None
    assert ranking.best.mode == "fifo"
    assert ranking.best.decided_by == "total_p99"
    assert found.recommended == ("fifo",)
    assert found.tests == 4
    interval = advice.settled(ranking.best.effects["total_p99"])
    assert interval.low < -0.5 < interval.high
    assert interval.level == pytest.approx(1 - 0.05 / 4)
    # what does not decide is not corrected, and no cost: it is one part of the sum
    assert ranking.best.effects["k_rcv_mean"].interval.level == 0.95
    assert ranking.best.costs == ()


def test_where_the_99th_percentile_is_not_told_the_mean_decides() -> None:
    effects = {"default": {}, "fifo": {"total_mean": -0.3}}
    found = decided(synthetic.windows(Run(mode="default,fifo"), effects))
    (candidate,) = found.rankings[0].candidates
    assert candidate.verdict is Verdict.BETTER
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
def test_what_it_costs_makes_it_a_trade(cost: dict[str, float], named: tuple[str, ...]) -> None:
    effects = {"default": {}, "fifo": FIFO | cost}
    found = decided(synthetic.windows(Run(mode="default,fifo"), effects))
    (candidate,) = found.rankings[0].candidates
    assert candidate.costs == named
    assert candidate.verdict is (Verdict.TRADE if named else Verdict.BETTER)
    assert found.recommended == (() if named else ("fifo",))


def test_modes_that_do_nothing_beat_nothing() -> None:
    """Over 20 campaigns of 12 comparisons each, some 1 in 20 may show a false effect."""
    effects = {"default": {}, "batch": {}, "fifo": {}}
    advised = 0
    for seed in range(20):
        runs = [synthetic.windows(Run(mode=MODES, cps=c), effects, seed=seed) for c in (1000, 1600)]
        (found,) = advice.advise(advice.loads_of(runs), quantities=())
        assert found.tests == 8
        advised += bool(found.recommended)
    assert advised <= 3


def test_windows_all_alike_are_told_so_with_an_interval_and_without() -> None:
    effects = {"default": {}, "fifo": {}}
    close = decided(synthetic.windows(Run(mode="default,fifo"), effects, spread=0.01))
    equal = decided(synthetic.windows(Run(mode="default,fifo"), effects, spread=0))
    assert verdicts(close) == verdicts(equal) == {"fifo": Verdict.ALIKE}
    assert close.rankings[0].alike
    assert equal.rankings[0].alike
    assert math.isnan(equal.rankings[0].detectable())


def test_an_effect_no_larger_than_that_of_the_sham_counts_for_nothing() -> None:
    effects = {"default": {}, "batch": {"total_p99": -0.3}, "fifo": {"total_p99": -1.5}}
    found = decided(synthetic.windows(Run(mode=MODES), effects, sham={"total_p99": -0.3}))
    (ranking,) = found.rankings
    assert ranking.floors["total_p99"] > 0.3
    assert ranking.floors["total_mean"] == 0
    assert verdicts(found) == {"fifo": Verdict.BETTER, "batch": Verdict.UNSURE}


def test_without_the_sham_differing_there_is_no_floor() -> None:
    effects = {"default": {}, "fifo": FIFO}
    (ranking,) = decided(synthetic.windows(Run(mode="default,fifo"), effects)).rankings
    assert set(ranking.floors.values()) == {0.0}


def test_several_comparisons_with_one_reference_stand_in_one_ranking() -> None:
    """A mode of two comparisons is judged over the runs of both."""
    first = {"default": {}, "batch": {"total_p99": 0.1}, "fifo": FIFO}
    second = {"default": {}, "rr": {}, "fifo": FIFO}
    found = decided(
        synthetic.windows(Run(mode=MODES), first),
        synthetic.windows(Run(mode="default,rr,fifo"), second, seed=2),
    )
    (ranking,) = found.rankings
    assert ranking.load.modes == ("batch", "fifo", "rr")
    by_mode = {each.mode: each.effects["total_p99"] for each in ranking.candidates}
    assert by_mode["fifo"].runs == 2
    assert by_mode["rr"].runs == 1
    assert ranking.sham["total_p99"].runs == 2


def test_references_proxies_and_loads_are_kept_apart() -> None:
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


def test_a_load_is_a_share_of_what_was_found_for_its_place() -> None:
    run = synthetic.windows(Run(mode="baseline,enhanced"), {"baseline": {}, "enhanced": {}})

    def crossing(mode: str, lower: int, sut: str = "kamailio-udp") -> Crossing:
        return Crossing(Point("synthetic", sut, mode, 1, 8), mode, lower, lower + 100, ())

    def share(*crossings: Crossing) -> float | None:
        (load,) = advice.loads_of([run], crossings)
        return load.share

    assert share() is None
    assert share(crossing("default", 900, "opensips-udp")) is None
    assert share(crossing("default", 2000)) == 0.5
    assert share(crossing("default", 2000), crossing("baseline", 1250)) == 0.8


def test_few_runs_that_agree_are_told_by_their_blocks_and_runs_that_differ_are_not() -> None:
    effects = {"default": {}, "fifo": FIFO}
    alike = [synthetic.windows(Run(mode="default,fifo", rep=rep), effects) for rep in (1, 2, 3)]
    found = decided(*alike).rankings[0].candidates[0].effects["total_p99"]
    assert advice.settled(found) is found.here
    assert advice.is_conditional(found)
    assert 0.02 < advice.detectable(found) < 0.2
    many = [synthetic.windows(Run(mode="default,fifo", rep=rep), effects) for rep in range(1, 8)]
    found = decided(*many).rankings[0].candidates[0].effects["total_p99"]
    assert advice.settled(found) is found.across
    assert advice.detectable(found) == found.detectable
    apart = [
        synthetic.windows(
            Run(mode="default,fifo", rep=rep), {"default": {}, "fifo": {"total_p99": effect}}
        )
        for rep, effect in ((1, -0.9), (2, -0.1), (3, 0.3))
    ]
    (candidate,) = decided(*apart).rankings[0].candidates
    assert advice.settled(candidate.effects["total_p99"]) is candidate.effects["total_p99"].across
    assert candidate.verdict is Verdict.UNSURE


def test_nothing_that_counts_is_not_known() -> None:
    effects = {"default": {}, "fifo": FIFO}
    spoilt = dict.fromkeys(range(118), STOLEN)
    run = synthetic.windows(Run(mode="default,fifo"), effects, left_out=spoilt)
    assert (run["left_out"] == STOLEN).mean() > 0.9
    every = run.assign(left_out=run["left_out"] * 0 + STOLEN)
    found = decided(every)
    assert verdicts(found) == {"fifo": Verdict.UNKNOWN}
    assert not found.rankings[0].judged
    assert found.tests == 0
    one = every.assign(left_out=every["left_out"].where(every["block"] != 3, 0))
    found = decided(one)
    assert verdicts(found) == {"fifo": Verdict.UNKNOWN}
    assert sum(found.rankings[0].candidates[0].effects["total_p99"].blocks) == 1


def test_a_comparison_of_which_the_kernel_refuses_all_others_has_no_candidates() -> None:
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


def test_times_the_kernels_packet_work_was_cut_short_are_compared_a_second() -> None:
    effects = {"default": {}, "fifo": {"time_squeeze": 2.0}}
    (candidate,) = (
        decided(synthetic.windows(Run(mode="default,fifo"), effects)).rankings[0].candidates
    )
    found = candidate.effects[advice.SQUEEZED].interval
    assert found.estimate == pytest.approx(4, rel=0.02)
    assert found.low > 3


def test_a_mode_with_the_probe_stilled_is_no_candidate() -> None:
    """It would stand in the ranking with all times missing, and win by its CPU time."""
    alone = Run(mode="default,default+recording=off")
    effects = {"default": {}, "default+recording=off": {"cpu_per_message": -0.1}}
    assert advice.loads_of([synthetic.windows(alone, effects)]) == ()
    beside = Run(mode="default,default+recording=off,fifo")
    found = decided(synthetic.windows(beside, effects | {"fifo": FIFO}))
    assert verdicts(found) == {"fifo": Verdict.BETTER}


def test_windows_are_found_of_the_runs_that_count(tmp_path: Path) -> None:
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
        load.tables("fifo", "total_p99")[0][:, 0], load.tables("sham", "total_p99")[0][:, 0]
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


def test_no_mean_of_times_is_less_than_nothing() -> None:
    run = synthetic.windows(Run(mode="default,fifo"), {"default": {}, "fifo": {}}, spread=3.0)
    (load,) = advice.loads_of([run])
    assert load.mean("default", "k_rcv_mean").low >= 0
