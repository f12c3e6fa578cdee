"""Tests of the page that compares modes, on windows with known effects, without effects, and without windows."""

import json
import math
import re
from dataclasses import replace
from typing import Any

import numpy as np
import page_text
import pytest
import synthetic
import xarray as xr
from synthetic import Run

from sipsched import words
from sipsched.analysis import advice
from sipsched.analysis.intervals import Interval
from sipsched.analysis.switching import aligned
from sipsched.pages import numbers
from sipsched.pages.crossover import (
    answer,
    bounds,
    buffers,
    effects,
    evidence,
    setting,
    shares,
    windows,
)
from sipsched.pages.crossover.wording import AA, effect_cell, fall_words
from sipsched.pages.numbers import in_us
from sipsched.paths import PROJECT_ROOT
from sipsched.plan.cautions import OF_POLICIES
from sipsched.plan.modes import Policy
from sipsched.plan.run import Point
from sipsched.records.crossing import SearchRecord
from sipsched.records.window_time import STOLEN, SWITCH
from sipsched.records.windows import LEFT_OUT

FIFO = {"total_p99": -0.5, "total_mean": -0.2, "k_rcv_mean": 0.3}
TASKS = "sched_setattr of each worker"
STEPS = {
    "fifo": [synthetic.step("policy", 1, TASKS), synthetic.step("priority", 1, TASKS)],
    "batch": [synthetic.step("policy", 3, TASKS)],
    "nice-10": [synthetic.step("nice", -10, TASKS)],
    "slice-100us": [synthetic.step("slice_ns", 100_000, TASKS)],
}
SENTINELS = re.compile(r"\b(nan|NaN|inf)\b|[({: ]None[,):}]|[{}]|array\(|np\.float")


