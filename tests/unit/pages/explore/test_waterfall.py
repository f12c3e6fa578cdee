"""Tests of the figure that divides the time of a usual message and of a slow message into stages."""

import numpy as np
import pytest
import synthetic

from sipsched.pages.explore.timeline import place_in_time
from sipsched.pages.explore.waterfall import FEWEST, STAGES, waterfall, ways
from sipsched.records.messages import messages_from_record

RUN = synthetic.Run()


def read(folder, **wanted):
    return place_in_time(messages_from_record(synthetic.write_record(folder, RUN, **wanted)), RUN)


@pytest.fixture(scope="module")
def messages(tmp_path_factory):
    return read(tmp_path_factory.mktemp("raw"), calls=500)


def test_the_stages_add_up_to_the_time_between_the_percentiles(messages):
    whole = messages.wait_us + messages.service_us + messages.send_us
    result = ways([messages], (98.5, 99.5))
    assert [way.kind for way in result] == ["INVITE", "180", "200-INVITE", "ACK", "BYE", "200-BYE"]
    for code, way in enumerate(result, start=1):
        low, high = np.percentile(whole[messages.kind == code], (98.5, 99.5))
        assert low <= way.stages_us.sum() <= high
        assert way.count == 5
        assert (way.stages_us >= 0).all()


def test_the_longest_stage_is_named(tmp_path):
    records = synthetic.six_per_call(np.random.default_rng(1), 500, 1000)
    for stamp in ("t_sip_out", "t_dep"):
        records[stamp] += 1_000_000
    records["off_cpu_ns"] += 1_000_000
    figure = waterfall([read(tmp_path, records=records)])
    assert "is spent with a worker that holds the message and is off its CPU." in figure.seen[0]
    assert figure.seen[0].startswith("A usual ")
    assert figure.seen[1].startswith("A slow ")
    # each stage has one bar per type in each of the two panels, and one bar in the legend
    for color in range(len(STAGES)):
        assert figure.wide.count(f"fill: var(--series{color})") == 2 * 6 + 1
    assert figure.narrow != figure.wide


def test_types_with_few_messages_and_probes_without_timestamps_are_not_drawn(tmp_path):
    assert waterfall([read(tmp_path / "few", calls=FEWEST - 1)]) is None
    assert waterfall([read(tmp_path / "preload", mode=3)]) is None
