"""Tests of the interface of `import sipsched`."""

import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import synthetic
from bs4 import BeautifulSoup

import sipsched
from sipsched import lab
from sipsched.errors import StableError
from sipsched.pages.explore.slowest import explain
from sipsched.paths import PROJECT_ROOT
from sipsched.records.messages import MESSAGE_TYPES
from sipsched.records.reduced import reduce
from sipsched.records.switch_log import read_windows


def run_python(code):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_importing_sipsched_imports_no_other_module():
    heavy = "import sys, sipsched; print(sorted({'numpy', 'sipsched.lab', 'xarray'} & set(sys.modules)))"
    assert run_python(heavy) == "[]"
    assert (
        run_python("import sipsched.errors, sys; print('sipsched.lab' in sys.modules)") == "False"
    )
    assert sipsched.open is lab.open
    with pytest.raises(AttributeError, match="no attribute 'close'"):
        _ = sipsched.close


@pytest.fixture
def project(tmp_path, monkeypatch):
    monkeypatch.setattr(lab, "PROJECT_ROOT", tmp_path)
    return tmp_path


def recorded(project):
    """Copy records like the repository's records: a reduced campaign, and a run with its messages."""
    synthetic.write_study(project / "scratch", [synthetic.Run(cps=700)])
    whole, run = project / "scratch", synthetic.Run(cps=700)
    results = whole / "results" / "runs" / run.path
    reduce(whole / "raw" / run.path, results, project / "recorded" / "raw" / run.path)
    synthetic.write_record(project / "recorded" / "fit", synthetic.Run(cps=800))


def test_own_runs_come_before_recorded_runs(project):
    recorded(project)
    assert sipsched.open("synthetic").one.cps == 700
    assert sipsched.open("synthetic", messages=True).one.cps == 800
    assert sipsched.open("synthetic", "recorded/fit").one.cps == 800
    # runs in recorded/fit come before runs in recorded/raw, even if the runs in recorded/raw have messages, too
    synthetic.write_record(project / "recorded" / "raw", synthetic.Run(cps=750))
    assert sipsched.open("synthetic", messages=True).one.cps == 800
    synthetic.write_record(project / "raw", synthetic.Run(cps=900))
    assert sipsched.open("synthetic").one.cps == 900
    assert sipsched.open("synthetic", messages=True).one.cps == 900
    assert sipsched.open("synthetic", project / "recorded" / "raw").values("cps") == [700, 750]


def test_a_missing_run_is_reported_in_one_line(project):
    with pytest.raises(StableError, match="no run of testbed synthetic in raw or recorded/raw or"):
        sipsched.open("synthetic")
    recorded(project)
    with pytest.raises(StableError, match=r"no run with per-message times .* in recorded/raw;"):
        sipsched.open("synthetic", "recorded/raw", messages=True)


def test_runs_show_themselves_as_a_table(project):
    for run in (*synthetic.repeated((500,), 3), synthetic.Run(mode="enhanced", cps=500)):
        synthetic.write_record(project / "raw", run, mode=0 if run.rep == 2 else 2)
    page = sipsched.open("synthetic")._repr_html_()
    assert "4 runs of testbed synthetic in raw." in page
    assert synthetic.FIDELITY in page
    row = BeautifulSoup(page, "html.parser").select("tbody tr")[0]
    assert row.get_text(" ") == "kamailio-udp default 1 8 500 3 2"


def test_figures_of_runs(project):
    for run in synthetic.repeated((500, 1000), 2):
        synthetic.write_record(project / "raw", run, calls=20)
    runs = sipsched.open("synthetic")
    assert len(runs.plot.ccdf().seen) == 2
    assert [run.cps for run in runs.pair.runs] == [500, 1000]
    assert len(runs.pair.plot.timeline().seen) == 2
    with pytest.raises(StableError, match="4 runs are selected"):
        runs.plot.timeline()
    one = runs.sel(cps=500, rep=1)
    assert one.pair.runs == one.runs
    assert one.plot.single(0.0, 0.01).identity == "figure-single"
    with pytest.raises(StableError, match="expected 1 to 60 messages in 1 s from 0 s, found 120"):
        one.plot.single(0.0, 1.0)