def crossing(lower: int) -> SearchRecord:
    return SearchRecord(
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
    """Make all parts of the page, check that no part shows an unknown value, and return the text of the parts."""
    parts = [
        answer.title("crossover", loads),
        answer.answer(found),
        answer.recommendations(found),
        buffers.page(found),
        effects.figures(found),
        setting.advised(found),
        answer.consequences(found),
        setting.table(loads),
        setting.left_out(loads),
        effects.tables(found),
        answer.rule(found),
        shares.figures(found),
        bounds.page(found),
        answer.reservations(found),
        answer.starts(found),
        evidence.washouts(found),
        evidence.estimates(found),
        windows.design(loads),
        windows.machine(loads),
        windows.response(found),
        windows.table(loads),
    ]
    text = page_text.text(*parts)
    assert not SENTINELS.search(text), SENTINELS.search(text)
    return text


def recommended(found):
    """Return the recommendations, which are the first sentences of the page, without the name of a single proxy."""
    line = answer.answer(found).line
    if len(found) != 1:
        return line
    _, _, text = line.partition(": ")
    return text[0].upper() + text[1:]


def test_a_recommendation_names_load_evidence_risk_and_how_to_undo_it() -> None:
    _, found = of(
        made("default,fifo", {"fifo": {}}, 1000),
        made("default,fifo", {"fifo": FIFO | {"cpu_per_message": -0.3}}, 1600),
        lower=2000,
    )
    line = recommended(found)
    assert line.startswith(
        "Set fifo (SCHED_FIFO, priority 1) at 1\u202f600 cps (80\u00a0% of the 2\u202f000 cps that a search found)."
    )
    assert re.search(r"by [34][\d.]+\u00a0% \(3[\d.]+ to [45][\d.]+\)", line)
    assert line.index("Keep the kernel's default at 1\u202f000 cps") > line.index("Set fifo")
    nothing, fifo = answer.recommendations(found).rows
    ranking = found[0].rankings[1]
    cells = [
        effect_cell(effects_of["total_p99"], "total_p99")
        for effects_of in (ranking.candidates[0].effects, ranking.sham)
    ]
    assert nothing[1].startswith("keep the kernel's default")
    assert fifo[1] == "set fifo"
    assert [str(fifo[2]), str(fifo[4])] == list(map(str, cells))
    assert fifo[6:] == ("40", "1")
    text = " ".join(setting.advised(found).lines)
    assert "chrt --fifo --pid 1 PID" in text
    assert "CPUSchedulingPolicy=fifo and CPUSchedulingPriority=1" in text
    assert "real_time=4, rt_policy=2, rt_prio=1" in text
    assert OF_POLICIES[Policy.FIFO].risk in text
    assert OF_POLICIES[Policy.FIFO].undo in text
    (cost, *_) = answer.consequences(found).lines
    assert "CPU per message −2" in cost
    assert (
        cost.index("CPU per message")
        < cost.index("These changes are indistinguishable from chance")
        < cost.index("PDR 0")
    )


def test_an_answer_names_the_proxy_and_counts_the_suspect_runs() -> None:
    _, found = of(made("default,batch", {"batch": {}}))
    run = Run(mode="default,batch")
    summary = synthetic.combined([run, replace(run, rep=2)], synthetic.two_modes)
    assert answer.answer(found, summary).line.startswith("kamailio-udp, 1 core, 8 workers: keep")
    assert "suspect" not in answer.answer(found, summary).line
    summary["grade"][..., 0] = "suspect"
    assert answer.answer(found, summary).line.endswith(" 1 of 2 valid runs is suspect.")


def test_an_answer_names_a_mode_that_only_shifts_time_between_wait_and_service() -> None:
    shift = {"k_rcv_mean": 0.3, "t_sip_mean": -0.2}
    _, found = of(made("default,batch", {"batch": shift}))
    line = recommended(found)
    assert "At 1\u202f000 cps, batch lowers the mean service time T_sip by 1" in line
    assert "but raises the mean waiting time K_rcv by 3" in line
    assert "two windows of the reference also differ" not in line
    _, found = of(made("default,batch", {"batch": shift}, sham={"k_rcv_mean": 0.3}))
    assert (
        "two windows of the reference also differ in the mean waiting time K_rcv by +3"
        in recommended(found)
    )
    _, found = of(made("default,batch", {"batch": shift | {"total_p99": 0.5}}))
    assert "the mean service time T_sip" not in recommended(found)


def test_an_answer_states_what_a_declared_reference_sets() -> None:
    run = Run(mode="batch,fifo")
    _, found = of(synthetic.windows(run, {"batch": {}, "fifo": {}}, steps=STEPS, kind="local"))
    line = recommended(found)
    assert line.startswith(
        "Keep batch (which sets SCHED_BATCH; the kernel's default was not measured)"
    )


def test_loads_with_the_same_recommendation_share_a_sentence() -> None:
    _, found = of(*(made("default,fifo", {"fifo": FIFO}, cps) for cps in (1000, 1600)))
    line = recommended(found)
    assert line.startswith("Set fifo (SCHED_FIFO, priority 1) at 1\u202f000 and 1\u202f600 cps.")
    assert len(re.findall(r"[34][\d.]+\u00a0% \(3", line)) == 2


def test_of_two_better_modes_the_mode_for_more_loads_is_recommended() -> None:
    _, found = of(
        made("default,fifo,rr", {"fifo": FIFO | {"total_p99": -0.9}, "rr": FIFO}, 1000),
        made("default,fifo,rr", {"fifo": {}, "rr": FIFO}, 1600),
    )
    assert [ranking.best.mode for ranking in found[0].rankings] == ["rr", "rr"]
    assert (
        "Other settings that are better than the kernel's default: fifo at 1\u202f000 cps."
        in recommended(found)
    )


def test_without_a_better_mode_the_page_recommends_no_change_and_names_the_detectable_effect() -> (
    None
):
    _, found = of(made("default,batch,fifo", {"batch": {}, "fifo": {}}))
    line = recommended(found)
    assert line.startswith("Keep the kernel's default at 1\u202f000 cps: ")
    seen = fall_words(found[0].rankings[0].detectable())
    assert f"by {seen} or more" in line
    first = found[0].rankings[0].candidates[0]  # the row shows the effects of this mode only
    own = fall_words(first.effects["total_p99"].detectable)
    assert answer.recommendations(found).rows[0][5] == own
    assert setting.advised(found).lines[0].startswith("No setting is recommended")
    _, found = of(made("default,batch,fifo", {"batch": {"total_p99": 0.5}, "fifo": {}}))
    assert "batch is worse" in recommended(found)


def test_modes_that_are_equal_everywhere_are_within_five_percent() -> None:
    loads, found = of(made("default,fifo", {"fifo": {}}, spread=0))
    assert "at most 5\u00a0%" in recommended(found)
    everything(loads, found)


def test_the_recommendation_says_that_predictions_come_from_a_model() -> None:
    _, found = of(made("default,fifo", {"fifo": FIFO}, kind="simulated"))
    assert "Set fifo" in recommended(found)
    assert answer.cautions(found).endswith("predicted by a model, not measured.")
    twice = answer.answer([*found, *found]).line
    assert twice.count("Set fifo") + twice.count("set fifo") == 2
    assert twice.count(answer.cautions(found)) == 1
    _, found = of(made("default,fifo", {"fifo": FIFO}))
    assert "model" not in recommended(found)


def test_a_mode_with_a_gain_and_a_cost_is_not_recommended() -> None:
    _, found = of(made("default,fifo", {"fifo": FIFO | {"cpu_per_message": 0.2}}))
    line = recommended(found)
    assert line.startswith("Keep the kernel's default at 1\u202f000 cps")
    assert re.search(r"CPU time per message by [12]\d\u00a0% \(\d+ to \d+\)\.", line)
    assert re.search(r"CPU per message \+[12]", answer.consequences(found).lines[0])
    assert setting.advised(found).lines[0].startswith("No setting is recommended")


def test_a_sham_that_differs_is_named_and_smaller_effects_do_not_count() -> None:
    _, found = of(made("default,fifo", {"fifo": {"total_p99": -0.1}}, sham={"total_p99": 0.3}))
    assert recommended(found).startswith("Keep the kernel's default")
    line = answer.consequences(found).lines[-1]
    assert re.search(r"by \+3\d\u00a0% .* larger than 4\d\u00a0%", line)
    (figure,) = effects.figures(found).parts
    assert (
        "The A/A comparison shows a difference beyond chance: the 99th percentile of the time per message "
        "(K_rcv + T_sip) changes by +3" in figure.seen[0]
    )


def test_without_runs_the_page_says_so() -> None:
    loads, found = of()
    assert recommended(found) == answer.NOTHING
    assert "nothing was measured" in everything(loads, found)


def test_invalid_windows_are_named_by_reason() -> None:
    run = made("default,fifo", {"fifo": FIFO})
    loads, found = of(run.assign(left_out=run["left_out"] * 0 + SWITCH))
    line = recommended(found)
    assert line.startswith("No recommendation for 1\u202f000 cps: none of 120 windows is valid: ")
    assert LEFT_OUT[SWITCH] in line
    assert answer.recommendations(found).rows[0][1] == "none"
    everything(loads, found)


def test_one_block_gives_no_recommendation() -> None:
    run = made("default,fifo", {"fifo": FIFO})
    one = run["left_out"].where(run["block"] == 3, SWITCH)
    loads, found = of(run.assign(left_out=one))
    assert (
        "1 block with valid windows of both modes, but an interval needs two blocks"
        in recommended(found)
    )
    assert "too few for an interval" in everything(loads, found)


def test_a_kernel_that_refuses_every_other_mode_is_named() -> None:
    refused = "the kernel refuses: EPERM: sched_setattr: Operation not permitted"
    loads, found = of(
        made(
            "default,fifo,slice-3ms",
            {},
            unavailable=json.dumps({"fifo": refused}),
            same_settings=json.dumps([["default", "slice-3ms"]]),
        )
    )
    line = recommended(found)
    assert "the kernel does not accept the settings of fifo" in line
    assert "slice-3ms has the same settings as default" in line
    first, second = setting.left_out(loads).lines
    assert first.endswith(f"fifo is not compared. Reason: {refused}.")
    assert "default and slice-3ms" in second
    everything(loads, found)


def test_several_proxies_have_sections_and_their_own_advice() -> None:
    loads, found = of(
        made("default,fifo", {"fifo": FIFO}),
        made("default,fifo", {"fifo": {}}, sut="opensips-udp"),
        made("default,fifo", {"fifo": {}}, sut="opensips-udp", cores=2),
    )
    line = recommended(found)
    assert line.startswith(
        "kamailio-udp, 1 core, 8 workers: set fifo (SCHED_FIFO, priority 1) at 1\u202f000 cps"
    )
    assert "opensips-udp, 1 core, 8 workers: keep the kernel's default at 1\u202f000 cps" in line
    figures = effects.figures(found)
    assert [group.heading for group in figures.parts][:2] == [
        "kamailio-udp, 1 core, 8 workers",
        "opensips-udp, 1 core, 8 workers",
    ]
    assert "The bounds apply only to one core" in everything(loads, found)


def test_the_title_is_the_question_of_the_study() -> None:
    loads, _ = of(made("default,batch,fifo", {"batch": {}, "fifo": {}}))
    assert answer.title("advice", loads).text == "What replaces the papers' advice on this kernel?"
    assert (
        answer.title("x", loads).text
        == "What do the scheduler settings default, batch and fifo do to the proxy?"
    )
    assert answer.title("x", loads, "Which?").text == "Which?"
    many = {name: {} for name in ("batch", "fifo", "rr", "nice-10")}
    loads, _ = of(made("default,batch,fifo,rr,nice-10", many))
    assert answer.title("x", loads).text == "What do 5 scheduler settings (modes) do to the proxy?"


def test_the_comparison_of_the_reference_with_itself_is_the_first_row() -> None:
    _, found = of(made("default,batch,fifo", {"batch": {}, "fifo": FIFO}))
    (figure,) = effects.figures(found).parts
    assert effects.ordered_modes(found[0]) == ["fifo", "batch"]
    assert "The A/A comparison shows no difference beyond chance" in figure.seen[0]
    # the figure has one point with a title for each of three rows and two quantities
    assert figure.wide.count("<title>") == 6
    rows = effects.tables(found).parts[0].rows
    assert [row[0] for row in rows] == ["default", AA, "fifo", "batch"]
    assert "\u00a0ms (" in str(rows[0][2])
    assert re.fullmatch(r"−[\d.]+ \(−[\d.]+ to −[\d.]+\)", str(rows[2][2]))


def test_an_estimate_that_depends_on_the_washout_is_reported() -> None:
    _, found = of(made("default,fifo", {"fifo": {"total_p99": -0.2}}, later={"total_p99": -0.5}))
    words, folded = evidence.washouts(found).parts
    (table,) = folded.parts
    assert "1 of 4 estimated effects moves out of the 95\u00a0% interval" in words.lines[0]
    assert words.lines[1] == "1\u202f000 cps: fifo, K_rcv + T_sip p99: moves out of its interval."
    moved = next(row for row in table.rows if row[1:3] == ("K_rcv + T_sip p99", "fifo"))
    assert moved[5].interval.estimate == pytest.approx(-39, abs=1)
    still = next(row for row in table.rows if row[1:3] == ("K_rcv + T_sip mean", "fifo"))
    assert still[-1] == "does not move"


def test_estimates_have_their_parts_in_columns_of_their_own() -> None:
    _, found = of(made("default,fifo", {"fifo": FIFO}))
    (table,) = evidence.estimates(found).parts
    lines = table.to_csv().splitlines()
    assert lines[0].startswith(
        "load,quantity,mode,effect: estimate,effect: low,effect: high,effect: n,effect: unit"
    )
    row = next(row for row in table.rows if row[1:3] == ("K_rcv + T_sip p99", "fifo"))
    assert row[3].interval.low < row[3].interval.estimate < row[3].interval.high < 0
    assert row[6] == "<\u00a00.001"
    assert row[7:9] == ("40", "1")


def test_the_response_and_the_bounds_of_one_core() -> None:
    loads, found = of(made("default,fifo", {"fifo": FIFO}))
    (seen,) = windows.response(found).seen
    assert "no message time changes" in seen
    run = loads[0].runs[0]
    rising = run["aligned_total"] * (1 + 2 * (run["since_switch"] - 0.2))
    _, moved = of(run.assign(aligned_total=rising))
    (seen,) = windows.response(moved).seen
    assert all(
        f"the message time with {mode} still changes" in seen for mode in ("default", "fifo")
    )
    assert len(re.findall(r"\d\d\u00a0% lower in the first quarter", seen)) == 3
    sentences, table = bounds.page(found).parts
    service = loads[0].mean("default", "cpu_per_message").estimate
    # 1000 cps are 6000 messages per second
    assert table.rows[0][3] == f"{service / (1 - 0.006 * service):.0f}\u00a0µs"
    assert float(table.rows[0][7]) == pytest.approx(0.9, abs=0.1)
    lower = min(float(table.rows[0][column].removesuffix("\u00a0µs")) for column in (3, 4))
    (times,) = re.findall(r"is ([\d.]+) times the lower bound", sentences.lines[0])
    mean = loads[0].mean("default", "total_mean").estimate
    assert float(times) == pytest.approx(mean / lower, rel=0.02)
    assert len(table.rows) == 1


def test_the_response_compares_modes_within_runs_of_different_speed() -> None:
    first = made("default,fifo", {"fifo": FIFO})
    second = made("default,batch", {"batch": {"total_mean": 0.1}}, seed=2)
    slow = {name: 3 * second[name] for name in ("aligned_total", "total_mean")}
    (load,), _ = of(first, second.assign(slow))
    response = aligned(load)
    after = response.since_s >= response.washouts_s[1]
    means = {arm: mean[after].mean() for arm, (mean, _) in response.by_arm.items()}
    for mode in ("fifo", "batch"):
        effect = load.effect(mode, "total_mean").interval.estimate
        assert math.log(means[mode] / means["default"]) == pytest.approx(effect, abs=0.02)


def test_the_response_draws_a_slow_mode_that_still_changes() -> None:
    modes = {f"slice-{i}ms": {"total_mean": 0.1 * i, "total_p99": 0.1 * i} for i in range(1, 9)}
    run = made(",".join(["default", *modes]), modes)
    factor = xr.where(run["arm"] == "slice-8ms", 1 + 2 * run["since_switch"], 1)
    _, found = of(run.assign(aligned_total=run["aligned_total"] * factor))
    figure = windows.response(found)
    assert "slice-8ms, " in figure.wide
    assert "slice-7ms, " not in figure.wide


def test_a_load_that_leaves_no_time_free_has_no_bounds() -> None:
    _, found = of(made("default,fifo", {"fifo": {}}, cps=3000))
    sentences, table = bounds.page(found).parts
    assert table.rows[0][3:5] == ("no bound, because the CPU is fully used",) * 2
    assert "cannot be compared" in sentences.lines[0]


def test_a_sham_that_differs_in_another_quantity_is_named() -> None:
    _, found = of(made("default,batch", {"batch": {}}, sham={"total_p50": 0.2}))
    (table,) = effects.tables(found).parts
    assert table.rows[1][1] == "differs"
    (line,) = [line for line in answer.reservations(found).lines if "A/A" in line]
    assert re.search(r"p50 \+[12]\d\u00a0%", line)


def test_the_drop_rate_of_the_reference_includes_both_of_its_windows() -> None:
    _, found = of(made("default,batch", {"batch": {"pdr": 0.1}}, sham={"pdr": 0.2}, spread=0.0))
    (table,) = effects.tables(found).parts
    column = next(i for i, name in enumerate(table.header) if name.startswith("PDR"))
    assert table.rows[0][column] == "10\u00a0%"


def test_switches_windows_and_speed_are_counted() -> None:
    loads, _ = of(
        made("default,fifo", {"fifo": FIFO}, left_out={4: 1}, speed='{"before": 300, "after": 200}')
    )
    lines = windows.machine(loads).lines
    assert re.match(
        r"Switching the mode of all 11 processes of the proxy took 1\d\d µs .* Of 120 switches, 1 failed\.",
        lines[0],
    )
    assert lines[1] == "Of 120 windows, 1 is invalid."
    assert "changed by more than 5\u00a0%" in lines[2]
    (table,) = windows.table(loads).parts
    cells = dict(zip(table.header, table.rows[0], strict=True))
    assert cells["switch failed"] == "1"
    assert cells["whole blocks"] == "39 of 40"
    assert cells["change (%)"] == "−33.3"
    assert sum(span for _, span in table.groups) == len(table.header)


def test_windows_with_stolen_time_are_valid_in_the_sentence_and_in_the_table() -> None:
    run = made("default,fifo", {"fifo": FIFO}, left_out={4: SWITCH, 7: STOLEN, 30: STOLEN})
    loads, _ = of(run)
    lines = windows.machine(loads).lines
    assert "Of 120 windows, 1 is invalid." in lines
    assert any(line.startswith("In 2 of the valid windows") for line in lines)
    (table,) = windows.table(loads).parts
    assert table.rows[0][table.header.index("whole blocks")] == "39 of 40"
    place = table.header.index("steal above the limit")
    assert table.rows[0][place] == "2"
    group = [name for name, span in table.groups for _ in range(span)][place]
    assert group != "invalid windows"


def test_the_page_states_the_parts_of_the_washout() -> None:
    def line(*attrs: dict[str, float]) -> str:
        runs = [
            made("default,fifo", {"fifo": FIFO}).assign_attrs(one, rep=rep)
            for rep, one in enumerate(attrs, 1)
        ]
        return windows.design(of(*runs)[0]).lines[1]

    # windows.nc of older versions lacks the attribute
    assert " 50 ms, in which the calls of the previous window end" in line({})
    assert " 380 ms, in which the calls" in line({"call_tail_s": 0.38})
    assert " 50 to 380 ms, in which the calls" in line({"call_tail_s": 0.38}, {})
    assert "1 s" not in line({"call_tail_s": 0.38})
    assert "the washout is 1 s" in line({"call_tail_s": 0.38, "washout_s": 1.0})
    configured = line({"call_tail_s": float("nan")})
    assert configured == "The configuration sets the lengths of windows and washouts."


def test_a_switch_that_takes_longer_than_expected_is_named() -> None:
    run = made("default,fifo", {"fifo": FIFO})
    loads, _ = of(run)
    usual = windows.machine(loads).lines
    loads, _ = of(run.assign(switch=run["switch"] * 400))
    assert len(windows.machine(loads).lines) == len(usual) + 1


def test_the_page_states_what_instances_without_calls_cost() -> None:
    def lines(*shares: float) -> str:
        runs = []
        for rep, share in enumerate(shares, 1):
            run = made("default,fifo", {"fifo": FIFO}, left_out={4: SWITCH, 7: STOLEN})
            idle = np.full(run.sizes["window"], share)
            idle[4] = 0.9  # an invalid window
            idle[0] = np.nan  # a window with fewer than two samples
            # A stolen window is valid: 118 of the 120 windows count, so this share raises the mean by 0.001.
            idle[7] += 0.118
            run = run.assign(idle_instances_share=("window", idle))
            runs.append(run.assign_attrs(instances=4, rep=rep))
        return " ".join(windows.machine(of(*runs)[0]).lines)

    assert "the 3 instances without new calls used 0.5\u00a0%" in lines(0.004)
    # The record lacks the memory of each instance, so the page names the document with measured values.
    assert "docs/methodology/crossover.md" in lines(0.004)
    limits = (PROJECT_ROOT / "docs/methodology/crossover.md").read_text().split("\n## Limits\n")[1]
    assert "6 MiB" in limits
    assert "the 3 instances without new calls used 0.5 to 1.35\u00a0%" in lines(0.0125, 0.004)
    loads, _ = of(made("default,fifo", {"fifo": FIFO}))
    assert "without new calls" not in " ".join(windows.machine(loads).lines)


@pytest.mark.parametrize(
    ("steps", "sut", "sets", "way"),
    [
        (STEPS["batch"], "kamailio-udp", "SCHED_BATCH", "chrt --batch --pid 0 PID"),
        (STEPS["nice-10"], "kamailio-udp", "nice −10", "`Nice=-10` in its systemd unit"),
        (STEPS["slice-100us"], "kamailio-udp", "a slice of 100 µs", "sched_setattr(2)"),
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
            "write 3000000 to /sys/kernel/debug/sched/base_slice_ns as root",
        ),
        ([synthetic.step("latency_ns", 1, "", "EEVDF has none")], "x", "nothing", "nothing has to"),
    ],
)
def test_the_page_shows_the_command_that_sets_a_mode(
    steps: Any, sut: str, sets: str, way: str
) -> None:
    found = setting.in_force(steps)
    assert setting.what(found) == sets
    assert way in setting.how(found, sut)
    assert ("real_time" in setting.how(found, sut)) == ("FIFO" in sets and sut.startswith("kam"))
    assert found.empty or all(each.risk and each.undo for each in found.cautions)


