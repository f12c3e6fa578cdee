"""Tests of the page of scaling, on runs with known capacities, on few runs, and without runs."""

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import page_text
import pandas as pd
import pytest
import synthetic
from notebook_inputs import CAPACITY_CPS

from sipsched.analysis.capacity.estimate import estimate_capacities
from sipsched.analysis.intervals import Interval
from sipsched.analysis.run_table import Campaign, campaigns_of
from sipsched.analysis.speedup import (
    FACTORS,
    REMEDIES,
    carried,
    load_published,
    ratio,
    speed_ups,
)
from sipsched.errors import StableError
from sipsched.pages import parts, scaling
from sipsched.paths import PROJECT_ROOT
from sipsched.plan.loads import Capacity
from sipsched.plan.run import Point, TestbedLabels
from sipsched.records.crossing import SearchRecord, TrialRecord
from sipsched.records.speedups import Speedup

PUBLISHED = PROJECT_ROOT / "config" / "published" / "speedups.csv"
COST_US = {1: 60.0, 2: 80.0}
WAKE_UPS = {1: 0.5, 2: 0.9}
BUSY = 0.3


def crossing(sut: str, cores: int, middle: int, trials: int = 12) -> SearchRecord:
    """Make a search record for a crossing between two loads 2 % apart, with many consistent trials a day apart."""
    loads = [middle * (1 + (0.01 if i % 2 else -0.01)) for i in range(trials)]
    return SearchRecord(
        point=Point("synthetic", sut, "default", cores, 4),
        label="default",
        lower_cps=round(middle * 0.99),
        upper_cps=round(middle * 1.01),
        trials=tuple(
            TrialRecord(
                *(round(cps), 6.0, 0.0 if cps < middle else 0.2, 10, 0 if cps < middle else 4),
                started_at=f"2026-01-{day:02}T00:00:00+00:00",
            )
            for day, cps in enumerate(loads, start=1)
        ),
    )


def outcome(run: synthetic.PlannedRun) -> dict[str, Any]:
    """Return the outcome of a run, which loses messages or calls above the capacity of its system."""
    over = run.cps > CAPACITY_CPS[run.sut, run.cores]
    tcp = "tcp" in run.sut
    messages = 36.0 * run.cps
    return {
        "transport": "tcp" if tcp else "udp",
        "deployment": "partitioned" if run.sut.endswith("partitioned") else "shared",
        "proxy": "kamailio",
        "pdr": np.nan if tcp else 0.05 * over,
        "call_loss": 0.3 * over,
        "messages": messages,
        "proxy_cpu_ns": 1000 * COST_US[run.cores] * messages,
        "proxy_user_ns": 600 * COST_US[run.cores] * messages,
        "proxy_system_ns": 400 * COST_US[run.cores] * messages,
        "generator_cpu_us": 1000 * BUSY,
        **dict.fromkeys(FACTORS, 0.0),
        "wake_ups": WAKE_UPS[run.cores] * messages,
        "probe_mode": "off",
    }


def measured(
    places: Sequence[tuple[str, int]] = tuple(CAPACITY_CPS), on_this_machine: bool = False
) -> tuple[list[Campaign], list[SearchRecord]]:
    """Make runs below and above each crossing, and the searches."""
    planned = [
        synthetic.Run(sut=sut, cores=cores, threads=4, cps=round(CAPACITY_CPS[sut, cores] * share))
        for sut, cores in places
        for share in (0.5, 0.98, 1.1)
    ]
    campaigns = campaigns_of([("scaling", synthetic.combined(planned, outcome))])
    if on_this_machine:
        hosts = {"uac": {"cpus": [0]}, "sps": {"cpus": [1, 0]}, "uas": {"cpus": [0]}}
        campaigns = [replace(campaign, kind="local", hosts=hosts) for campaign in campaigns]
    searches = [crossing(*place, CAPACITY_CPS[place]) for place in places]
    return [synthetic.with_capacities(campaign, searches) for campaign in campaigns], searches


def test_a_capacity_names_the_fidelity_of_its_records() -> None:
    (campaign,), searches = measured()
    assert campaign.fidelity
    assert {known.fidelity for known in campaign.capacities} == {campaign.fidelity}
    labels = TestbedLabels("synthetic", "virtual", "one guest", "virtual time (2000 MIPS)")
    labelled = [replace(search, testbed=labels) for search in searches]
    only_searches = estimate_capacities("synthetic", None, labelled)
    assert {known.fidelity for known in only_searches} == {"virtual time (2000 MIPS)"}