def test_figures_of_recorded_messages(tmp_path):
    runs = sipsched.open("local", "recorded/fit", messages=True)
    alike = runs.sel(cps=1600)
    assert alike.plot.waterfall().caption.startswith(
        "kamailio-udp, default, 1 core, 8 threads, 1\u202f600 cps, 2 runs"
    )
    with pytest.raises(StableError, match=r"6 runs are selected, .*\. Select one with sel: cps"):
        runs.plot.waterfall()
    one = alike.sel(rep=1)
    assert one.plot.lanes().identity == "figure-lanes"
    assert one.plot.heat_map().identity == "figure-heat"
    assert one.perfetto(tmp_path / "run.json.gz").stat().st_size > 100_000
    with pytest.raises(StableError, match="2 runs are selected"):
        alike.perfetto(tmp_path / "two.json.gz")


def test_the_recorded_runs_open_in_three_lines():
    """Run the three lines of docs/api.md on the recorded runs of this repository."""
    runs = sipsched.open("local", "recorded/fit")
    chosen = runs.sel(mode="default", cps=1000)
    ds = chosen.messages()
    assert ds.attrs["testbed"] == "local"
    assert float(ds["k_rcv"].mean()) > 0
    assert chosen.plot.ccdf().seen[0].startswith("default, 1\u202f000 cps, 2 runs")
    campaign = sipsched.open("local", PROJECT_ROOT / "recorded" / "raw")
    with pytest.raises(StableError, match="no per-message times: the trace was left out"):
        campaign.sel(mode="default", threads=16, cps=1200).messages()


@pytest.fixture(scope="module")
def comparing(tmp_path_factory):
    """Write two runs: one run compares modes, of which fifo halves the waits, and the other run has mode batch."""
    raw = tmp_path_factory.mktemp("comparing") / "raw"
    synthetic.write_comparison(
        raw, synthetic.Run(mode="default,fifo"), {"default": 1.0, "fifo": 0.5}
    )
    synthetic.write_record(raw, synthetic.Run(mode="batch"), calls=20)
    return sipsched.open("synthetic", raw)


def test_a_mode_selects_the_windows_of_runs_that_compare_it(comparing):
    whole, fifo = comparing.sel(mode="default,fifo"), comparing.sel(mode="fifo")
    assert whole.modes == () and fifo.runs == whole.runs
    ds = whole.messages()
    design = read_windows(whole.records / whole.one.path).design
    window = ds["window"].to_numpy()
    inside = window >= 0
    assert inside.mean() > 0.99
    played = np.array([design.modes[window.mode] for window in design.windows])
    np.testing.assert_array_equal(ds["mode"].to_numpy()[inside], played[window[inside]])
    assert set(ds["mode"].to_numpy()[~inside]) <= {""}
    blocks = np.array([window.block for window in design.windows])
    np.testing.assert_array_equal(ds["block"].to_numpy()[inside], blocks[window[inside]])
    only = fifo.messages()
    assert set(only["mode"].to_numpy()) == {"fifo"}
    assert only.sizes["message"] == (ds["mode"] == "fifo").sum()
    # the evaluated messages are exactly the messages of the windows
    counts = only["evaluated"].groupby("window").sum().to_numpy()
    windows = fifo.windows()
    assert set(windows["mode_name"].to_numpy()) == {"fifo"}
    np.testing.assert_array_equal(counts, windows["messages"].isel(washout=0).to_numpy())
    means = ds["k_rcv"].where(ds["evaluated"]).groupby("mode").mean().compute()
    assert float(means.sel(mode="fifo") / means.sel(mode="default")) == pytest.approx(0.5, abs=0.05)


def test_a_mode_with_runs_of_its_own_selects_only_these(tmp_path):
    synthetic.write_record(tmp_path / "raw", synthetic.Run(cps=500), calls=5)
    for cps in (500, 700):
        run = synthetic.Run(mode="default,fifo", cps=cps)
        synthetic.write_comparison(tmp_path / "raw", run, {"default": 1.0, "fifo": 1.0}, total_s=12)
    runs = sipsched.open("synthetic", tmp_path / "raw")
    assert runs.sel(mode="default").one == synthetic.Run(cps=500)
    assert runs.sel(mode="default").summary().sizes["cps"] == 1
    assert runs.sel(mode="default", cps=700).one.mode == "default,fifo"
    both = runs.sel(mode=["default", "fifo"], cps=500)
    assert [run.mode for run in both.runs] == ["default", "default,fifo"]
    windows = runs.sel(mode="default,fifo").sel(mode="default")
    assert [run.cps for run in windows.runs] == [500, 700] and windows.modes == ("default",)


@pytest.mark.parametrize(
    "read", [lambda runs: runs.summary(), lambda runs: runs.quantiles("total", [0.5])]
)
def test_numbers_of_whole_runs_are_refused_for_some_of_their_windows(comparing, read):
    with pytest.raises(StableError, match=r"windows\(\)"):
        read(comparing.sel(mode="fifo"))
    with pytest.raises(StableError, match="no run with mode rr"):
        comparing.sel(mode="rr")


