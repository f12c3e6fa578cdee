"""Tests of the predicted headroom on proxies whose capacity is known."""

from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest
import xarray as xr

from sipsched.analysis.busy_work import Stamps, busy_cycles, work
from sipsched.analysis.headroom import (
    LEAST_CYCLES,
    Headroom,
    Lack,
    Server,
    TimeAt,
    headroom,
    latest,
    resampled,
    scaled,
)
from sipsched.analysis.intervals import Interval
from sipsched.errors import StableError
from sipsched.measure.replay import Replay
from sipsched.pages.headroom import LACKS, section, sentences
from sipsched.records.messages import MESSAGE_TYPES, assemble

SERVICE_NS, PER_S, SECONDS = 100_000.0, 5_000, 4.0
SERVER = Server(1, 1, 425_984)
DRAWS = 6
Values = npt.NDArray[np.float64]


def poisson(seed: int = 1, per_s: float = PER_S, seconds: float = SECONDS) -> Values:
    """Sample arrival times in ns."""
    gaps = np.random.default_rng(seed).exponential(1e9 / per_s, round(per_s * seconds))
    return np.cumsum(gaps)


def recording(arrivals: Values, services: Values, servers: int = 1) -> xr.Dataset:
    """Serve messages in the order of their arrival, and return the dataset of a recording."""
    free, starts, chosen = np.zeros(servers), np.empty_like(arrivals), []
    for i, (arrival, service) in enumerate(zip(arrivals, services, strict=True)):
        server = int(np.argmin(free))
        starts[i] = max(arrival, free[server])
        free[server] = starts[i] + service
        chosen.append(server)
    size = len(arrivals)
    none = np.zeros(size, np.uint32)
    columns = {
        "t_arr": arrivals.astype(np.int64),
        "k_stack": none,
        "k_sockq": (starts - arrivals).astype(np.uint32),
        "k_copy": none,
        "t_sip": services.astype(np.uint32),
        "t_sip_off": none.copy(),
        "k_snd": none.copy(),
        "k_rcv": none.copy(),
        "message_type": np.full(size, MESSAGE_TYPES["INVITE"], np.uint8),
        "worker": np.array(chosen, np.uint8),
        "cpu": np.array(chosen, np.uint8),
        "flags": np.zeros(size, np.uint16),
    }
    drops = {
        "drop_t_arr": np.empty(0, np.int64),
        "drop_type": np.empty(0, np.uint8),
        "drop_reason": np.empty(0, np.uint8),
    }
    return assemble(columns, drops, list(range(servers)), {}, {"transport": "udp"})


def constant(arrivals: Values) -> Values:
    return np.full_like(arrivals, SERVICE_NS)


def predict(ds: xr.Dataset, server: Server = SERVER) -> Headroom:
    return headroom(ds, server, Replay.on(server.cores, server.workers, "6.18"), DRAWS)


def test_half_load_of_constant_services_can_double() -> None:
    arrivals = poisson()
    prediction = predict(recording(arrivals, constant(arrivals)))
    assert (
        prediction.growth is not None
        and prediction.work_us is not None
        and prediction.slope is not None
    )
    assert prediction.work_us.estimate == pytest.approx(SERVICE_NS / 1e3, rel=0.01)
    assert prediction.slope.estimate == pytest.approx(0.0, abs=0.01)
    assert prediction.busy == pytest.approx(0.5, rel=0.03)
    assert prediction.growth.estimate == pytest.approx(
        1e9 / SERVICE_NS / prediction.per_s, rel=0.05
    )
    assert prediction.poisson == pytest.approx(1e9 / SERVICE_NS / prediction.per_s, rel=0.02)
    assert prediction.half_width < 0.1
    assert [at.factor for at in prediction.times] == [1.5, 2.0]
    # SEE Erlang 1909: in M/D/1 at a utilisation of 0.75, 99 % of the messages wait for less than 8 services.
    assert 5 < prediction.times[0].p99_us.estimate / (SERVICE_NS / 1e3) < 11
    assert len(sentences(prediction)) <= 8


