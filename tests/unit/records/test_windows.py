"""Tests of the windows of runs that compare modes."""

import json
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
import synthetic
import xarray as xr
import zstandard
from synthetic import Run, write_comparison

from sipsched.errors import StableError
from sipsched.paths import RUN_FILE
from sipsched.plan.crossover import Instance
from sipsched.records import switch_log, window_time, windows
from sipsched.records.messages import messages_from_record, write_messages
from sipsched.records.run_document import read_run
from sipsched.records.switch_log import WINDOWS_FILE, Competed, read_windows

WAITS = {"default": 1.0, "batch": 2.0}
RUN = Run(mode="default,batch", cps=400)


def reduced(record: Path, folder: Path) -> xr.Dataset:
    """Parse a record, reduce its messages to windows, write the windows, and read them again."""
    write_messages(messages_from_record(record), folder / "messages.nc")
    dataset = windows.windows_from_record(folder / "messages.nc", record)
    windows.write_windows(dataset, folder / "windows.nc")
    return windows.open_windows(folder / "windows.nc")


@pytest.fixture(scope="module")
def quiet(tmp_path_factory: pytest.TempPathFactory) -> xr.Dataset:
    folder = tmp_path_factory.mktemp("quiet")
    return reduced(write_comparison(folder / "raw", RUN, WAITS), folder)


def test_each_window_is_arranged_by_block_and_arm(quiet: xr.Dataset) -> None:
    table = windows.by_arm(quiet, "k_rcv_p50")
    assert table.shape == (20, 3)
    assert not np.isnan(table).any()
    assert quiet["arm"].to_numpy().tolist() == ["default", "batch", "sham"]
    assert (quiet["left_out"] == windows.COUNTS).all()
    # the ratios of K_rcv are about 2 and 1, as the ratios of the waits, because K_rcv consists nearly only of waiting
    assert 1.6 < np.median(table[:, 1] / table[:, 0]) < 2.1
    assert 0.9 < np.median(table[:, 2] / table[:, 0]) < 1.1


def test_a_window_contains_the_messages_that_arrive_after_its_washout(quiet: xr.Dataset) -> None:
    kept_s = quiet["length"] - quiet["washout"]
    assert np.allclose(quiet["messages"] / (6 * RUN.cps * kept_s), 1, atol=0.35)
    assert float((quiet["messages"] / kept_s).mean()) == pytest.approx(6 * RUN.cps, rel=0.02)
    assert (quiet["messages"][1] < quiet["messages"][0]).all()
    assert quiet["washout"].to_numpy().tolist() == [0.05, 0.1]


def test_cpu_time_per_message_is_computed_per_window(quiet: xr.Dataset) -> None:
    table = windows.by_arm(quiet, "cpu_per_message")
    assert np.allclose(table[:, 0], 70, rtol=0.01)
    assert np.allclose(table[:, 1], 140, rtol=0.01)


def test_the_service_of_a_message_is_its_time_on_cpu(quiet: xr.Dataset) -> None:
    # service times are lognormal with a median of 90 us and sigma 0.5, and exclude the time off the CPU
    assert float(quiet["service"].mean()) == pytest.approx(90 * np.exp(0.125), rel=0.03)
    assert float(quiet["service_scv"].mean()) == pytest.approx(np.expm1(0.25), rel=0.1)


def test_the_windows_have_the_settings_of_each_mode(tmp_path: Path) -> None:
    step = synthetic.step("min_granularity_ns", 100_000, "sched_setattr of each worker")
    record = write_comparison(tmp_path / "raw", RUN, WAITS, steps={"batch": [step]})
    default, batch = json.loads(reduced(record, tmp_path).attrs["settings"])
    assert default == []
    assert batch == [step]


def test_the_response_is_aligned_at_the_switches(quiet: xr.Dataset) -> None:
    aligned = quiet["aligned_k_rcv"].sel(arm="batch") / quiet["aligned_k_rcv"].sel(arm="default")
    assert aligned.sizes["since_switch"] == windows.BINS
    assert 1.5 < float(aligned.mean()) < 2.2
    assert float(quiet["since_switch"].max()) < float(quiet["length"].min())
    assert (quiet["aligned_k_rcv_error"] > 0).all()