def found(*arguments: Any, simulated: Sequence[Speedup] = (), **named: Any) -> scaling.ScalingData:
    """Return the data of the page from campaigns, searches and simulated speed-ups."""
    return scaling.found_of(*measured(*arguments, **named), load_published(PUBLISHED), simulated)


def everything(page: scaling.ScalingData) -> str:
    """Make all parts of the page, and return their text."""
    parts = (
        *(scaling.answer, scaling.heading, scaling.curves, scaling.capacities, scaling.sharing),
        *(scaling.stops, scaling.costs, scaling.herd, scaling.published, scaling.choices),
        *(
            scaling.simulated,
            scaling.simulated_answer,
            scaling.simulated_curves,
            scaling.expectation,
        ),
    )
    return page_text.text(*(part(page) for part in parts))


def test_searches_over_one_transport_with_different_probe_modes_have_a_warning() -> None:
    campaigns, crossings = measured()

    def said(modes: dict[str, str]) -> list[str]:
        probed = [
            replace(
                each,
                trials=tuple(
                    replace(trial, probe_mode=modes[each.point.sut]) for trial in each.trials
                ),
            )
            for each in crossings
        ]
        page = scaling.found_of(campaigns, probed, load_published(PUBLISHED), ())
        return [line for line in scaling.others(page).lines if "Warning" in line]

    suts = {each.point.sut for each in crossings}
    equal = {sut: "stream" if "tcp" in sut else "exact" for sut in suts}
    assert said(equal) == []
    (warning,) = said(equal | {"kamailio-udp": "preload"})
    assert warning.startswith("Over UDP: ")
    assert "kamailio-udp on 1 core" in warning.partition("preload")[2]


def test_capacities_costs_and_speed_ups_are_those_of_the_runs() -> None:
    (campaign,), crossings = measured()
    places = carried(campaign, crossings)
    for each in places:
        truth = CAPACITY_CPS[each.place.sut, each.place.cores]
        assert each.capacity.estimate == pytest.approx(truth, rel=0.02)
        assert each.confirmed == (2, 2)
        assert each.cost is not None
        assert each.cost.cpu_us == pytest.approx(COST_US[each.place.cores])
        assert each.cost.factors["wake_ups"] == pytest.approx(WAKE_UPS[each.place.cores])
        assert each.cost.cps == round(0.98 * truth)
    gained = {speed_up.one.place.sut: speed_up for speed_up in speed_ups(places, campaign)}
    assert gained["kamailio-udp"].measured.estimate == pytest.approx(1.2, rel=0.03)
    assert gained["kamailio-udp-partitioned"].measured.estimate == pytest.approx(1.89, rel=0.03)
    assert {each.bound for each in gained.values()} == {2 * 60 / 80}
    assert {each.room for each in gained.values()} == {2.0}


RATIOS = "default,default+cores=2,fifo+sut=kamailio-tcp+threads=8"


def test_a_paired_search_replaces_the_ratio_of_two_capacities() -> None:
    campaigns, crossings = measured()
    place = Point("synthetic", "kamailio-udp", RATIOS, 1, 4, Capacity(0.01, 0.05))
    paired = synthetic.paired_search(place, (1.0, 1.4, 0.8), 20)
    page = scaling.found_of(campaigns, [*crossings, paired], load_published(PUBLISHED), ())
    gained = {each.one.place.sut: each.measured.estimate for each in page.speed_ups}
    assert gained["kamailio-udp"] == pytest.approx(1.4, rel=0.02)
    assert gained["kamailio-udp-partitioned"] == pytest.approx(1.89, rel=0.03)
    text = page_text.text(scaling.capacity_ratios(page))
    assert "kamailio-udp (4 workers, 2 cores)" in text
    assert "kamailio-tcp (8 workers, 1 core, mode fifo)" in text
    assert "20 of 20" in text
    # the trials of a paired search all overload the proxy, so no capacity uses them
    assert len(page.carried) == len(crossings)


def test_the_choice_says_that_a_speed_up_comes_from_a_paired_search() -> None:
    campaigns, crossings = measured()
    place = Point("synthetic", "kamailio-udp-partitioned", RATIOS, 1, 4, Capacity(0.01, 0.05))
    paired = synthetic.paired_search(place, (1.0, 1.4, 0.8), 20)
    page = scaling.found_of(campaigns, [*crossings, paired], load_published(PUBLISHED), ())
    assert "A paired search measured 1.4" in page_text.text(scaling.choices(page))


