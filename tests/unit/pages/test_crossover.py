"""The page of comparisons says what is in the windows: known effects, none, and nothing at all."""

import json
import math
import re
from typing import Any

import numpy as np
import pytest
import synthetic
import xarray as xr
from synthetic import Run

from sipsched import words
from sipsched.analysis import advice
from sipsched.analysis.statistics import Interval, typical_interval
from sipsched.pages import numbers
from sipsched.pages.crossover import (
    answer,
    bounds,
    evidence,
    forest,
    setting,
    shares,
    windows,
)
from sipsched.pages.numbers import in_words
from sipsched.plan.config import Point
from sipsched.records.crossing import Crossing
from sipsched.records.window_time import STOLEN
from sipsched.records.windows import LEFT_OUT, by_arm

FIFO = {"total_p99": -0.5, "total_mean": -0.2, "k_rcv_mean": 0.3}
TASKS = "sched_setattr of each worker"
STEPS = {
    "fifo": [synthetic.step("policy", 1, TASKS), synthetic.step("priority", 1, TASKS)],
    "batch": [synthetic.step("policy", 3, TASKS)],
    "nice-10": [synthetic.step("nice", -10, TASKS)],
    "slice-100us": [synthetic.step("slice_ns", 100_000, TASKS)],
}
SENTINELS = re.compile(r"\b(nan|NaN|inf)\b|[({: ]None[,):}]|[{}]|array\(|np\.float")


def crossing(lower: int) -> Crossing:
    return Crossing(
        Point("synthetic", "kamailio-udp", "default", 1, 8), "default", lower, lower + 9, ()
    )


def of(*runs: xr.Dataset, lower: int = 0) -> Any:
    loads = advice.loads_of(runs, [crossing(lower)] if lower else [])
    return loads, advice.advise(loads)


def made(
    mode: str, effects: dict[str, dict[str, float]], cps: int = 1000, **more: Any
) -> xr.Dataset:
    run = Run(mode=mode, cps=cps, sut=more.pop("sut", "kamailio-udp"), cores=more.pop("cores", 1))
    kind = more.pop("kind", "local")
    return synthetic.windows(run, {"default": {}} | effects, steps=STEPS, kind=kind, **more)


def everything(loads: Any, found: Any) -> str:
    """Make every part of the page; what they say, as text."""
    parts = [
        answer.title("crossover", loads),
        answer.answer(found),
        answer.consequences(found),
        forest.figures(found),
        shares.figures(found),
        forest.tables(found),
        answer.rule(found),
        setting.table(loads),
        setting.left_out(loads),
        bounds.page(found),
        answer.reservations(found),
        evidence.estimates(found),
        evidence.washouts(found),
        windows.response(loads),
        windows.chosen(loads),
        windows.machine(loads),
        windows.windows(loads),
        windows.switches(loads),
    ]
    text = "".join(part._repr_html_() for part in parts)
    text = re.sub(r'(src|srcset|href)="data:[^"]*"', "", text)
    return re.sub(r"<[^>]+>", " ", text)


def told(found):
    """Give the answer and what follows from it."""
    return (answer.answer(found).line, *answer.consequences(found).lines)


def test_the_first_sentence_is_the_advice_by_load_the_second_how_the_third_the_cost() -> None:
    _, found = of(
        made("default,fifo", {"fifo": {}}, 1000),
        made("default,fifo", {"fifo": FIFO | {"cpu_per_message": -0.3}}, 1600),
        lower=2000,
    )
    first, how, cost = told(found)
    assert first.startswith(
        "At 80 % of capacity (1\u202f600 cps) set fifo instead of the kernel's default: it lowers the 99th "
        "percentile of the time from network card to answer (K_rcv + T_sip) by "
    )
    assert re.search(
        r"by [34]\d\u00a0% \([34]\d to 4\d\); at 50 % of capacity \(1\u202f000 cps\) nothing", first
    )
    assert re.search(r"lower by \d+\u00a0% or more would have been seen\.$", first)
    assert how.startswith("To set fifo: chrt --fifo --pid 1 PID")
    assert "CPUSchedulingPolicy=fifo and CPUSchedulingPriority=1" in how
    assert "real_time=4, rt_policy=2, rt_prio=1" in how
    assert cost.startswith(
        "With fifo at 80 % of capacity (1\u202f600 cps) also change: K_rcv mean +"
    )
    assert "CPU a message −2" in cost
    assert cost.endswith(
        "Within chance: PDR 0\u00a0points (always equal); time_squeeze 0\u00a0a second (always equal)."
    )


