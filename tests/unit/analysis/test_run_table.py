"""Tests of the tables of all runs on a testbed, which are read from summaries of studies."""

import numpy as np
import synthetic

from sipsched.analysis.run_table import (
    by_load,
    campaigns_of,
    configurations,
    counted,
    receive_buffers,
)


def test_an_invalid_run_has_texts_and_no_numbers():
    ds = synthetic.combined([synthetic.Run(rep=1), synthetic.Run(rep=2)], synthetic.two_modes)
    ds["status"].loc[{"rep": 2}] = "invalid"
    runs = counted(ds)
    for name, value in (("achieved_cps", 1000.0), ("so_rcvbuf", 425984.0)):
        np.testing.assert_array_equal(runs[name].to_numpy().ravel(), [value, np.nan])
    assert np.isnan(runs["count"].sel(rep=2)).all()
    assert runs["count"].sel(rep=1, message_type="INVITE").item() > 0
    assert (runs["mode_label"] == "default (EEVDF translation)").all()
    assert runs.attrs == ds.attrs
    assert ds["achieved_cps"].sel(rep=2).item() == 1000  # the summary is unchanged


def test_a_run_of_one_study_counts_in_all_studies():
    planned = [synthetic.Run(cps=cps, rep=rep) for cps in (500, 1000) for rep in (1, 2)]
    later = synthetic.combined(planned, synthetic.two_modes)
    earlier = synthetic.combined(planned[::-1], lambda run: None)
    earlier["status"].loc[{"cps": 500, "rep": 1}] = "invalid"
    (campaign,) = campaigns_of([("earlier", earlier), ("later", later)])
    assert len(campaign.runs) == len(campaign.counted) == 4
    assert campaign.studies == ("earlier", "later")


def test_configurations_are_ordered_as_in_the_study_and_then_by_size():
    sizes = ((2, 16), (2, 4), (1, 8))
    planned = [
        synthetic.Run(sut=sut, mode=mode, cores=cores, threads=threads, cps=cps, rep=rep)
        for sut in ("opensips-udp", "kamailio-udp")
        for mode in ("enhanced", "baseline")
        for cores, threads in sizes
        for cps in (1900, 1800)
        for rep in (1, 2)
    ]

    def outcome(run):
        return None if (run.threads, run.cps, run.rep) == (16, 1900, 2) else {"pdr": run.cps / 1e6}

    (campaign,) = campaigns_of([("study", synthetic.combined(planned, outcome))])
    result = configurations(campaign.counted)
    names = [(name.sut, name.mode, name.cores, name.threads) for name in result]
    assert names == [
        (sut, mode, *size)
        for sut in ("opensips-udp", "kamailio-udp")
        for mode in ("enhanced", "baseline")
        for size in sorted(sizes)
    ]
    pdr = by_load(result["opensips-udp", "enhanced", 2, 16], ["pdr"])["pdr"]
    assert pdr.dims == ("cps", "rep")
    assert pdr["cps"].to_numpy().tolist() == [1800, 1900]
    np.testing.assert_array_equal(pdr, [[1.8e-3, 1.8e-3], [1.9e-3, np.nan]])


def test_receive_buffers_are_listed_by_group():
    sizes = {1: 425984.0, 2: 524288.0, 3: np.nan}
    planned = [synthetic.Run(sut=sut, rep=rep) for sut in ("a", "b") for rep in sizes]

    def outcome(run):
        size = sizes[run.rep] if run.sut == "a" or run.rep == 3 else 425984.0
        return synthetic.two_modes(run) | {"so_rcvbuf": size}

    (campaign,) = campaigns_of([("study", synthetic.combined(planned, outcome))])
    result = receive_buffers(campaign.runs, "sut", "mode")
    assert result.groups == {("a", "default"): (425984, 524288), ("b", "default"): (425984,)}
    assert result.differ
    assert result.with_size(524288) == [("a", "default")]
    runs = campaign.runs
    assert not receive_buffers(runs[runs["sut"] == "b"], "sut").differ
    assert receive_buffers(runs[runs["rep"] == 3], "sut").groups == {}