def test_modes_with_the_same_command_share_a_row_with_its_risk() -> None:
    modes = {mode: {} for mode in ("slice-100us", "slice-1ms", "fifo")}
    steps = STEPS | {"slice-1ms": [synthetic.step("slice_ns", 1_000_000, TASKS)]}
    run = synthetic.windows(
        Run(mode=",".join(["default", *modes])), {"default": {}} | modes, steps=steps
    )
    loads, _ = of(run)
    rows = {row[1]: row for row in setting.table(loads).rows}
    assert set(rows) == {"default", "slice-100us, slice-1ms", "fifo"}
    assert (
        rows["slice-100us, slice-1ms"][2]
        == "slice-100us: a slice of 100 µs; slice-1ms: a slice of 1 ms"
    )
    assert rows["fifo"][4:] == (OF_POLICIES[Policy.FIFO].risk, OF_POLICIES[Policy.FIFO].undo)


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


def test_rows_of_words_and_rows_of_loads_are_shown() -> None:
    assert words.listed([]) == ""
    assert words.listed(["a"]) == "a"
    assert words.listed(["a", "b", "c"]) == "a, b and c"


def test_printed_numbers_are_shown_only_beside_the_same_comparison() -> None:
    run = Run(mode="baseline,enhanced", cps=1000)
    _, found = of(synthetic.windows(run, {"baseline": {}, "enhanced": FIFO}, steps=STEPS))
    # the page must name Table III of the single-core paper, which has numbers for 8 threads
    published = effects.printed(found[0])
    assert "Table III" in published
    assert "33.1 %" in published
    assert "0.67 percentage points lower" in published
    (figure,) = effects.figures(found).parts
    assert figure.seen[-1].endswith(published)
    _, others = of(made("default,fifo", {"fifo": FIFO}))
    assert effects.printed(others[0]) == ""