def test_the_windows_have_the_part_of_the_washout_for_calls(
    tmp_path: Path, quiet: xr.Dataset
) -> None:
    # records of older versions lack the key
    assert quiet.attrs["call_tail_s"] == 0.05
    record = write_comparison(tmp_path / "raw", RUN, WAITS)
    recorded = read_windows(record)
    for tail_s, expected in ((0.04, 0.04), (None, np.nan)):
        design = replace(recorded.design, call_tail_s=tail_s)
        (record / WINDOWS_FILE).write_bytes(replace(recorded, design=design).to_bytes())
        synthetic.rewrite(record)
        result = reduced(record, tmp_path)
        np.testing.assert_equal(result.attrs["call_tail_s"], expected)


def test_the_windows_have_the_receive_buffer_of_each_mode(tmp_path: Path) -> None:
    record = write_comparison(tmp_path / "raw", RUN, WAITS)
    assert json.loads(reduced(record, tmp_path).attrs["receive_buffers"]) == [425984, 425984]
    document = read_run(record)
    assert document.crossover is not None
    changed = replace(
        document,
        settings=replace(document.settings, so_rcvbuf_of_instances=(425984, 131072, 425984)),
        crossover=replace(document.crossover, instance_of_mode=(0, 1)),
    )
    (record / RUN_FILE).write_text(changed.to_json())
    result = reduced(record, tmp_path)
    assert json.loads(result.attrs["receive_buffers"]) == [425984, 131072]


def test_the_cpu_time_of_instances_without_calls_is_known_after_the_washout(
    tmp_path: Path, quiet: xr.Dataset
) -> None:
    assert "idle_instances_share" not in quiet
    record = write_comparison(tmp_path / "raw", RUN, WAITS)
    recorded, crossover = read_windows(record), read_run(record).crossover
    assert crossover is not None
    # the instances of default, of batch and of the sham
    eight, two = Instance("kamailio-udp", 8), Instance("kamailio-udp", 2)
    compared = replace(crossover, instances=(eight, two, eight), instance_of_mode=(0, 1))
    design, samples = recorded.design, recorded.log.samples
    t_ns = np.array(samples.t_ns)
    done = window_time.spans(recorded).done
    window = np.maximum(np.searchsorted(done, t_ns[:-1], side="right") - 1, 0)
    serving = np.array([2 if one.sham else one.mode for one in design.windows])[window]
    # Each idle instance uses 1 % of the CPU time, and a third during the washout.
    washed_out = t_ns[:-1] >= done[window] + round(design.washout_s * 1e9)
    used = np.where(washed_out, 10_000, 333_000) * np.ones((3, 1), np.int64)
    used[serving, np.arange(serving.size)] = np.where(washed_out, 980_000, 334_000)
    cpu_ns = np.pad(np.cumsum(used, axis=1), ((0, 0), (1, 0)))
    log = replace(recorded.log, cpu_ns_of_instances=tuple(map(tuple, cpu_ns.tolist())))
    (record / WINDOWS_FILE).write_bytes(replace(recorded, log=log).to_bytes())
    synthetic.rewrite(record, {"crossover": asdict(compared)})
    result = reduced(record, tmp_path)
    assert np.allclose(result["idle_instances_share"], 0.02)
    assert result.attrs["instances"] == 3


def test_incomplete_cpu_times_of_instances_are_an_error(tmp_path: Path) -> None:
    record = write_comparison(tmp_path / "raw", RUN, WAITS)
    recorded, crossover = read_windows(record), read_run(record).crossover
    assert crossover is not None
    instance = Instance("kamailio-udp", 8)
    compared = replace(crossover, instances=(instance,) * 3, instance_of_mode=(0, 1))
    row = recorded.log.samples.t_ns
    for rows, message in (
        ((row, row, row[1:]), rf"expected {len(row)} samples .* instance 2, found {len(row) - 1}"),
        ((row, row), "expected the CPU time of 3 instances, found 2"),
    ):
        log = replace(recorded.log, cpu_ns_of_instances=rows)
        (record / WINDOWS_FILE).write_bytes(replace(recorded, log=log).to_bytes())
        synthetic.rewrite(record, {"crossover": asdict(compared)})
        with pytest.raises(StableError, match=message):
            reduced(record, tmp_path)