def test_loads_with_one_advice_share_a_clause() -> None:
    _, found = of(*(made("default,fifo", {"fifo": FIFO}, cps) for cps in (1000, 1600)))
    (first, *_) = told(found)
    assert first.startswith("At 1\u202f000 and 1\u202f600 cps set fifo")
    assert first.count("set fifo") == 1
    assert re.search(r"\) at 1.000 cps and by [34]\d", first)


def test_where_nothing_beats_the_default_it_says_so_and_what_would_have_been_seen() -> None:
    _, found = of(made("default,batch,fifo", {"batch": {}, "fifo": {}}))
    lines = told(found)
    assert lines[0].startswith(
        "At 1\u202f000 cps nothing beats the kernel's default; a 99th percentile lower by"
    )
    assert lines[1:] == ("So there is nothing to set.",)
    _, found = of(made("default,batch,fifo", {"batch": {"total_p99": 0.5}, "fifo": {}}))
    assert "nothing beats the kernel's default, and batch is worse; a" in told(found)[0]


def test_what_is_equal_everywhere_is_called_alike() -> None:
    loads, found = of(made("default,fifo", {"fifo": {}}, spread=0))
    assert told(found)[0] == (
        "At 1\u202f000 cps nothing beats the kernel's default: all that was compared comes within "
        "±\u00a05\u00a0% of it."
    )
    text = everything(loads, found)
    assert not SENTINELS.search(text), SENTINELS.search(text)


def test_what_a_model_predicts_is_called_so_in_the_first_sentence() -> None:
    _, found = of(made("default,fifo", {"fifo": FIFO}, kind="simulated"))
    assert "set fifo" in told(found)[0]
    assert answer.advised_for(found[0]).endswith(" (predicted by a model, not measured).")
    _, found = of(made("default,fifo", {"fifo": FIFO}))
    assert "model" not in told(found)[0]


def test_a_gain_that_costs_is_no_advice() -> None:
    _, found = of(made("default,fifo", {"fifo": FIFO | {"cpu_per_message": 0.2}}))
    first, how, cost = told(found)
    assert first.startswith(
        "At 1\u202f000 cps nothing beats the kernel's default without a cost: fifo lowers"
    )
    assert re.search(
        r"and raises the proxy's CPU time a message by 2\d\u00a0% \(\d+ to \d+\)\.$", first
    )
    assert how.startswith("To set fifo")
    assert "CPU a message +2" in cost


def test_a_sham_that_differs_is_said_and_nothing_below_it_counts() -> None:
    _, found = of(made("default,fifo", {"fifo": {"total_p99": -0.3}}, sham={"total_p99": 0.3}))
    lines = told(found)
    assert "nothing beats the kernel's default" in lines[0]
    assert lines[-1].startswith(
        "Not to be trusted at 1\u202f000 cps: the kernel's default played against itself (A/A) changes the "
        "99th percentile"
    )
    assert re.search(
        r"by \+3\d\u00a0% .*; a difference of less than 4\d\u00a0% there counts for nothing\.$",
        lines[-1],
    )
    (section,) = forest.figures(found).sections
    assert "A/A differs: sum p99 +3" in section.parts[0].seen[0]


def test_without_runs_the_page_says_so() -> None:
    loads, found = of()
    assert answer.title("crossover", loads).text == "What do the settings compared do to the proxy?"
    assert told(found) == (answer.NOTHING,)
    text = everything(loads, found)
    assert "nothing was measured" in text
    assert not SENTINELS.search(text), SENTINELS.search(text)


def test_windows_that_are_all_left_out_are_named_by_reason() -> None:
    run = made("default,fifo", {"fifo": FIFO})
    loads, found = of(run.assign(left_out=run["left_out"] * 0 + STOLEN))
    (line,) = told(found)
    assert line == (
        f"At 1\u202f000 cps there is no answer: none of 120 windows counts: {LEFT_OUT[STOLEN]}."
    )
    text = everything(loads, found)
    assert not SENTINELS.search(text), SENTINELS.search(text)