def test_times_of_modes_are_those_of_the_reference_changed_by_their_effects() -> None:
    _, found = of(made("default,batch,fifo", {"batch": {}, "fifo": FIFO}))
    (ranking,) = found[0].rankings
    by_mode = shares.times(ranking, ["default", "fifo"])
    p99 = ranking.load.mean("default", "total_p99").estimate
    assert by_mode["default"][-1] == p99
    effect = ranking.candidates[0].effects["total_p99"].interval.estimate
    assert by_mode["fifo"][-1] == pytest.approx(p99 * math.exp(effect))
    (figure,) = shares.figures(found).parts
    assert f"{in_us(p99)} with default" in figure.seen[0]
    assert "modes that are best over all loads" not in figure.reading
    assert "var(--series" in figure.narrow


def test_no_more_modes_are_drawn_than_the_colours_distinguish() -> None:
    modes = [f"nice-{i}" for i in range(1, 9)]
    run = made(",".join(["default", *modes]), {mode: {} for mode in modes})
    _, found = of(run)
    (figure,) = shares.figures(found).parts
    assert f"the other {len(modes) + 1 - shares.MOST}." in figure.reading


@pytest.mark.parametrize(
    ("mode", "way"),
    [
        ("fifo", ""),
        ("default+threads=1", r"^restart the proxy with 1 worker \(.*tcp_children=1\)"),
        ("default+start=2", "^restart the proxy$"),
        ("default+cores=2", r"^restart the proxy on 2 CPUs"),
        ("default+receive_buffer_bytes=65536", r"buffer of 64.KiB \(.*: maxbuffer=65536;"),
        ("batch+sut=kamailio-udp-fm+threads=16", r"kamailio-udp-fm and with 16 workers"),
    ],
)
def test_an_instance_is_set_by_a_restart(mode: str, way: str) -> None:
    found = setting.restarted(mode, "kamailio-udp")
    assert re.search(way, found)
    assert bool(found) == bool(way)


