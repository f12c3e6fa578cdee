"""`import sipsched`: what it gives, and what it costs."""

import subprocess
import sys

import pytest
import synthetic

import sipsched
from sipsched import lab
from sipsched.errors import StableError
from sipsched.paths import PROJECT_ROOT
from sipsched.records.reduced import reduce


def run_python(code):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_importing_it_imports_nothing_else():
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
    """What comes with the repository: a reduced campaign, and a run with its messages."""
    synthetic.write_study(project / "scratch", [synthetic.Run(cps=700)])
    whole, run = project / "scratch", synthetic.Run(cps=700)
    results = whole / "results" / "runs" / run.path
    reduce(whole / "raw" / run.path, results, project / "recorded" / "raw" / run.path)
    synthetic.write_record(project / "recorded" / "fit", synthetic.Run(cps=800))


def test_ones_own_runs_come_before_what_is_recorded(project):
    recorded(project)
    assert sipsched.open("synthetic").one.cps == 700
    assert sipsched.open("synthetic", messages=True).one.cps == 800
    assert sipsched.open("synthetic", "recorded/fit").one.cps == 800
    synthetic.write_record(project / "raw", synthetic.Run(cps=900))
    assert sipsched.open("synthetic").one.cps == 900
    assert sipsched.open("synthetic", messages=True).one.cps == 900
    assert sipsched.open("synthetic", project / "recorded" / "raw").one.cps == 700


def test_no_run_is_said_in_one_line(project):
    with pytest.raises(StableError, match="no run of testbed synthetic in raw or recorded/raw or"):
        sipsched.open("synthetic")
    recorded(project)
    with pytest.raises(
        StableError, match=r"no run whose single messages are kept .* in recorded/raw;"
    ):
        sipsched.open("synthetic", "recorded/raw", messages=True)


def test_runs_show_themselves_as_a_table(project):
    for run in (*synthetic.repeated((500,), 3), synthetic.Run(mode="enhanced", cps=500)):
        synthetic.write_record(project / "raw", run, mode=0 if run.rep == 2 else 2)
    page = sipsched.open("synthetic")._repr_html_()
    assert "4 runs of testbed synthetic in raw." in page
    assert synthetic.FIDELITY in page
    cells = '<th scope="row">kamailio-udp</th><td>default</td><td>1</td><td>8</td><td>500</td>'
    assert f"{cells}<td>3</td><td>2</td>" in page


def test_pictures_of_runs(project):
    for run in synthetic.repeated((500, 1000), 2):
        synthetic.write_record(project / "raw", run, calls=20)
    runs = sipsched.open("synthetic")
    assert len(runs.plot.ccdf().seen) == 2
    assert [run.cps for run in runs.pair.runs] == [500, 1000]
    assert len(runs.pair.plot.timeline().seen) == 2
    with pytest.raises(StableError, match="4 runs where one is needed"):
        runs.plot.timeline()
    one = runs.sel(cps=500, rep=1)
    assert one.pair.runs == one.runs
    assert one.plot.single(0.0, 0.01).identity == "figure-single"
    with pytest.raises(StableError, match="expected 1 to 60 messages in 1 s from 0 s, found 120"):
        one.plot.single(0.0, 1.0)


def test_pictures_of_recorded_messages(tmp_path):
    runs = sipsched.open("local", "recorded/fit", messages=True)
    alike = runs.sel(cps=1600)
    assert alike.plot.waterfall().caption.startswith(
        "kamailio-udp, default, 1 core, 8 threads, 1600 cps, 2 runs"
    )
    with pytest.raises(StableError, match="6 runs where one is needed: choose with sel: cps"):
        runs.plot.waterfall()
    one = alike.sel(rep=1)
    assert one.plot.lanes().identity == "figure-lanes"
    assert one.plot.heat_map().identity == "figure-heat"
    assert one.perfetto(tmp_path / "run.json.gz").stat().st_size > 100_000
    with pytest.raises(StableError, match="2 runs where one is needed"):
        alike.perfetto(tmp_path / "two.json.gz")


def test_the_recorded_runs_open_in_three_lines():
    """The three lines of the README, on what is recorded in this repository."""
    runs = sipsched.open("local", "recorded/fit")
    chosen = runs.sel(mode="default", cps=1000)
    ds = chosen.messages()
    assert ds.attrs["testbed"] == "local"
    assert float(ds["k_rcv"].mean()) > 0
    assert chosen.plot.ccdf().seen[0].startswith("default, 1000 cps, 2 runs")
    campaign = sipsched.open("local", PROJECT_ROOT / "recorded" / "raw")
    with pytest.raises(StableError, match="no single messages: the trace was left out"):
        campaign.sel(mode="default", threads=16, cps=1200).messages()
