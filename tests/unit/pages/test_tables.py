import json

import numpy as np
import pytest
import synthetic

from sipsched.analysis import run_table
from sipsched.pages import load_sweep, tables
from sipsched.records import study_summary
from sipsched.records.publishable import KERNEL_OPTIONS


def test_tables_without_measurements_say_so():
    ds = study_summary.combine([], [synthetic.Run()])
    for make in (tables.drops, tables.times, tables.columns_missing, tables.hosts):
        assert f"<p>{make(ds).none}</p>" in make(ds)._repr_html_()
    assert len(tables.runs_not_counted(ds).rows) == 1
    assert (
        "Number of planned runs: 1 (measured: 0, invalid: 0, missing: 1)."
        in tables.coverage(ds).lines[0]
    )


def test_a_table_without_rows_has_nothing_to_download():
    table = tables.drops(study_summary.combine([], [synthetic.Run()]))
    assert "download" not in table._repr_html_()


def test_text_from_the_data_is_escaped():
    ds = study_summary.combine([], [synthetic.Run()])
    ds.attrs["fidelity"] = "<script>alert(1)</script>"
    ds.attrs["hosts"] = json.dumps({"sps": {"<b>": "&"}})
    text = tables.heading(ds, "x")._repr_html_() + tables.hosts(ds)._repr_html_()
    text += load_sweep.pdr(ds)._repr_html_()
    assert "<script" not in text
    assert "<b>" not in text


def test_the_kernels_timer_and_preemption_are_named():
    ds = study_summary.combine([], [synthetic.Run()])
    files = {KERNEL_OPTIONS: "HZ=250\nPREEMPT_NONE=y\n"}
    ds.attrs["hosts"] = json.dumps({"uac": {"files": {}}, "sps": {"files": files}})
    rows = {row[0]: row[1:] for row in tables.hosts(ds).rows}
    assert rows["kernel options"] == ("not recorded", "HZ=250 PREEMPT_NONE=y")


@pytest.mark.parametrize("other", [425984.0, 524288.0])
def test_conditions_name_the_runs_whose_buffers_differ(other):
    planned = [synthetic.Run(mode=mode) for mode in ("baseline", "enhanced")]

    def outcome(run):
        size = other if run.mode == "enhanced" else 425984.0
        return synthetic.two_modes(run) | {"so_rcvbuf": size}

    _, buffers, *rest = tables.conditions(synthetic.combined(planned, outcome)).lines
    if other == 425984:
        assert (
            buffers
            == "Effective receive buffer of the SPS's socket (SO_RCVBUF): 425\u202f984 bytes."
        )
        assert not [line for line in rest if "differ" in line]
    else:
        assert (
            buffers
            == "Effective receive buffer of the SPS's socket (SO_RCVBUF): 425\u202f984, 524\u202f288 bytes."
        )
        assert rest[0].startswith(
            "Not all runs have the same receive buffer. 425984 bytes: kamailio-udp, baseline; 524288 bytes: "
            "kamailio-udp, enhanced."
        )


@pytest.mark.parametrize(("share", "said"), [(0.0, "0.1"), (0.0004, "0.1"), (0.552, "55.2")])
def test_an_upper_bound_of_cpu_time_is_never_0(share, said):
    shares = dict(
        zip(run_table.CPU_SHARES, (np.array([0.01, 0.02]), np.array([0.0, share])), strict=True)
    )
    assert f"at most another {said} %." in tables.competitors_of(shares)