def test_one_block_is_not_dressed_up_as_knowledge() -> None:
    run = made("default,fifo", {"fifo": FIFO})
    one = run["left_out"].where(run["block"] == 3, STOLEN)
    loads, found = of(run.assign(left_out=one))
    (line,) = told(found)
    assert line.endswith("1 block with windows of both modes, and an interval needs two.")
    text = everything(loads, found)
    assert "too few for an interval" in text
    assert not SENTINELS.search(text), SENTINELS.search(text)


def test_a_kernel_that_refuses_every_other_mode_is_said() -> None:
    refused = "the kernel refuses: EPERM: sched_setattr: Operation not permitted"
    loads, found = of(
        made(
            "default,fifo,slice-3ms",
            {},
            unavailable=json.dumps({"fifo": refused}),
            same_settings=json.dumps([["default", "slice-3ms"]]),
        )
    )
    (line,) = told(found)
    assert line == (
        "At 1\u202f000 cps there is no answer: the kernel refuses fifo and slice-3ms comes to the settings of "
        "default, so nothing is compared."
    )
    assert setting.left_out(loads).lines == (
        f"kamailio-udp, 1 core, 8 threads: fifo is not compared: {refused}.",
        "kamailio-udp, 1 core, 8 threads: default and slice-3ms come to the same settings on this kernel: "
        "an A/A comparison, not measured; default stands for them.",
    )
    text = everything(loads, found)
    assert not SENTINELS.search(text), SENTINELS.search(text)


def test_several_proxies_have_sections_and_their_own_advice() -> None:
    loads, found = of(
        made("default,fifo", {"fifo": FIFO}),
        made("default,fifo", {"fifo": {}}, sut="opensips-udp"),
        made("default,fifo", {"fifo": {}}, sut="opensips-udp", cores=2),
    )
    lines = told(found)
    assert lines[0].startswith("kamailio-udp, 1 core, 8 threads: at 1\u202f000 cps set fifo")
    assert "opensips-udp, 1 core, 8 threads: at 1\u202f000 cps nothing" in lines[0]
    figures = forest.figures(found)
    assert [section.title for section in figures.sections][:2] == [
        "kamailio-udp, 1 core, 8 threads",
        "opensips-udp, 1 core, 8 threads",
    ]
    text = everything(loads, found)
    assert "The bounds are for one core; this proxy has more." in text
    assert not SENTINELS.search(text), SENTINELS.search(text)


def test_the_title_asks_what_the_study_asks() -> None:
    loads, _ = of(made("default,batch,fifo", {"batch": {}, "fifo": {}}))
    assert answer.title("advice", loads).text == "What replaces the papers' advice on this kernel?"
    assert (
        answer.title("x", loads).text == "What do default, batch and fifo settings do to the proxy?"
    )
    assert answer.title("x", loads, "Which?").text == "Which?"
    many = {name: {} for name in ("batch", "fifo", "rr", "nice-10")}
    loads, _ = of(made("default,batch,fifo,rr,nice-10", many))
    assert answer.title("x", loads).text == "What do 5 scheduler settings do to the proxy?"


def test_the_reference_against_itself_is_the_first_row_beside_every_mode() -> None:
    _, found = of(made("default,batch,fifo", {"batch": {}, "fifo": FIFO}))
    (section,) = forest.figures(found).sections
    (figure,) = section.parts
    assert [name for name, _ in forest.drawn_rows(found[0].rankings[0])] == [
        forest.AA,
        "fifo",
        "batch",
    ]
    assert re.match("1.000 cps: A/A does not differ beyond chance", figure.seen[0])
    assert figure.narrow.count("<svg") == 1
    (section,) = forest.tables(found).sections
    rows = section.parts[0].rows
    assert [row[0] for row in rows] == ["default", forest.AA, "fifo", "batch"]
    assert "\u00a0ms (" in str(rows[0][2])
    assert re.fullmatch(r"−\d+ \(−\d+ to −\d+\)", str(rows[2][2]))