def test_only_the_keys_of_the_compared_proxy_are_named() -> None:
    keys = {"Kamailio": " children=2", "OpenSIPS": "udp_workers=2"}
    for sut, named in (("kamailio-tcp", ["Kamailio"]), ("opensips-udp", ["OpenSIPS"]), ("x", keys)):
        text = setting.restarted("default+threads=2", sut)
        assert [proxy for proxy, key in keys.items() if key in text] == list(named)


def test_a_mode_with_a_restart_and_scheduler_settings_has_two_steps() -> None:
    mode = "fifo+threads=2"
    steps = {mode: STEPS["fifo"]}
    run = Run(mode=f"default,{mode}", cps=1000)
    loads, found = of(
        synthetic.windows(run, {"default": {}, mode: FIFO}, steps=steps, kind="local")
    )
    lines = setting.advised(found).lines
    label = loads[0].label(mode)
    assert lines[0] == f"To set {label}, do 2 steps in this order."
    for number in (1, 2):
        for start in ("To set", "Risk of", "To undo"):
            assert any(line.startswith(f"{start} {label}, step {number}: ") for line in lines)
    (row,) = [row for row in setting.table(loads).rows if row[1] == label]
    assert row[2] == "SCHED_FIFO, priority 1"
    assert "restart the proxy with 2 workers" in row[3]
    assert "chrt --fifo" in row[3]