def test_paired_searches_alone_answer_the_page() -> None:
    place = Point("synthetic", "a", RATIOS, 1, 4, Capacity(0.01, 0.05))
    labels = TestbedLabels("synthetic", "local", "one machine", "real proxy")
    known = replace(synthetic.paired_search(place, (1.0, 1.4, 0.8), 20), testbed=labels)
    page = scaling.found_of([], [known], load_published(PUBLISHED), ())
    answer = page_text.text(scaling.answer(page))
    assert re.search(r"a \(4 workers, 2 cores\) handles 1\.[34]\d* times .* the load of a", answer)
    assert scaling.heading(page).fidelity == "real proxy"
    unknown = synthetic.paired_search(place, (1.0, 1.4, 0.8), 1, pdr={1: 0.0})
    page = scaling.found_of([], [unknown], load_published(PUBLISHED), ())
    assert "is unknown, because no round overloaded all systems" in page_text.text(
        scaling.answer(page)
    )
    nothing = scaling.found_of([], [], load_published(PUBLISHED), ())
    assert page_text.text(scaling.capacity_ratios(nothing)) == "No paired search was made."


def test_a_bound_needs_runs_near_the_capacities() -> None:
    campaigns, crossings = measured([("kamailio-udp", 1), ("kamailio-udp", 2)])
    (campaign,) = campaigns
    far = replace(campaign, runs=campaign.runs[campaign.runs["cps"] < 1300])
    places = carried(far, crossings)
    (gained,) = speed_ups(places, far)
    assert all(place.cost is not None and place.at_capacity is None for place in places)
    assert np.isnan(gained.bound)
    page = scaling.found_of([far], crossings, [], [])
    (more,) = (row for row in scaling.capacities(page).rows if row[3] == "2")
    assert more[-2:] == ("not known", "2")


def test_the_room_on_a_shared_cpu_follows_from_the_runs_on_it() -> None:
    (campaign,), crossings = measured(on_this_machine=True)
    gained = {
        speed_up.one.place.sut: speed_up
        for speed_up in speed_ups(carried(campaign, crossings), campaign)
    }
    # the generators use `BUSY` of a CPU per 1000 cps, so at 2400 cps the proxy has the rest of two CPUs
    assert gained["kamailio-udp"].room == pytest.approx(2 - BUSY * 2.4, rel=0.02)
    # the generators never have more than the shared CPU
    assert gained["kamailio-udp-partitioned"].room == pytest.approx(1.0)
    assert gained["kamailio-udp-partitioned"].bound == pytest.approx(60 / 80)


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [(0.5, 0.9, "no"), (0.9, 1.5, "perhaps"), (1.2, 1.8, "in part"), (1.6, 2.1, "yes")],
)
def test_the_answer_judges_the_interval_of_the_speed_up(
    low: float, high: float, verdict: str
) -> None:
    page = found([("kamailio-udp", 1), ("kamailio-udp", 2)])
    (gained,) = page.speed_ups
    judged = replace(gained, measured=Interval((low + high) / 2, low, high, 9))
    line = scaling.answer(replace(page, speed_ups=(judged,))).line
    assert line.startswith(f"Over UDP, {verdict}")
    # the CPU time per message allows 2 * 60 / 80 times
    assert ("not the only limit" in line) == (high < 1.5)
    assert ("explains" in line) == (low <= 1.5 <= high)
    assert ("contradict" in line) == (low > 1.5)


def test_a_speed_up_at_a_shared_socket_is_compared_with_half_of_the_ideal() -> None:
    page = found([("kamailio-udp", 1), ("kamailio-udp", 2)])
    (line,) = scaling.expectation(page).lines
    assert "kamailio-udp" in line
    assert scaling.expectation(found([("kamailio-udp-partitioned", 1)])).lines == ()


def test_the_deployment_with_the_highest_capacity_is_named() -> None:
    line = " ".join(scaling.choices(found()).lines)
    assert "Over UDP on 1 core, choose kamailio-udp." in line
    assert "Over UDP on 2 cores, choose kamailio-udp-partitioned." in line
    assert re.search(r"1\.\d+ times \(.*\) its capacity on one core", line)
    assert "Over TCP on 1 core, kamailio-tcp handles " in line
    assert line.endswith("No other deployment was measured over TCP.")