def test_a_competitor_that_takes_a_fifth_of_a_busy_proxy_is_part_of_the_work() -> None:
    arrivals = poisson()
    rng = np.random.default_rng(2)
    services = constant(arrivals) + np.where(rng.random(len(arrivals)) < 1 / 200, 5_000_000, 0)
    ds = recording(arrivals, services)
    known = work(Stamps.of(ds), busy_cycles(Stamps.of(ds), 1), 20, rng)
    assert known.mean_ns == pytest.approx(services.mean(), rel=0.15)
    assert known.pauses == pytest.approx(0.2, rel=0.3)
    assert known.pause_ns == pytest.approx(5_000_000, rel=0.02)
    prediction = predict(ds)
    assert prediction.growth is not None
    assert prediction.growth.low < 1e9 / services.mean() / prediction.per_s < prediction.growth.high


def test_bursts_reduce_the_load_that_can_be_added() -> None:
    even = poisson()
    # In a tenth of each second, the rate is fourfold.
    phase = np.mod(even, 1e9) / 1e9
    share = np.where(phase < 0.4, phase / 4, 0.1 + (phase - 0.4) * 1.5)
    bursty = np.sort(even - np.mod(even, 1e9) + share * 1e9)
    of_even, of_bursty = (predict(recording(each, constant(each))) for each in (even, bursty))
    assert of_even.growth is not None and of_bursty.growth is not None
    assert of_bursty.growth.high < of_even.growth.low