def test_the_page_explains_how_compared_proxies_differ() -> None:
    mode = "default+sut=kamailio-13"
    loads, found = of(made(f"default,{mode}", {mode: FIFO}))
    versions = {"kamailio-udp": "version: kamailio 5.6.3 (x)", "kamailio-13": "kamailio 6.0.1"}
    summary = synthetic.combined([Run(mode=f"default,{mode}")], synthetic.two_modes)
    summary.attrs["hosts"] = json.dumps({"sps": {"versions": versions}})
    suts = {
        "kamailio-udp": {"name": "kamailio-udp", "memory_manager": "qm", "release": None},
        "kamailio-13": {"name": "kamailio-13", "memory_manager": "qm", "release": "trixie"},
    }
    differ = setting.differences(summary, suts, loads)
    assert differ == {"kamailio-13": "version 6.0.1 instead of 5.6.3, release trixie"}
    for text in (
        answer.answer(found, summary, differ).line,
        setting.advised(found, differ).lines[0],
        setting.table(loads, differ).rows[1][3],
    ):
        assert differ["kamailio-13"] in text
    assert answer.title("versions", loads).text == "Which is faster: kamailio-udp or kamailio-13?"


def test_modes_with_the_same_command_have_their_own_values_in_the_table() -> None:
    steps = {
        name: [synthetic.step("slice_ns", ns, TASKS)]
        for name, ns in (("baseline", 100_000), ("enhanced", 250_000))
    }
    run = Run(mode="baseline,enhanced")
    loads, _ = of(synthetic.windows(run, {"baseline": {}, "enhanced": {}}, steps=steps))
    (row,) = setting.table(loads).rows
    assert row[2] == "baseline: a slice of 100 µs; enhanced: a slice of 250 µs"