def test_numbers_in_virtual_time_say_so_everywhere() -> None:
    campaigns, crossings = measured()
    fidelity = "virtual time, 2000 MIPS"
    campaigns = [replace(one, kind="virtual", fidelity=fidelity) for one in campaigns]
    page = scaling.found_of(campaigns, crossings, [], [])
    assert scaling.answer(page).line.endswith(
        "in virtual time, in which a cache miss costs no time."
    )
    for part in (scaling.curves, scaling.capacities, scaling.costs):
        assert fidelity in part(page).provenance
    assert scaling.answer(scaling.found_of(campaigns, [], [], [])).line == scaling.NOTHING


def test_sentences_say_where_only_one_of_the_deployments_was_measured() -> None:
    places = [("kamailio-udp", 1), ("kamailio-udp-partitioned", 1), ("kamailio-udp", 2)]
    before, after = " ".join(scaling.choices(found(places)).lines).split(
        "Over UDP on 2 cores, kamailio-udp handles "
    )
    assert "No other" not in before.replace("No other deployment is distinguishably better", "")
    assert after.endswith("No other deployment was measured on this number of cores.")


def test_a_difference_within_the_intervals_is_no_reason() -> None:
    campaigns, crossings = measured([("kamailio-udp", 2), ("kamailio-udp-partitioned", 2)])
    close = tuple(
        synthetic.capacity(cps, sut=sut, cores=2, threads=4)
        for sut, cps in (("kamailio-udp", 2400), ("kamailio-udp-partitioned", 2410))
    )
    campaigns = [replace(campaign, capacities=close) for campaign in campaigns]
    page = scaling.found_of(campaigns, crossings, [], [])
    assert "choose kamailio-udp. " in scaling.choices(page).lines[0]
    assert "Only runs on 2 cores were measured" in scaling.answer(page).line


def test_only_quantities_that_grow_with_the_cores_are_named() -> None:
    (line,) = scaling.stops(found([("kamailio-udp", 1), ("kamailio-udp", 2)])).lines
    assert "A message costs 80 µs of CPU time" in line
    assert "60 µs on one core" in line
    assert line.endswith("wake-ups 0.5 → 0.9.")


def test_a_remedy_is_shown_beside_the_finding() -> None:
    measured_rows = [row for row in scaling.published(found()).rows if "measured" in str(row[0])]
    # the table has only a row for UDP, because no remedy was measured over TCP
    assert [row[1:3] for row in measured_rows] == [("UDP", "2")]


def test_costs_are_compared_at_a_common_load() -> None:
    campaigns, crossings = measured([("kamailio-udp", 1), ("kamailio-udp", 2)])
    planned = [synthetic.Run(sut="kamailio-udp", cores=c, threads=4, cps=900) for c in (1, 2)]
    runs = synthetic.combined(planned, outcome)
    (more,) = campaigns_of([("costs", runs)])
    (campaign,) = campaigns
    both = replace(campaign, runs=pd.concat([campaign.runs, more.runs], ignore_index=True))
    costs = [each.cost for each in carried(both, crossings)]
    assert [cost.cps for cost in costs if cost] == [900, 900]


@pytest.mark.parametrize(
    "places",
    [
        [],
        [("kamailio-udp", 1)],
        [("kamailio-udp", 2)],
        [("kamailio-tcp", 1), ("kamailio-udp", 2)],
    ],
)
def test_a_page_with_few_runs_says_so(places: list[tuple[str, int]]) -> None:
    page = found(places) if places else scaling.found_of([], [], [], [])
    text = everything(page)
    assert "nan" not in text.replace("nance", "").lower()
    assert "No SUT was measured both on one core and on several cores." in text
    if not places:
        assert scaling.answer(page).line == scaling.NOTHING
    else:
        assert (
            "No SUT was measured both on one core and on several cores"
            in scaling.stops(page).lines[0]
        )


def test_runs_without_counts_show_no_numbers() -> None:
    campaigns, crossings = measured()
    for campaign in campaigns:
        for name in (*FACTORS, "messages", "proxy_cpu_ns", "generator_cpu_us", "call_loss", "pdr"):
            campaign.runs[name] = 0.0
    page = scaling.found_of(campaigns, crossings, [], [])
    assert all(each.cost is None for each in page.carried)
    assert "nan" not in everything(page).lower()
    assert "the change of this cost is unknown" in scaling.stops(page).lines[0]


def test_the_cost_of_a_message_is_listed_by_workers_and_cores() -> None:
    rows = scaling.costs(found()).rows
    assert len(rows) == len(CAPACITY_CPS)
    assert rows[0][:8] == ("kamailio-udp", "4", "1", "1960", "60", "36", "24", "0.5")


