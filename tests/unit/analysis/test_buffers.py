"""Tests of the receive buffers at a load: bursts without drops, and the wait of the slowest message."""

import json

import pytest
import synthetic
import xarray as xr
from synthetic import Run

from sipsched.analysis import advice
from sipsched.analysis.buffers import buffers_at, capacity_with_buffer

SMALL = "default+receive_buffer_bytes=65536"
LARGE = "default+receive_buffer_bytes=4194304"
SIZES = [524_288, 131_072, 8_388_608]


def load_of(
    sizes: list[int | None], truesize: float = 1280.0, cores: int = 1
) -> advice.ComparedLoad:
    run = Run(mode=f"default,{SMALL},{LARGE}", cps=1000, cores=cores)
    windows: xr.Dataset = synthetic.windows(
        run,
        {"default": {}, SMALL: {"pdr": 0.1}, LARGE: {"total_p99": 1.0}},
        spread=0.0,
        receive_buffers=json.dumps(sizes),
        truesize=truesize,
    )
    (load,) = advice.loads_of([windows])
    return load


def test_a_buffer_holds_the_messages_of_a_burst() -> None:
    small, own, large = buffers_at(load_of([*SIZES]))
    assert (small.mode, own.mode, large.mode) == (SMALL, "default", LARGE)
    # 131072 / 1280 = 102.4 messages, 6 messages per call at 1000 cps, and 70 us of CPU time per message
    assert small.messages == 102
    assert small.burst_ms == pytest.approx(17.0)
    assert small.wait_ms == pytest.approx(7.14)
    assert large.messages == 6553
    assert large.wait_ms == pytest.approx(64 * small.wait_ms, rel=0.01)
    assert small.pdr.estimate == pytest.approx(0.1)
    assert own.pdr.estimate == 0
    assert large.p99_us.estimate == pytest.approx(2.718 * own.p99_us.estimate, rel=0.01)


def test_the_reference_is_named_by_its_cores() -> None:
    run = Run(mode="default,default+cores=2", cps=1000)
    (load,) = advice.loads_of([synthetic.windows(run, {"default": {}, "default+cores=2": {}})])
    assert load.label("default") == "1 core"


def test_two_cores_halve_the_wait() -> None:
    one, two = (buffers_at(load_of([*SIZES], cores=cores))[0] for cores in (1, 2))
    assert two.wait_ms == pytest.approx(one.wait_ms / 2)
    assert two.burst_ms == one.burst_ms


def test_unknown_sizes_have_no_numbers() -> None:
    assert [each.mode for each in buffers_at(load_of([524_288, None, 8_388_608]))] == [
        "default",
        LARGE,
    ]
    assert buffers_at(load_of([*SIZES], truesize=float("nan"))) == ()
    assert buffers_at(load_of([])) == ()


def test_modes_without_buffers_are_no_comparison_of_buffers() -> None:
    run = Run(mode="default,batch", cps=1000)
    windows = synthetic.windows(
        run, {"default": {}, "batch": {}}, receive_buffers="[524288, 524288]"
    )
    (load,) = advice.loads_of([windows])
    assert buffers_at(load) == ()


def test_the_reference_is_named_by_its_buffer() -> None:
    assert load_of([*SIZES]).label("default") == "256\u00a0KiB buffer"


def test_the_capacity_with_a_buffer_lies_between_the_loads_around_one_percent() -> None:
    drops = {1000: 0.001, 1100: 0.004, 1200: 0.04}
    runs = [
        synthetic.windows(
            Run(mode=f"default,{SMALL}", cps=cps, rep=rep),
            {"default": {}, SMALL: {"pdr": pdr}},
            spread=0.0,
        )
        for cps, pdr in drops.items()
        for rep in (1, 2, 3)
    ]
    loads = advice.loads_of(runs)
    assert [load.cps for load in loads] == [*drops]
    small = capacity_with_buffer(loads, SMALL)
    # log(0.01 / 0.004) / log(0.04 / 0.004) of the distance from 1100 to 1200
    assert small.interval.estimate == pytest.approx(1139.8, abs=0.1)
    assert small.interval.n == 9
    own = capacity_with_buffer(loads, "default")
    assert (own.bracketed, own.highest_cps) == (False, 1200)
