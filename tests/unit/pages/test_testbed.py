"""Tests of the parts of a testbed's page, on a campaign with points of every status."""

import dataclasses
import warnings

import pytest
import synthetic

from sipsched.analysis import run_table
from sipsched.pages import testbed, testbed_account
from sipsched.records import windows
from sipsched.records.messages import messages_from_record, write_messages
from sipsched.records.noise_record import read_noise
from sipsched.records.study_summary import MEASURED
from sipsched.records.summary_variables import CPU_PARTS


def read(paths):
    (result,) = run_table.read_campaigns(paths)
    return result


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return read(synthetic.write_campaign(tmp_path_factory.mktemp("whole")))


@pytest.fixture
def nothing(tmp_path):
    return read([synthetic.write_study(tmp_path, [synthetic.Run()], lambda run: None)])


def test_the_coverage_shows_the_result_of_each_point(whole):
    figure = testbed.coverage(whole)
    assert figure.seen[0].startswith("Number of planned points: 15. Of these points: 13 measured")
    assert "invalid at default, 1 core, 8 threads, 500 cps" in figure.seen[1]
    assert "impossible at default, 4 cores, 8 threads, 500 cps" in figure.seen[1]
    assert figure.wide.count("var(--series0)") >= 13
    doubtful = testbed.doubtful_runs(whole)
    assert [row[6] for row in doubtful.rows] == ["missing", "invalid", "impossible"]


def test_a_suspect_run_is_shown_in_the_figure_and_in_the_table(whole):
    grades = whole.runs["grade"].where(whole.runs["cps"] != 2000, "suspect")
    result = dataclasses.replace(whole, runs=whole.runs.assign(grade=grades))
    figure = testbed.coverage(result)
    points = (whole.runs["cps"] == 2000).sum() // 3
    assert f", {points} suspect" in figure.seen[0]
    assert "suspect at default, 1 core, 8 threads, 2\u202f000 cps" in figure.seen[1]
    statuses = [row[6] for row in testbed.doubtful_runs(result).rows]
    assert statuses.count("suspect") == (whole.counted["cps"] == 2000).sum()


def test_reasons_of_attempts_are_counted(whole):
    assert testbed.reasons(whole).rows == (
        ("one call in a hundred started more than N µs late", "", "2"),
    )


@pytest.fixture(scope="module")
def stilled(tmp_path_factory):
    """Make windows of a run in which the probe increases the CPU time per message by a tenth."""
    folder = tmp_path_factory.mktemp("stilled")
    waits = {"default": 1.1, "default+recording=off": 1.0}
    run = synthetic.Run(mode=",".join(waits), cps=400)
    record = synthetic.write_comparison(folder / "raw", run, waits)
    write_messages(messages_from_record(record), folder / "messages.nc")
    dataset = windows.windows_from_record(folder / "messages.nc", record)
    windows.write_windows(dataset, folder / "windows.nc")
    return folder / "windows.nc"


def test_the_cost_of_the_probe_is_shown_beside_its_sham(whole, stilled):
    (row,) = testbed.cost_of_the_probe(whole, [stilled]).rows
    assert row[:6] == ("kamailio-udp", "default", "1", "8", "400", "70.0")
    cost = row[6].interval
    assert cost.estimate == pytest.approx(10, abs=0.15) and 0 < cost.low < 10 < cost.high
    assert abs(row[7].interval.estimate) < 0.2
    assert row[8] == "20"


def test_runs_without_a_switched_off_probe_have_no_cost(whole, tmp_path):
    table = testbed.cost_of_the_probe(whole, [])
    assert table.rows == ()
    assert "recording=off" in table.none


def test_missing_measurements_are_reported(nothing, tmp_path):
    for make in (
        testbed.certificates,
        testbed.reasons,
    ):
        assert make(nothing).rows == ()
    assert "1 missing" in testbed.coverage(nothing).seen[0]
    (line,) = testbed.noise(tmp_path / "noise.json", nothing).lines
    assert "was not measured" in line and "noise.json" in line


def test_the_noise_is_described(nothing, tmp_path):
    path = tmp_path / "noise.json"
    path.write_text(synthetic.sealed(synthetic.noise()))
    figure = testbed.noise(path, nothing)
    (line,) = figure.seen
    assert line.startswith(
        "On CPU 1 (observed for 2.0 s, every 50 ns), the number of gaps longer than 1 µs is 1 per second"
    )
    for value in ("0.05 %", "502 µs", "990 µs", "1\u202f000 µs", "0.01 s"):
        assert value in line
    path.write_text(synthetic.sealed(synthetic.noise(gaps_ns=[], gaps_at_ns=[])))
    (line,) = testbed.draw_noise(read_noise(path), nothing).seen
    assert line.endswith("no gap was longer than 1 µs.")


def test_runs_with_another_buffer_are_named(whole):
    control = whole.runs["sut"].str.endswith("-untraced")
    runs = whole.runs.assign(so_rcvbuf=whole.runs["so_rcvbuf"].where(~control, 524288.0))
    other = dataclasses.replace(whole, runs=runs)
    (told,) = [line for line in testbed.conditions(other).lines if "same receive buffer" in line]
    assert "524288 bytes: kamailio-udp-untraced, default." in told
    assert not [line for line in testbed.conditions(whole).lines if "receive buffer. " in line]


def test_long_names_of_comparisons_leave_room_for_the_figure(tmp_path):
    modes = ",".join(f"slice-{name}" for name in ("100us", "250us", "500us", "1ms", "3ms", "10ms"))
    planned = [synthetic.Run(mode=f"default,{modes}"), synthetic.Run(mode=f"batch,{modes}")]
    result = read([synthetic.write_study(tmp_path, planned)])
    with warnings.catch_warnings():
        # matplotlib warns if axes have collapsed
        warnings.simplefilter("error")
        assert testbed.coverage(result).narrow


def test_a_campaign_without_accounts_says_so_in_a_line(whole):
    (line,) = testbed_account.cpu_account(whole).lines
    assert line.endswith("not recorded.")
    assert line in testbed.conditions(whole).lines


def test_the_account_is_a_bar_per_run_and_names_the_worst(whole):
    shares = dict.fromkeys(CPU_PARTS, 0.0) | {"proxy_share": 0.3, "competitor_share": 0.1}
    runs = whole.runs.assign(**shares | {"idle_share": 0.6})
    disturbed = runs.index[runs["status"] == MEASURED][0]
    runs.loc[disturbed, ["competitor_share", "idle_share"]] = 0.4, 0.3
    figure = testbed_account.cpu_account(dataclasses.replace(whole, runs=runs))
    assert "40.0 %" in figure.seen[0]
    assert "40.0\u00a0%" in figure.seen[1]
    assert "var(--series1)" in figure.wide
    assert figure.wide != figure.narrow