def test_work_that_falls_with_the_load_has_a_slope() -> None:
    arrivals = poisson(seconds=20)
    rng = np.random.default_rng(3)
    # The rate changes from second to second, and the service times change with the rate.
    stretch = np.repeat(rng.uniform(0.6, 1.4, 20), len(arrivals) // 20)
    arrivals = np.cumsum(np.diff(arrivals, prepend=0.0) * stretch)
    ds = recording(arrivals, SERVICE_NS * stretch**0.3)
    known = work(Stamps.of(ds), busy_cycles(Stamps.of(ds), 1), 40, rng)
    assert known.slope == pytest.approx(-0.3, abs=0.1)
    assert known.draws[:, 1].std() < 0.1


def test_a_cycle_contains_the_whole_work_of_preempted_messages() -> None:
    """Let the second worker start at 10 ns, and interrupt the first worker until 15 ns."""
    queued = np.array([0.0, 1.0, 2.0, 3.0])
    received = np.array([0.0, 7.0, 10.0, 18.0])
    departed = np.array([7.0, 18.0, 15.0, 25.0])
    whole = np.zeros(4, np.int64)
    cycles = busy_cycles(Stamps(queued, queued, received, departed, whole + 1, whole), 1)
    assert cycles.start_ns.tolist() == [7.0, 18.0]
    assert cycles.length_ns.tolist() == [11.0, 7.0]
    assert cycles.served[:, 1].tolist() == [2, 1]


def lacking(change: str) -> tuple[xr.Dataset, Server]:
    """Return messages and a server for which no headroom can be predicted, for the reason `change`."""
    if change == Lack.LOAD:
        arrivals = poisson(per_s=1_500, seconds=10)
        return recording(arrivals, constant(arrivals)), SERVER
    if change == Lack.CYCLES:
        arrivals = np.arange(PER_S) * 2 * SERVICE_NS
        return recording(arrivals, constant(arrivals)), SERVER
    if change == Lack.CORES:
        arrivals = poisson()
        return recording(arrivals, constant(arrivals), 8), replace(SERVER, cores=8, workers=8)
    arrivals = poisson(seconds=0.2 if change == Lack.MESSAGES else SECONDS)
    ds = recording(arrivals, constant(arrivals))
    if change == Lack.SAMPLED:
        ds.attrs["one_in"] = 10
    elif change == Lack.STREAM:
        ds.attrs["transport"] = "tcp"
    elif change == Lack.BREAKS:
        late = ds["t_arr"] > 2_000_000_000
        ds["t_arr"] = ds["t_arr"] + late * 3_000_000_000
    elif change == Lack.TIMES:
        ds["t_sip"][:] = np.uint32(0xFFFFFFFF)
    return ds, SERVER


@pytest.mark.parametrize("lack", [each for each in Lack if each])
def test_messages_that_cannot_show_the_headroom_are_named(lack: Lack) -> None:
    prediction = predict(*lacking(lack))
    assert prediction.lack == lack
    assert prediction.growth is None and not prediction.times
    assert np.isnan(prediction.half_width)
    assert LACKS[lack] in sentences(prediction)[-1]
    assert section(prediction).parts
    if lack in (Lack.CYCLES, Lack.CORES):
        assert prediction.cycles < LEAST_CYCLES


def test_without_a_replay_the_bound_for_poisson_arrivals_is_known() -> None:
    arrivals = poisson()
    ds = recording(arrivals, constant(arrivals))
    bound = headroom(ds, SERVER, None)
    prediction = predict(ds)
    assert bound.growth is None and not bound.times and not bound.lack
    assert bound.poisson == prediction.poisson
    assert bound.busy == prediction.busy
    assert f"at {bound.poisson:.2f} times" in " ".join(sentences(bound))
    assert len(sentences(bound)) < len(sentences(prediction))


def test_latest_messages_have_the_drops_since_the_first_of_them() -> None:
    arrivals = poisson(seconds=1.0)
    ds = recording(arrivals, constant(arrivals))
    first = int(ds["t_arr"][-1000])
    drops = np.array([first - 1, first, first + 1])
    ds = ds.drop_dims("drop").assign(drop_t_arr=("drop", drops))
    kept = latest(ds, 1000)
    assert kept.sizes["message"] == 1000
    assert kept["drop_t_arr"].to_numpy().tolist() == [first, first + 1]
    assert latest(ds, 10_000_000).sizes == ds.sizes
    assert kept.attrs == ds.attrs


def test_a_server_comes_from_the_attributes_or_from_the_caller() -> None:
    arrivals = poisson(seconds=0.1)
    ds = recording(arrivals, constant(arrivals))
    with pytest.raises(StableError, match=r"receive_buffer_bytes.*found None.*--buffer"):
        Server.of(ds, cores=1, workers=8)
    ds.attrs |= {"cores": 2, "threads": 4, "receive_buffer_bytes": 212_992}
    assert Server.of(ds) == Server(2, 4, 212_992)
    assert Server.of(ds, workers=6, receive_buffer_bytes=500_000) == Server(2, 6, 500_000)
    ds["queued_bytes"] = ("message", np.full(ds.sizes["message"], 768, np.uint32))
    assert Server.of(ds).truesize == 768


@pytest.mark.parametrize("factor", [0.5, 1.0, 1.5, 2.0, 2.3])
def test_scaled_arrivals_have_the_load(factor: float) -> None:
    times, rng = poisson().astype(np.int64), np.random.default_rng(4)
    span = int(times[-1]) + 1
    parts = list(scaled(times, span, factor, 1e6, rng))
    together = np.concatenate(parts)
    assert len(together) == pytest.approx(factor * len(times), rel=0.02)
    assert together.min() >= 0 and together.max() < span


def test_resampled_arrivals_keep_the_gaps_within_blocks() -> None:
    times, rng = poisson().astype(np.int64), np.random.default_rng(5)
    again, span = resampled(times, int(times[-1]) + 1, rng)
    assert np.all(np.diff(again) >= 0) and again[-1] < span
    assert len(again) == pytest.approx(len(times), rel=0.1)
    assert np.isin(np.diff(again), np.diff(times)).mean() > 0.99


def test_a_wide_interval_a_saturated_proxy_and_a_disagreeing_replay_are_named() -> None:
    def interval(low: float, estimate: float, high: float) -> Interval:
        return Interval(estimate, low, high, DRAWS)

    result = Headroom(
        *(SERVER, Lack.NONE, 20_000, 4.0, 0.02, 0.97, 900),
        work_us=interval(95.0, 100.0, 105.0),
        slope=interval(-0.1, 0.0, 0.1),
        growth=interval(0.5, 0.9, 2.1),
        poisson=1.0,
        p99_us=800.0,
        replayed_p99_us=3000.0,
    )
    text = " ".join(sentences(result))
    assert "saturated" in text and "interval is wide" in text and "is not predicted" in text
    loaded = TimeAt(1.5, interval(5000.0, 9000.0, 12000.0), interval(0.0, 0.01, 0.05))
    text = " ".join(sentences(replace(result, growth=interval(1.4, 1.5, 1.6), times=(loaded,))))
    text = text.replace("\u00a0", " ")
    assert "9.0 ms (5.0 to 12.0)" in text and "may saturate the proxy: 1.0 % (0 to 5.0)" in text
    assert "saturated:" not in text and "interval is wide" not in text
    assert "hypervisor" not in " ".join(sentences(replace(result, stolen=0.04)))
    assert "the hypervisor took 18 % of" in " ".join(sentences(replace(result, stolen=0.18)))