def test_an_estimate_that_moves_with_the_washout_is_said() -> None:
    _, found = of(made("default,fifo", {"fifo": {"total_p99": -0.2}}, later={"total_p99": -0.5}))
    words, table = evidence.washouts(found).parts
    assert words.lines[0].startswith("Of 4 estimates, 1 moves by more than the interval")
    assert words.lines[1] == "1\u202f000 cps: fifo, sum p99: moves by more than the interval."
    moved = next(row for row in table.rows if row[1:3] == ("sum p99", "fifo"))
    assert moved[5].interval.estimate == pytest.approx(-39, abs=1)
    still = next(row for row in table.rows if row[1:3] == ("sum mean", "fifo"))
    assert still[-1] == "does not move"


def test_estimates_have_their_parts_in_columns_of_their_own() -> None:
    _, found = of(made("default,fifo", {"fifo": FIFO}))
    table = evidence.estimates(found)
    lines = table.to_csv().splitlines()
    assert lines[0].startswith(
        "load,quantity,mode,effect: estimate,effect: low,effect: high,effect: n,effect: unit"
    )
    row = next(row for row in table.rows if row[1:3] == ("sum p99", "fifo"))
    assert row[3].interval.low < row[3].interval.estimate < row[3].interval.high < 0
    assert row[6] == "<\u00a00.001"
    assert row[7:9] == ("40", "1")


def test_the_response_and_the_bounds_of_one_core() -> None:
    loads, found = of(made("default,fifo", {"fifo": FIFO}))
    figure = windows.response(loads)
    assert figure.seen == (
        "1\u202f000 cps: after the washout of 50 ms the response is flat in every mode, within chance.",
    )
    run = loads[0].runs[0]
    rising = run["aligned_total"] * (1 + 2 * (run["since_switch"] - 0.2))
    moved, _ = of(run.assign(aligned_total=rising))
    (seen,) = windows.response(moved).seen
    assert re.search(
        r"the response still moves in mode .*: its first quarter is −\d\d\u00a0% off", seen
    )
    (section,) = bounds.page(found).sections
    figure, table = section.parts
    assert "% busy, squared coefficient of variation 0.9" in figure.seen[0]
    service = loads[0].mean("default", "cpu_per_message").estimate
    # 1000 cps are 6000 messages a second
    assert table.rows[0][3] == f"{service / (1 - 0.006 * service):.0f}\u00a0µs"
    assert len(table.rows) == 2


def test_a_load_that_leaves_no_time_free_has_no_bounds() -> None:
    _, found = of(made("default,fifo", {"fifo": {}}, cps=3000))
    (section,) = bounds.page(found).sections
    figure, table = section.parts
    assert "leave no time free at this load: no bound" in figure.seen[0]
    assert table.rows[0][3:5] == ("none: no time is free",) * 2


def test_switches_windows_and_speed_are_counted() -> None:
    loads, _ = of(
        made("default,fifo", {"fifo": FIFO}, left_out={4: 1}, speed='{"before": 300, "after": 200}')
    )
    lines = windows.machine(loads).lines
    assert re.match(
        r"A switch of all 11 processes of the proxy took 1\d\d µs .* 1 of 120 failed\.", lines[0]
    )
    assert lines[1] == "1 of 120 windows do not count."
    assert "speed changed by more than 5\u00a0%" in lines[2]
    table = windows.windows(loads)
    assert table.header[-1] == "switch failed"
    assert table.rows[0][5] == "39 of 40"
    assert windows.switches(loads).rows[0][-1] == "−33.3"


@pytest.mark.parametrize(
    ("steps", "sut", "sets", "way"),
    [
        (STEPS["batch"], "kamailio-udp", "SCHED_BATCH", "chrt --batch --pid 0 PID"),
        (STEPS["nice-10"], "kamailio-udp", "nice −10", "Nice=-10 in its systemd unit"),
        (STEPS["slice-100us"], "kamailio-udp", "a slice of 100 µs", "sched_runtime = 100000 ns"),
        (STEPS["fifo"], "opensips-udp", "SCHED_FIFO, priority 1", "chrt --fifo --pid 1 PID"),
        (
            [synthetic.step("min_granularity_ns", 250_000, TASKS)],
            "kamailio-udp",
            "a slice of 250 µs",
            "sched_setattr(2)",
        ),
        (
            [synthetic.step("base_slice_ns", 3_000_000, "/sys/kernel/debug/sched/base_slice_ns")],
            "kamailio-udp",
            "/sys/kernel/debug/sched/base_slice_ns = 3000000",
            "write 3000000 to /sys/kernel/debug/sched/base_slice_ns, as root",
        ),
        ([synthetic.step("latency_ns", 1, "", "EEVDF has none")], "x", "nothing", "nothing has to"),
    ],
)
def test_how_a_mode_is_set(steps: Any, sut: str, sets: str, way: str) -> None:
    found = setting.in_force(steps)
    assert setting.what(found) == sets
    assert way in setting.how(found, sut)
    assert ("real_time" in setting.how(found, sut)) == ("FIFO" in sets and sut.startswith("kam"))


