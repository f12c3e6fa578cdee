"""Test that `fab tune` recommends a setting and writes a page on simulated testbeds, with CFS and with EEVDF."""

import json
import re
from pathlib import Path

import pytest
from bs4 import BeautifulSoup
from helpers import copy_project, python

from sipsched.paths import PROJECT_ROOT

SHORT = {
    "load": {"duration_s": 1, "warmup_s": 0.2},
    "crossover": {"mode_s": 4, "window_s": 0.5, "washout_s": 0.1},
    "search": {"trial_s": 0.5, "trials_s": 0.5, "relative_width": 0.3},
}


@pytest.mark.parametrize(
    ("testbed", "mode", "comparisons"),
    [
        ("simulated-cfs", r"enhanced\+latency_ns=800000\+min_granularity_ns=\d+", 4),
        ("simulated", r"default\+slice_ns=\d+", 2),
    ],
)
def test_tune_reports_a_setting_and_its_evidence(
    tmp_path: Path, testbed: str, mode: str, comparisons: int
) -> None:
    copy_project(tmp_path)
    (tmp_path / "short.yaml").write_text(json.dumps(SHORT))
    program = f"import sys; sys.path.insert(0, {str(PROJECT_ROOT)!r}); import fabfile; "
    call = f"fabfile.tune.body(None, {testbed!r}, runs='1', settings='short.yaml')"
    done = python(tmp_path, "-c", program + call)
    assert done.returncode == 0, done.stderr
    derived = re.search(rf"T_sip at the knee: .*µs.* The derived mode is ({mode})\.", done.stdout)
    assert derived
    assert "Against default: " in done.stdout
    assert f"Against {derived[1]}: " in done.stdout
    chosen = re.search(r"^The setting: (\S+)\. ", done.stdout, re.MULTILINE)
    assert chosen and chosen[1].startswith(("default", "enhanced"))
    runs = list((tmp_path / "raw" / testbed).glob("kamailio-udp/*,*/**/run.json"))
    assert len(runs) == 2 * comparisons
    html = (tmp_path / "reports" / f"tune-{testbed}.html").read_text()
    page = BeautifulSoup(html, "html.parser").get_text()
    assert derived[1] in page and "Predicted by a model, not measured" in page