def test_the_thundering_herd_is_drawn_if_the_number_of_workers_varies() -> None:
    planned = [synthetic.Run(sut=sut, threads=n, cps=500) for sut in ("a", "b") for n in (1, 4, 16)]

    def wakes(run: synthetic.PlannedRun) -> dict[str, Any]:
        each = 0.3 * run.threads if run.sut == "b" else 0.9
        return {
            **{"transport": "udp", "deployment": "shared", "proxy": "kamailio"},
            **{"messages": 1000.0, "wake_ups": 1000.0 * each},
        }

    campaigns = campaigns_of([("herd", synthetic.combined(planned, wakes))])
    page = scaling.found_of(campaigns, [], [], [])
    assert [herd.by_threads for herd in page.herds] == [
        pytest.approx({1: 0.9, 4: 0.9, 16: 0.9}),
        pytest.approx({1: 0.3, 4: 1.2, 16: 4.8}),
    ]
    figure = scaling.herd(page)
    assert isinstance(figure, parts.Figure)
    first, second = figure.seen
    assert "one worker or none" in first
    assert "more workers than necessary" in second


def test_simulated_numbers_are_labelled() -> None:
    rows = [
        Speedup(
            *(deployment, "udp", cores, cores, 1000 * cores**power, np.nan, np.nan),
            *(cores**power, np.nan, np.nan, receiving, "a model"),
        )
        for deployment, power in (("shared", 0.25), ("partitioned", 0.5))
        for cores in (1, 4, 16)
        for receiving in ([1] if cores == 1 else [1, cores])
    ]
    page = found(simulated=rows)
    lines = scaling.simulated_answer(page).lines
    assert len(lines) == 2
    assert all(line.startswith("Simulated over UDP") and "partitioned" in line for line in lines)
    table = scaling.simulated(page)
    assert table.rows == (
        ("UDP", "shared", "a model", "1", "1.41", "2"),
        ("UDP", "partitioned", "a model", "1", "2", "4"),
    )
    assert "not measured" in table.provenance
    named = [
        replace(row, model=f"a model; {scaling.RECEIVING[row.receive_cpus > 1]}") for row in rows
    ]
    assert "svg" in scaling.simulated_curves(found(simulated=named))._repr_html_()


def test_the_published_table_is_read_and_checked(tmp_path: Path) -> None:
    rows = load_published(PUBLISHED)
    assert {(row.platform, row.transport): (row.before, row.after) for row in rows} == {
        ("Intel Clovertown", "udp"): (1.2, 3.1),
        ("Intel Clovertown", "tcp"): (2.6, 4.8),
        ("Sun Niagara", "udp"): (1.5, 5.8),
        ("Sun Niagara", "tcp"): (2.2, 6.2),
    }
    lines = PUBLISHED.read_text().splitlines()
    for wrong in (
        lines[:-1],
        [*lines, lines[-1]],
        [lines[0].replace("speedup", "faster"), *lines[1:]],
        [*lines[:-1], lines[-1].replace("6.2", "fast")],
        [*lines[:-1], lines[-1].replace("tcp", "sctp")],
    ):
        (tmp_path / "wrong.csv").write_text("\n".join(wrong) + "\n")
        with pytest.raises(StableError, match=r"wrong\.csv"):
            load_published(tmp_path / "wrong.csv")


def test_the_interval_of_a_ratio_includes_both_errors() -> None:
    one, more = Interval(100.0, 90.0, 110.0, 4), Interval(200.0, 180.0, 220.0, 4)
    found_ratio = ratio(more, one)
    assert found_ratio.estimate == 2.0
    assert found_ratio.low < 2 * 0.9
    assert found_ratio.high > 2 * 1.1
    assert not ratio(more, Interval.without(100.0, 1)).known


def test_every_transport_has_a_remedy() -> None:
    assert set(REMEDIES) == set(scaling.TRANSPORTS)


def test_the_generators_cpu_time_is_unknown_without_a_record(monkeypatch) -> None:
    made = outcome
    monkeypatch.setitem(globals(), "outcome", lambda run: made(run) | {"generator_cpu_us": np.nan})
    page = found(on_this_machine=True)
    assert all(np.isnan(speed_up.room) for speed_up in page.speed_ups)
    lines = scaling.sharing(page).lines
    assert "kamailio-udp do not contain the CPU time of the generators" in lines[1]
    assert not any("nan" in line for line in lines)
