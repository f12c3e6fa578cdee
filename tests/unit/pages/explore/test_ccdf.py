"""Tests of the CCDF, the share of messages that take longer than each time, on runs with known times."""

import dataclasses
import re

import numpy as np
import pytest
import synthetic

from sipsched.errors import StableError
from sipsched.pages.explore.ccdf import ccdf
from sipsched.pages.explore.timeline import place_in_time
from sipsched.records.messages import messages_from_record


def read(folder, run, **options):
    return place_in_time(
        messages_from_record(synthetic.write_record(folder / "raw", run, **options)), run
    )


def test_repetitions_are_one_group_and_other_groups_are_named_by_their_difference(tmp_path):
    runs = [
        read(tmp_path, synthetic.Run(mode=mode, cps=1000, rep=rep), wait=wait, drops=10)
        for mode, wait in (("baseline", 1.0), ("enhanced", 0.5))
        for rep in (1, 2)
    ]
    figure = ccdf(runs)
    assert [line.partition(":")[0] for line in figure.seen] == [
        "baseline, 2 runs",
        "enhanced, 2 runs",
    ]
    assert all(
        "Of 3\u202f600 messages that reached the proxy, its full socket refused 20" in line
        for line in figure.seen
    )
    assert synthetic.FIDELITY in figure.provenance
    assert "nan" not in figure.wide
    by_load = [*runs[:1], read(tmp_path, synthetic.Run(mode="baseline", cps=500, threads=2))]
    named = [line.partition(":")[0] for line in ccdf(by_load).seen]
    assert named == ["8 threads, 1\u202f000 cps, 1 run", "2 threads, 500 cps, 1 run"]


def test_the_99th_percentile_is_computed_per_run(tmp_path):
    runs = [read(tmp_path, synthetic.Run(rep=rep), wait=wait) for rep, wait in ((1, 1.0), (2, 9.0))]
    slow = [np.nanpercentile(run.wait_us + run.service_us, 99) for run in runs]
    (line,) = ccdf(runs).seen
    low, high = re.search(r"longer than (.+) to (.+) µs, depending on the run", line).groups()
    assert [float(text.replace("\u202f", "")) for text in (low, high)] == pytest.approx(
        slow, rel=0.01
    )


def test_runs_without_messages_and_with_drops_alone_can_be_drawn(tmp_path):
    rng = np.random.default_rng(1)
    drops = synthetic.refuse(synthetic.six_per_call(rng, 5, 1000), 30, rng)
    only_drops = read(tmp_path, synthetic.Run(), records=drops)
    nothing = read(tmp_path, synthetic.Run(cps=500), mode=0)
    figure = ccdf([only_drops, nothing])
    assert (
        "no message has both times, K_rcv and T_sip. Of 30 messages that reached the proxy, its full socket refused 30"
        in figure.seen[0]
    )
    assert "Of 0 messages that reached the proxy" in figure.seen[1]


def test_more_groups_than_colours_are_refused(tmp_path):
    one = read(tmp_path, synthetic.Run(), calls=2)
    many = [dataclasses.replace(one, run=dataclasses.replace(one.run, cps=cps)) for cps in range(9)]
    with pytest.raises(StableError, match=r"9 groups of runs .* Select fewer runs with sel"):
        ccdf(many)