def test_messages_of_windows_that_do_not_count_are_not_evaluated(tmp_path):
    run = synthetic.Run(mode="default,fifo")
    synthetic.write_comparison(tmp_path / "raw", run, {"default": 1.0, "fifo": 1.0}, broken=(3,))
    ds = sipsched.open("synthetic", tmp_path / "raw").messages()
    evaluated = ds["evaluated"].groupby("window").any()
    assert evaluated.sel(window=[2, 3, 4]).to_numpy().tolist() == [True, False, True]


def test_each_mode_of_a_comparison_is_a_line_of_the_ccdf(comparing):
    lines = comparing.plot.ccdf(by="mode").seen
    assert [line.partition(",")[0] for line in lines] == ["batch", "default", "fifo"]
    with pytest.raises(StableError, match="load"):
        comparing.plot.ccdf(by="load")
    assert comparing.sel(mode="fifo").plot.waterfall().identity == "figure-waterfall"
    with pytest.raises(StableError, match="default, fifo"):
        comparing.sel(mode="default,fifo").plot.waterfall()


def test_the_slowest_messages_are_listed_with_their_parts_and_a_cause(comparing):
    table = comparing.slowest(10)
    ds = comparing.messages()
    largest = np.sort(ds["total"].to_numpy())[::-1][:10] / 1000
    np.testing.assert_allclose(table["total"], largest)
    parts = table[["k_stack", "k_sockq", "k_copy", "t_sip"]].sum(axis=1)
    np.testing.assert_allclose(parts, table["total"])
    assert table["explanation"].str.len().min() > 20
    only = comparing.sel(mode="fifo").slowest(3)
    assert set(only["mode"]) == {"fifo"} and "cps" not in only
    figure = comparing.sel(mode="fifo").plot.lanes(int(only["message"][0]))
    assert only["type"][0] in figure.seen[0]


@pytest.mark.parametrize(
    ("times", "part", "words"),
    [
        ({"k_stack": 500.0}, "driver", "500"),
        ({"k_copy": 500.0}, "copy", "500"),
        ({"off": 700.0, "service": 800.0}, "off CPU", "700"),
        ({"service": 900.0}, "CPU time", "900"),
        ({"k_sockq": 600.0}, "no worker served", "600"),
    ],
)
def test_the_explanation_names_the_longest_part(times, part, words):
    parts = {name: np.array([times.get(name, 1.0)]) for name in ("k_stack", "k_sockq", "k_copy")}
    wait, service = sum(parts.values()), np.array([times.get("service", 2.0)])
    one = SimpleNamespace(
        at_s=np.array([0.0]),
        parts_us=parts,
        wait_us=wait,
        service_us=service,
        taken_us=wait,
        sent_us=wait + service,
        off_us=np.array([times.get("off", 0.0)]),
        worker=np.array([0]),
        bursts=None,
    )
    text = explain(one, 0)
    assert part in text and f"{words} µs" in text


def test_tables_have_a_row_per_run_window_or_message(comparing):
    runs = comparing.to_dataframe()
    assert len(runs) == 2 and runs.shape[1] < 20
    assert set(runs["grade"]) <= {"valid", "suspect"}
    windows = comparing.to_dataframe("windows")
    assert len(windows) == comparing.sel(mode="default,fifo").windows().sizes["window"]
    assert set(windows["mode"]) == {"default", "fifo"}
    assert windows["sham"].sum() == windows["block"].nunique()
    messages = comparing.to_dataframe("messages")
    ds = comparing.messages()
    assert len(messages) == ds.sizes["message"]
    assert set(messages["type"]) <= set(MESSAGE_TYPES)
    np.testing.assert_allclose(messages["total"], ds["total"] / 1000, rtol=1e-6)
    assert messages.memory_usage().sum() < 80 * len(messages)
    with pytest.raises(StableError, match="runs, windows, messages"):
        comparing.to_dataframe("days")
    assert comparing.sel(mode="batch").to_dataframe("windows").empty
    chosen = comparing.sel(mode="fifo").to_dataframe()
    assert set(chosen["mode"]) == {"fifo"} and len(chosen) > 1


def test_the_text_of_a_selection_has_a_line_per_key(comparing):
    lines = repr(comparing).splitlines()
    assert len(lines) == 7 and lines[0].startswith("2 runs of testbed synthetic")
    assert "  mode: batch, default, fifo" in lines