def test_compared_buffers_have_their_burst_and_their_wait() -> None:
    small = "default+receive_buffer_bytes=65536"
    sizes = {"receive_buffers": json.dumps([524_288, 131_072]), "truesize": 1280.0}
    loads, found = of(made(f"default,{small}", {small: {"pdr": 0.1}}, spread=0.0, **sizes))
    everything(loads, found)
    assert "receive buffer of kamailio-udp" in answer.title("buffers", loads).text
    sentences, table = buffers.page(found).parts
    first = page_text.text(sentences)
    assert "a buffer of 64\u00a0KiB" in first
    assert "17\u00a0ms" in first
    assert "at this load" not in first
    assert [str(row[1]) for row in table.rows] == [loads[0].label(small), loads[0].label("default")]
    _, without = of(made("default,fifo", {"fifo": FIFO}))
    assert not buffers.page(without).parts


def test_compared_buffers_have_their_capacity() -> None:
    small = "default+receive_buffer_bytes=65536"
    sizes = {"receive_buffers": json.dumps([524_288, 131_072]), "truesize": 1280.0}
    drops = {1000: 0.002, 1200: 0.05}
    runs = [
        made(f"default,{small}", {small: {"pdr": pdr}}, cps=cps, spread=0.0, **sizes)
        for cps, pdr in drops.items()
    ]
    _, found = of(*runs)
    sentences = page_text.text(buffers.page(found).parts[0])
    # log(0.01 / 0.002) / log(0.05 / 0.002) of the distance from 1000 to 1200
    assert (
        "With a buffer of 64\u00a0KiB, the proxy drops 1 % of the messages at this load: 1\u202f100"
        in sentences
    )
    assert (
        "With a buffer of 256\u00a0KiB, the proxy drops 1 % of the messages at this load: above"
        in sentences
    )
    assert "These loads depend on the length of the windows." in sentences


