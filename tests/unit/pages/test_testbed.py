"""The parts of a testbed's page, on a campaign with every kind of point."""

import dataclasses
import json
import warnings

import pytest
import synthetic

from sipsched.analysis import run_table
from sipsched.pages import testbed
from sipsched.records import windows
from sipsched.records.messages import messages_from_record, write_messages
from sipsched.records.noise_record import read_noise


def read(paths):
    (found,) = run_table.read_campaigns(paths)
    return found


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return read(synthetic.write_campaign(tmp_path_factory.mktemp("whole")))


@pytest.fixture
def nothing(tmp_path):
    return read([synthetic.write_study(tmp_path, [synthetic.Run()], lambda run: None)])


def test_coverage_tells_what_became_of_each_point(whole):
    figure = testbed.coverage(whole)
    assert figure.seen[0].startswith(
        "15 points planned: 13 measured (every planned run counts), 0 missing (some are not measured "
        "yet), 1 invalid"
    )
    assert "invalid at default, 1 core, 8 threads, 500 cps" in figure.seen[1]
    assert "impossible at default, 4 cores, 8 threads, 500 cps" in figure.seen[1]
    assert figure.svg.count("var(--series0)") >= 13
    assert len(figure.alt) > 100
    absent = testbed.runs_that_are_not_there(whole)
    assert [row[6] for row in absent.rows] == ["missing", "invalid", "impossible"]


def test_reasons_of_attempts_are_counted(whole):
    assert testbed.reasons(whole).rows == (
        ("one call in a hundred started more than N µs late", "", "2"),
    )


@pytest.fixture(scope="module")
def stilled(tmp_path_factory):
    """Windows of a run whose probe costs a tenth of the CPU time a message."""
    folder = tmp_path_factory.mktemp("stilled")
    waits = {"default": 1.1, "default+recording=off": 1.0}
    run = synthetic.Run(mode=",".join(waits), cps=400)
    record = synthetic.write_comparison(folder / "raw", run, waits)
    write_messages(messages_from_record(record), folder / "messages.nc")
    found = windows.windows_from_record(folder / "messages.nc", record)
    windows.write_windows(found, folder / "windows.nc")
    return folder / "windows.nc"


def test_the_cost_of_the_probe_stands_beside_its_sham(whole, stilled):
    (row,) = testbed.cost_of_the_probe(whole, [stilled]).rows
    assert row[:6] == ("kamailio-udp", "default", "1", "8", "400", "70.0")
    assert row[6].interval.estimate == pytest.approx(10, abs=0.1) and row[6].interval.low > 0
    assert abs(row[7].interval.estimate) < 0.2
    assert row[8] == "20"


def test_runs_that_still_nothing_tell_no_cost(whole, tmp_path):
    table = testbed.cost_of_the_probe(whole, [])
    assert table.rows == ()
    assert "recording=off" in table.none


def test_what_was_not_measured_is_said(nothing, tmp_path):
    for make in (
        testbed.certificates,
        testbed.reasons,
    ):
        assert make(nothing).rows == ()
    assert "1 missing" in testbed.coverage(nothing).seen[0]
    (line,) = testbed.noise(tmp_path / "noise.json", nothing).lines
    assert line.startswith("Not measured: no file noise.json")


def test_noise_in_words(nothing, tmp_path):
    path = tmp_path / "noise.json"
    path.write_text(json.dumps(synthetic.noise()))
    figure = testbed.noise(path, nothing)
    assert figure.seen == (
        "CPU 1, looked at for 2.0 s every 50 ns: 1 gaps a second longer than 1 µs, together 0.05 % of "
        "the time; half of them longer than 502 µs, one in a hundred longer than 990 µs, the longest "
        "1\u202f000 µs; stolen by the hypervisor: 0.01 s.",
    )
    path.write_text(json.dumps(synthetic.noise(gaps_ns=[], gaps_at_ns=[])))
    (line,) = testbed.draw_noise(read_noise(path), nothing).seen
    assert line.endswith("no gap longer than 1 µs.")


def test_runs_with_another_buffer_say_so(whole):
    control = whole.runs["sut"].str.endswith("-untraced")
    runs = whole.runs.assign(so_rcvbuf=whole.runs["so_rcvbuf"].where(~control, 524288.0))
    other = dataclasses.replace(whole, runs=runs)
    (told,) = [line for line in testbed.conditions(other).lines if "buffers differ" in line]
    assert "524288 bytes: kamailio-udp-untraced, default." in told
    assert not [line for line in testbed.conditions(whole).lines if "differ" in line]


def test_no_name_of_a_comparison_leaves_a_figure_without_room(tmp_path):
    modes = ",".join(f"slice-{name}" for name in ("100us", "250us", "500us", "1ms", "3ms", "10ms"))
    planned = [synthetic.Run(mode=f"default,{modes}"), synthetic.Run(mode=f"batch,{modes}")]
    found = read([synthetic.write_study(tmp_path, planned)])
    with warnings.catch_warnings():
        # matplotlib's, that axes have collapsed
        warnings.simplefilter("error")
        assert testbed.coverage(found).narrow
