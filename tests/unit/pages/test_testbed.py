"""Tests of the parts of a testbed's page, on a campaign with points of every status."""

import dataclasses
import json

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


def with_a_suspect_load(campaign):
    """Return the campaign with suspect runs at 2000 cps, and the number of these runs."""
    at = campaign.runs["cps"] == 2000
    findings = json.dumps(
        [{"rule": "steal_share", "value": 0.02, "grade": "suspect", "limit": 0.01, "cause": ""}]
    )
    runs = campaign.runs.assign(
        grade=campaign.runs["grade"].where(~at, "suspect"),
        findings=campaign.runs["findings"].where(~at, findings),
    )
    return dataclasses.replace(campaign, runs=runs), (campaign.counted["cps"] == 2000).sum()


def test_the_coverage_counts_the_runs_of_each_study_by_state(whole):
    result, suspect = with_a_suspect_load(whole)
    table = testbed.coverage(result)
    assert [row[0] for row in table.rows] == [*whole.studies]
    counts = {
        name: sum(int(row[i] or 0) for row in table.rows)
        for i, name in enumerate(table.header[:-1])
        if i
    }
    assert counts["suspect"] == suspect
    assert counts["planned"] == sum(counts.values()) - counts["planned"]
    assert all(counts[state] for state in ("missing", "invalid", "impossible"))


def test_the_answer_counts_suspect_runs_apart_and_names_their_reason(whole, tmp_path):
    result, suspect = with_a_suspect_load(whole)
    line = testbed.answer(result, tmp_path / "noise.json", []).line
    assert f"{suspect} are suspect" in line and "2.0%" in line
    assert f"{len(whole.counted) - suspect} are valid" in line


def test_runs_without_a_result_are_listed_and_suspect_runs_are_folded(whole):
    (failed,) = testbed.doubtful_runs(whole).parts
    assert [row[6] for row in failed.rows] == ["missing", "invalid", "impossible"]
    result, suspect = with_a_suspect_load(whole)
    _, folded = testbed.doubtful_runs(result).parts
    (table,) = folded.parts
    assert [row[6] for row in table.rows] == ["suspect"] * suspect


def test_the_table_of_hosts_names_all_kernels(whole):
    several = dataclasses.replace(whole, kernels="6.1; 6.12")
    assert "6.1 and 6.12" in testbed.hosts(several).caption
    assert testbed.hosts(whole).caption in testbed.hosts(several).caption


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
    (certificates,) = testbed.certificates(nothing).parts
    for table in (certificates, testbed.reasons(nothing)):
        assert table.rows == ()
    (row,) = testbed.coverage(nothing).rows
    assert row[-3] == "1"
    (line,) = testbed.noise(tmp_path / "noise.json", nothing).lines
    assert "was not measured" in line and "noise.json" in line


def test_the_noise_is_described(nothing, tmp_path):
    path = tmp_path / "noise.json"
    path.write_text(synthetic.sealed(synthetic.noise()))
    figure = testbed.noise(path, nothing)
    (line,) = figure.seen
    assert line.startswith(
        "On CPU 1 (observed for 2.0 s, every 50 ns), the number of gaps (interruptions) longer than 1 µs is 1 per "
        "second"
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
    grades = [
        {"rule": "competitor_share", "value": 0.4, "grade": "suspect", "limit": 0.02, "cause": ""}
    ]
    runs.loc[disturbed, "findings"] = json.dumps(grades)
    figure = testbed_account.cpu_account(dataclasses.replace(whole, runs=runs))
    assert figure.seen[1].startswith("1 of ") and "2\u00a0%" in figure.seen[1]
    assert "var(--series1)" in figure.wide
    assert figure.wide != figure.narrow