def test_a_failed_switch_invalidates_only_its_window(tmp_path: Path) -> None:
    record = reduced(write_comparison(tmp_path / "raw", RUN, WAITS, broken=(4,)), tmp_path)
    assert record["left_out"].to_numpy().nonzero()[0].tolist() == [4]
    assert int(record["left_out"][4]) == windows.SWITCH
    assert np.isnan(windows.by_arm(record, "k_rcv_mean")).sum() == 1


def test_stolen_time_invalidates_all_windows_of_the_block(tmp_path: Path) -> None:
    record = write_comparison(tmp_path / "raw", RUN, WAITS, steal_ticks={7: 10, 12: 1})
    result = reduced(record, tmp_path)
    # 0.1 s of about 0.5 s were stolen in this window; in another window, one stolen tick is below the limit
    assert float(result["steal_share"][7]) == pytest.approx(0.2, rel=0.15)
    assert result["left_out"].to_numpy().nonzero()[0].tolist() == [6, 7, 8]
    assert int(result["left_out"][8]) == windows.STOLEN


def test_the_competitors_share_of_a_window_is_interpolated(tmp_path: Path) -> None:
    record = write_comparison(tmp_path / "raw", RUN, WAITS)
    recorded = read_windows(record)
    placed = window_time.spans(recorded)
    assert np.isnan(window_time.machine(recorded, placed).competitor_share).all()
    # a competitor uses half of one window, with samples before and after each end of the window
    begin, end = int(placed.done[3]), int(placed.end[3])
    used = (end - begin) // 2
    samples = Competed((begin - 10**7, begin, end, end + 10**7), (5, 5, 5 + used, 5 + used))
    shares = window_time.machine(replace(recorded, competed=samples), placed).competitor_share
    assert shares[3] == pytest.approx(0.5)
    assert np.isnan(shares[:3]).all() and np.isnan(shares[4:]).all()


def test_stolen_time_at_the_end_of_a_block_marks_the_next_block(tmp_path: Path) -> None:
    record = write_comparison(tmp_path / "raw", RUN, WAITS, steal_ticks={8: 10})
    result = reduced(record, tmp_path)
    assert result["left_out"].to_numpy().nonzero()[0].tolist() == [6, 7, 8, 9, 10, 11]


def test_without_retransmissions_a_drop_is_an_outcome(tmp_path: Path) -> None:
    record = reduced(write_comparison(tmp_path / "raw", RUN, WAITS, dropped=(7,)), tmp_path)
    assert (record["left_out"] == windows.COUNTS).all()
    assert record["drops"].isel(washout=0).to_numpy().nonzero()[0].tolist() == [7]
    assert 0 < float(record["pdr"][0, 7]) < 0.002


def test_a_run_that_ended_early_has_windows_that_do_not_count(tmp_path: Path) -> None:
    record = write_comparison(tmp_path / "raw", RUN, WAITS)
    recorded = read_windows(record)

    log = replace(recorded.log, ended="signal", windows=recorded.log.windows[:10])
    cut = replace(recorded, log=log).to_bytes()
    (record / WINDOWS_FILE).write_bytes(cut)
    synthetic.rewrite(record)
    result = reduced(record, tmp_path)
    assert set(result["left_out"].to_numpy()[9:].tolist()) == {windows.UNFINISHED}
    assert np.isnan(windows.by_arm(result, "k_rcv_mean")[4:]).all()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not a zstd file"),
        (zstandard.compress(b"{"), "truncated"),
        (zstandard.compress(b'{"version": 2}'), "expected version 1, found 2"),
        (zstandard.compress(b'{"version": 1}'), "missing required field `design`"),
    ],
)
def test_a_damaged_record_of_windows_is_one_clear_error(
    tmp_path: Path, content: bytes, message: str
) -> None:
    (tmp_path / WINDOWS_FILE).write_bytes(content)
    with pytest.raises(StableError, match=message) as caught:
        switch_log.read_windows(tmp_path)
    assert "\n" not in str(caught.value)