def test_a_mode_is_recommended_only_if_all_its_starts_are_better() -> None:
    two, again = "default+threads=2", "default+threads=2+start=2"
    lower = {"total_p99": -0.5, "total_mean": -0.2}
    loads, found = of(made(f"default,{two},{again}", {two: lower, again: lower}))
    everything(loads, found)
    ((ranking,),) = (advised.rankings for advised in found)
    assert ranking.best is not None
    assert ranking.best.mode == two
    assert len(answer.starts(found).lines) == 2 * len(advice.DECIDING) + 1
    effect = loads[0].start_effect(again, "total_p99").interval
    assert effect.low < 0 < effect.high
    all_starts = loads[0].effect_of_all_starts(two, "total_p99")
    assert all_starts.n == 4 * len(loads[0].runs)
    assert all_starts.low < -0.5 < all_starts.high < 0

    loads, found = of(made(f"default,{two},{again}", {two: lower, again: {}}))
    ((ranking,),) = (advised.rankings for advised in found)
    assert ranking.best is None
    effect = loads[0].start_effect(again, "total_p99").interval
    assert effect.low == pytest.approx(0.5, abs=0.1)


@pytest.mark.parametrize("mode", ["default+threads=2", "default+sut=kamailio-udp-fm"])
def test_a_recommended_restart_has_its_risk_and_how_to_undo_it(mode: str) -> None:
    loads, found = of(made(f"default,{mode}", {mode: FIFO}))
    text = " ".join(setting.advised(found).lines)
    (caution,) = setting.cautions_of_restart(mode)
    label = loads[0].label(mode)
    assert f"Risk of {label}: {caution.risk}" in text
    assert f"To undo {label}: {caution.undo}." in text
    rows = {row[1]: row for row in setting.table(loads).rows}
    assert rows[label][4:] == (caution.risk, caution.undo)
