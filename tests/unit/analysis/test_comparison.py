"""Tests of the comparison of baseline mode and enhanced mode, on data with known effects."""

from dataclasses import replace

import pytest
import synthetic
from synthetic import modes_case as case_of
from synthetic import modes_plan as plan

from sipsched.analysis import comparison
from sipsched.analysis.comparison import ComparedQuantity, Place, of_type
from sipsched.errors import StableError

MODES = ("baseline", "enhanced")
EIGHT = Place("kamailio-udp", 1, 8)


def test_other_loads_and_modes_do_not_change_a_comparison():
    case = case_of(plan())
    more = case_of(
        plan(modes=("default", *MODES), cps=(500, 1800, 1900, 2000, 2400)),
    )
    for name in ("pdr", "k_rcv"):
        cells = [each.family().cells[ComparedQuantity(EIGHT, 2000, name)] for each in (case, more)]
        assert cells[0] == cells[1]


def test_the_parts_add_up():
    values = case_of(plan()).values
    run = next(run for run in plan() if run.mode == "baseline")
    truth = synthetic.two_modes(run)
    at = {"mode": "baseline", "cps": run.cps, "rep": run.rep}
    expected = 3 + 6 + 2 + truth["t_sip_mean"] + 8
    assert values["service"].sel(at).item() == pytest.approx(expected)
    assert values["t_sip_off_share"].sel(at).item() == pytest.approx(100 / 3)
    refused = values[of_type("ACK", "refused")].sel(at).item()
    assert refused == pytest.approx(100 * truth["pdr"])


def test_invalid_runs_are_named():
    ds = synthetic.combined(
        plan(), lambda run: None if run.mode == "enhanced" else synthetic.two_modes(run)
    )
    ds["status"].loc[{"mode": "enhanced", "rep": [1, 2]}] = "invalid"
    assert (
        comparison.why_not_measured(ds, EIGHT, "enhanced") == "not measured: 6 invalid, 9 missing"
    )
    assert comparison.why_not_measured(ds, Place("kamailio-udp", 1, 4), "enhanced") == "not planned"


def test_packages_of_a_testbed_without_sockets_are_an_error():
    planned = [synthetic.Run(mode="default", rep=rep) for rep in (1, 2)]

    def outcome(run):
        values = synthetic.two_modes(replace(run, mode="baseline"), translated=False)
        return values | {"scheduler_family": "CFS, debugfs"}

    summary = synthetic.combined(planned, outcome)
    summary.attrs |= {"kernels": "6.1.0", "testbed_description": "Three hosts reached by SSH"}
    with pytest.raises(StableError, match="names no sockets"):
        comparison.packages_case([summary, summary])