@pytest.mark.parametrize(
    ("interval", "written"),
    [
        ((-42.3, -48.1, -36.2), ("−42", "−48", "−36")),
        ((1.234, 0.9, 1.6), ("+1.23", "+0.90", "+1.60")),
        ((1234.6, 1100.0, 1400.0), ("+1\u202f230", "+1\u202f100", "+1\u202f400")),
        ((0.0, -0.004, 0.004), ("0", "−0.004", "+0.004")),
        ((50.0, -20.0, 1e9), ("+50", "−20", "")),
    ],
)
def test_numbers_have_the_digits_that_their_interval_allows(
    interval: tuple[float, float, float], written: tuple[str, str, str]
) -> None:
    assert numbers.rounded(Interval(*interval, 9), "%", "+") == written


def test_a_row_of_words_and_of_loads() -> None:
    assert words.listed([]) == ""
    assert words.listed(["a"]) == "a"
    assert words.listed(["a", "b", "c"]) == "a, b and c"


def test_what_the_papers_print_stands_beside_the_same_comparison_alone() -> None:
    run = Run(mode="baseline,enhanced", cps=1000)
    _, found = of(synthetic.windows(run, {"baseline": {}, "enhanced": FIFO}, steps=STEPS))
    beside = forest.printed(found[0])
    assert beside is not None
    # Table III of the single-core paper, 8 threads
    assert beside.effects["k_rcv_mean"] == pytest.approx(math.log(1 - 0.3308))
    assert beside.effects["pdr"] == pytest.approx(100 * (0.0113 - 0.018))
    (section,) = forest.figures(found).sections
    (figure,) = section.parts
    assert figure.seen[-1] == (
        "Published: Single-core paper, Table III, 1 core, 8 threads, 1\u202f800 cps, on another machine and kernel: "
        "K_rcv of enhanced mode 33.1 % lower than of baseline, PDR 0.67 points lower."
    )
    _, others = of(made("default,fifo", {"fifo": FIFO}))
    assert forest.printed(others[0]) is None
    assert "Star" not in forest.figures(others).sections[0].parts[0].caption


def test_what_messages_exceed_is_drawn_by_mode_and_load() -> None:
    run = made("default,batch,fifo", {"batch": {}, "fifo": FIFO})
    _, found = of(run)
    modes = shares.chosen(found[0])
    assert modes == ["default", "fifo", "batch"]
    (ranking,) = found[0].rankings
    drawn = shares.lines(ranking, modes)
    for name, line in zip(modes, drawn["total"], strict=True):
        arm = advice.modes_of(run).index(name)
        assert line.runs.shape == (1, 3)
        assert line.runs[0, 2] == np.nanmedian(by_arm(run, "total_p99")[:, arm])
    (section,) = shares.figures(found).sections
    (figure,) = section.parts
    slow = drawn["total"][0].runs[0, 2]
    said = in_words(typical_interval([slow]), "µs")
    assert figure.seen[0].startswith(
        f"1\u202f000 cps: one message in a hundred takes longer than {said}, with default; "
    )
    assert "more in the tables" not in figure.caption


def test_no_more_modes_are_drawn_than_can_be_told_apart() -> None:
    modes = [f"nice-{i}" for i in range(1, 9)]
    run = made(",".join(["default", *modes]), {mode: {} for mode in modes})
    _, found = of(run)
    assert len(shares.chosen(found[0])) == shares.MOST
    (section,) = shares.figures(found).sections
    assert "3 more in the tables" in section.parts[0].caption
