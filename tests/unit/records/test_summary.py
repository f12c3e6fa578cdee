import json
import shutil
from dataclasses import asdict

import numpy as np
import pytest
import synthetic
import xarray as xr
import zstandard

from sipsched.analysis import message_times
from sipsched.errors import ComputedFileError, StableError
from sipsched.paths import PROJECT_ROOT
from sipsched.records import run_summary, study_summary, summary_files, summary_variables, trace
from sipsched.records.messages import (
    k_rcv,
    messages_from_record,
    nanoseconds,
    open_messages,
    write_messages,
)
from sipsched.records.publishable import publishable_hosts
from sipsched.records.record import COUNTERS_FILE, read_record
from sipsched.records.reduced import identity
from sipsched.versions import SUMMARY_VERSION

GRID = synthetic.GRID
COUNTED_FACTORS = ["wake_ups", "migrations", "kernel_locks", "own_locks_ns", "descriptors"]
SHARES = [*summary_variables.CPU_PARTS, "competitor_wait_s"]
FITTED = next((PROJECT_ROOT / "recorded/fit").rglob("run.json")).parent


def reduce(tmp_path, run, **options):
    record = synthetic.write_record(tmp_path / "raw", run, **options)
    messages = tmp_path / "runs" / run.path / "messages.nc"
    write_messages(messages_from_record(record), messages)
    ds = run_summary.summarise_run(messages, record)
    path = messages.with_name("summary.nc.zst")
    summary_files.write(ds, path)
    return ds, path, messages, record


def test_numbers_of_a_run(tmp_path):
    records = synthetic.six_per_call(np.random.default_rng(4), 200, 1000)
    ds, *_ = reduce(tmp_path, synthetic.Run(), records=records)
    k_rcv = (records["t_sip_in"] - records["t_arr"]) / 1000
    at = ds.sel(message_type="all")
    assert int(at["count"]) == 1200
    assert float(at["k_rcv_mean"]) == pytest.approx(k_rcv.mean())
    assert float(at["k_rcv_sd"]) == pytest.approx(k_rcv.std(ddof=1))
    for q in (50, 95, 99):
        assert float(at[f"k_rcv_p{q}"]) == pytest.approx(np.percentile(k_rcv, q))
    bye = records[records["kind"] == 5]
    service = (bye["t_sip_out"] - bye["t_sip_in"] - bye["in_cost_ns"]) / 1000
    assert float(ds["t_sip_mean"].sel(message_type="BYE")) == pytest.approx(service.mean())
    assert int(ds["count"].sel(message_type="other")) == 0
    assert np.isnan(float(ds["t_sip_mean"].sel(message_type="other")))
    parts = sum(float(at[f"{name}_mean"]) for name in ("k_stack", "k_sockq", "k_copy"))
    assert parts == pytest.approx(float(at["k_rcv_mean"]))


def test_pdr_comes_from_the_kernels_counters(tmp_path):
    ds, *_ = reduce(tmp_path, synthetic.Run(), calls=100, drops=30, resent=10)
    assert int(ds["count"].sel(message_type="all")) == 580
    assert int(ds["count"].sel(message_type="retransmission")) == 10
    assert float(ds["pdr"]) == pytest.approx(30 / 610)
    assert float(ds["rcvbuf_errors"]) == float(ds["probe_drops"]) == 30
    assert float(ds["steal_s"]) == pytest.approx(0.05)
    assert float(ds["so_rcvbuf"]) == 425984
    assert float(ds["proxy_cpu_ns"]) == 580 * 70_000


def test_a_run_without_the_probe_has_the_counters_and_no_times(tmp_path):
    ds, *_ = reduce(tmp_path, synthetic.Run(), calls=100, mode=0)
    assert str(ds["probe_mode"].item()) == "off"
    assert float(ds["in_datagrams"]) == 600
    assert np.isnan(float(ds["k_rcv_mean"].sel(message_type="all")))
    assert float(ds["proxy_cpu_ns"]) == 600 * 70_000


def waits(number):
    wait = {"count": number, "ns": 1000 * number}
    kinds = ("kernel_spin", "kernel_sleep", "futex", "sched_yield")
    return {**dict.fromkeys(kinds, wait), "descriptors": 5 * number}


def summarised(tmp_path, **parts):
    """Summarise a run with changed parts of its run.json; a part of None is removed."""
    run = synthetic.Run()
    record = synthetic.write_record(tmp_path / "raw", run, calls=100, mode=0)
    document = json.loads((record / "run.json").read_text())
    changed = {
        name: ... if part is None else {**(document[name] or {}), **part}
        for name, part in parts.items()
    }
    synthetic.rewrite(record, changed)
    messages = tmp_path / "runs" / run.path / "messages.nc"
    write_messages(messages_from_record(record), messages)
    return run_summary.summarise_run(messages, record)


def test_calls_that_failed_or_were_late_are_lost(tmp_path):
    ds = summarised(tmp_path, generator={"calls_completed": 98, "calls_failed": 2, "calls_late": 7})
    assert float(ds["calls_late"]) == 7
    assert float(ds["call_loss"]) == pytest.approx(0.09)
    assert float(ds["messages"]) == 600


def test_waits_and_switches_of_the_proxys_tasks(tmp_path):
    tasks = {
        **{"tasks": 9, "voluntary": 50, "involuntary": 60, "migrations": None},
        **{"user_ns": 7, "system_ns": 8},
    }
    counted = {"proxy": waits(3), "others": waits(100), "runs": 0, "run_ns": 0}
    ds = summarised(tmp_path, factors={"unavailable": "", "tasks": tasks, "waits": counted})
    numbers = {
        **{"wake_ups": 50, "preemptions": 60, "proxy_user_ns": 7, "proxy_system_ns": 8},
        **{"kernel_locks": 6, "kernel_locks_ns": 6000, "own_locks": 6, "own_locks_ns": 6000},
        "descriptors": 15,
    }
    assert {name: float(ds[name]) for name in numbers} == numbers
    assert np.isnan(float(ds["migrations"]))
    assert (str(ds["proxy"].item()), str(ds["transport"].item())) == ("kamailio", "udp")


@pytest.mark.parametrize(
    ("part", "content", "names"),
    [
        ("generator", {"calls_completed": 98, "calls_late": None}, ["call_loss"]),
        ("factors", None, COUNTED_FACTORS),
        ("factors", {"unavailable": "not built", "tasks": None, "waits": None}, COUNTED_FACTORS),
        ("account", None, SHARES),
        ("account", {"unavailable": "no", "account": None, "moved": 0, "tracers": 0}, SHARES),
    ],
)
def test_missing_recordings_are_nan(tmp_path, part, content, names):
    ds = summarised(tmp_path, **{part: content})
    assert all(np.isnan(float(ds[name])) for name in names)


def test_shares_of_cpu_time_add_up(tmp_path):
    parts = {
        **{"workers": 300, "proxy": 20, "own": 5, "softirq": 60, "irq": 15, "kernel": 10},
        **{"realtime": 40, "fair": 50, "idle_class": 100, "stolen": 30, "idle": 370},
        "total": 1000,
    }
    numbers = {"stopped_ns": 0, "frozen_ns": 0, "trace_stops": 0, "tasks_lost": 0, "runs": 0}
    account = {"parts": parts, "competitors": [], "wait_ns": 2_000_000, "wait_by": None, **numbers}
    report = {"unavailable": "", "account": {**account, "run_ns": 0}, "moved": 0, "tracers": 0}
    ds = summarised(tmp_path, account=report)
    assert sum(float(ds[name]) for name in summary_variables.CPU_PARTS) == pytest.approx(1)
    assert float(ds["proxy_share"]) == pytest.approx(0.32)
    assert float(ds["competitor_share"]) == pytest.approx(0.09)
    assert float(ds["competitor_wait_s"]) == pytest.approx(0.002)


def test_messages_between_front_and_instances_are_not_counted(tmp_path):
    record = synthetic.write_record(tmp_path / "raw", synthetic.Run(), calls=100, mode=0)
    document = json.loads((record / "run.json").read_text())
    write_counters(record, synthetic.counters(1300, 0))
    sut, ledger = document["sut"] | {"deployment": "front", "probe": "off"}, document["ledger"]
    # a front end on its own host dropped messages, which the counters of the SPS do not show
    ledger["to_sps"]["refused"] = 40
    synthetic.rewrite(record, {"sut": sut | {"front_host": "front"}, "ledger": ledger})
    messages = tmp_path / "messages.nc"
    write_messages(messages_from_record(record), messages)
    summary = run_summary.summarise_run(messages, record)
    assert float(summary["in_datagrams"]) == 600
    assert float(summary["pdr"]) == pytest.approx(40 / 640)


def test_overall_service_time_excludes_only_waiting(tmp_path):
    ds, *_ = reduce(tmp_path, synthetic.Run(), calls=50)
    overall_service_time = message_times.overall_service_time(ds)
    at = ds.sel(message_type="all")
    all_means = sum(float(at[f"{name}_mean"]) for name in ("k_rcv", "t_sip", "k_snd"))
    without_queue = all_means - float(at["k_sockq_mean"])
    assert float(overall_service_time) == pytest.approx(without_queue + float(ds["k_sockq_alone"]))
    assert overall_service_time.attrs["units"] == "us"
    assert float(message_times.cpu_time(ds)) == pytest.approx(
        without_queue - float(at["t_sip_off_mean"])
    )
    preload, *_ = reduce(tmp_path, synthetic.Run(rep=2), calls=5, mode=3)
    assert np.isnan(message_times.overall_service_time(preload))
    assert np.isnan(message_times.cpu_time(preload))


def test_drops_by_type(tmp_path):
    records = synthetic.six_per_call(np.random.default_rng(4), 100, 1000)
    records = synthetic.refuse(records, 60, np.random.default_rng(5))
    records = synthetic.resend(records, 10, np.random.default_rng(6))
    ds, *_ = reduce(tmp_path, synthetic.Run(), records=records)
    refused = records["kind"][records["event"] == trace.Event.DROP]
    for name, kind in zip(summary_variables.TYPES[1:7], synthetic.KINDS, strict=True):
        at = ds.sel(message_type=name)
        assert int(at["drops"]) == np.count_nonzero(refused == kind), name
        assert int(at["count"] + at["drops"]) == 100, name
    assert int(ds["drops"].sel(message_type="all")) == int(ds["probe_drops"]) == 60


def test_k_sockq_alone_averages_messages_that_find_the_sps_empty(tmp_path):
    # two messages arrive every ms, 20 us apart, and the first message stays in the SPS for 100 us
    records = synthetic.six_per_call(np.random.default_rng(4), 10, 1000)
    i = np.arange(60, dtype=np.uint64)
    records["t_arr"] = 10**12 + i // 2 * 1_000_000 + i % 2 * 20_000
    records["t_stack"] = records["t_arr"] + 1_000
    records["t_sockq"] = records["t_stack"] + np.where(i % 2, 80_000, 5_000).astype(np.uint64)
    for name, after in (("t_sip_in", 1_000), ("t_sip_out", 91_000), ("t_dep", 94_000)):
        records[name] = records["t_sockq"] + np.uint64(after)
    ds, *_ = reduce(tmp_path, synthetic.Run(), records=records)
    assert float(ds["k_sockq_alone"]) == 5
    assert int(ds["k_sockq_alone_n"]) == 29  # the state at the first message is unknown
    # the first message stays for 100 us; the second arrives at 20 us and stays for 178 us
    assert int(ds["busy_periods"]) == 30
    assert float(ds["busy_periods_effective"]) == pytest.approx(30)
    assert float(ds["busy_longest_s"]) == pytest.approx(196e-6, abs=2e-6)
    assert float(ds["busy_longest_share"]) == pytest.approx(196 / 29_196, rel=0.02)


def test_one_long_busy_period_lowers_the_effective_number(tmp_path):
    # a message arrives every ms and stays for 50 us, but the 20th to the 30th stay for 10 ms and keep the SPS busy
    records = synthetic.six_per_call(np.random.default_rng(4), 10, 1000)
    i = np.arange(60, dtype=np.uint64)
    records["t_arr"] = 10**12 + i * 1_000_000
    records["t_stack"] = records["t_arr"] + 1_000
    records["t_sockq"] = records["t_stack"] + 1_000
    records["t_sip_in"] = records["t_sockq"] + 1_000
    long = (i >= 20) & (i <= 30)
    records["t_sip_out"] = records["t_sip_in"] + np.where(long, 10_000_000, 40_000).astype(
        np.uint64
    )
    records["t_dep"] = records["t_sip_out"] + 7_000
    ds, *_ = reduce(tmp_path, synthetic.Run(), records=records)
    # the 30th message stays in the SPS for 10.05 ms, so the SPS is still busy when the 31st to the 40th arrive
    assert int(ds["busy_periods"]) == 20 + 1 + 19
    assert float(ds["busy_longest_s"]) == pytest.approx(20.05e-3, rel=1e-3)
    lengths = np.array([50e-6] * 39 + [20.05e-3])
    assert float(ds["busy_periods_effective"]) == pytest.approx(
        lengths.sum() ** 2 / (lengths**2).sum(), rel=0.01
    )
    assert float(ds["busy_longest_share"]) == pytest.approx(20.05 / 59.05, rel=1e-3)


def test_settings_of_the_mode_as_they_were_on_this_kernel(tmp_path):
    ds, *_ = reduce(tmp_path, synthetic.Run(cps=1))
    assert json.loads(ds["mode_settings"].item()) == {
        "translated": False,
        "steps": [],
        "in_force": {},
    }
    steps = [
        synthetic.step("min_granularity_ns", 100_000, place="each worker"),
        synthetic.step("latency_ns", 800_000, unavailable="EEVDF has none"),
    ]
    scheduler = {"label": "m (translated)", "found": {"a": "7", "b": None}, "steps": steps}
    ds, *_ = reduce(tmp_path, synthetic.Run(cps=2), scheduler=scheduler)
    assert ds["mode_label"].item() == "m (translated)"
    settings = json.loads(ds["mode_settings"].item())
    assert settings["translated"] is False  # only the record itself marks a mode as a translation
    assert settings["in_force"] == {"a": "7", "each worker": "100000"}
    assert [step["unavailable"] for step in settings["steps"]] == [None, "EEVDF has none"]


def test_every_variable_is_described(tmp_path):
    ds, *_ = reduce(tmp_path, synthetic.Run())
    for name, variable in ds.data_vars.items():
        assert {"long_name", "definition"} <= set(variable.attrs), name
        assert variable.dtype.kind == "U" or "units" in variable.attrs, name


def test_the_summary_file_of_a_run_is_small_and_complete(tmp_path):
    ds, path, *_ = reduce(tmp_path, synthetic.Run(), calls=20_000)
    # use the description of real hosts, which takes a large part of a summary
    recorded = recorded_hosts()
    real = ds.assign_attrs(hosts=recorded)
    summary_files.write(real, path)
    assert len(recorded) > 9000
    assert path.stat().st_size <= 8000
    again = summary_files.open_run(path)
    xr.testing.assert_identical(again, real[list(again.variables)])
    assert set(again.variables) == set(ds.variables)


def recorded_hosts():
    record = read_record(FITTED)
    return json.dumps(publishable_hosts(asdict(record.hosts)), sort_keys=True)


def test_a_cell_with_a_run_without_histogram_has_no_pooled_quantile(tmp_path):
    run = synthetic.Run()
    ds, path, *_ = reduce(tmp_path, run)
    assert np.isfinite(
        message_times.pooled_quantile(study_summary.combine([path], [run]), "k_rcv", 0.5)
    ).all()
    summary_files.write(ds.assign(histogram=0 * ds["histogram"]), path)
    assert np.isnan(
        message_times.pooled_quantile(study_summary.combine([path], [run]), "k_rcv", 0.5)
    ).all()


def test_a_damaged_summary_is_named_with_a_remedy(tmp_path):
    run = synthetic.Run()
    _, path, _, record = reduce(tmp_path, run)
    content = path.read_bytes()
    inside = zstandard.decompress(content)
    assert summary_files.made_of(path) == identity(record)
    for damaged in (content[:-20], content[:10], b"", inside, zstandard.compress(inside[:300])):
        path.write_bytes(damaged)
        with pytest.raises(StableError, match=r"summary\.nc\.zst: .*delete it and run snakemake"):
            study_summary.combine([path], [run])
        assert summary_files.made_of(path) == ""


def test_quantiles_of_a_cell_and_of_a_mode_are_those_of_their_messages(tmp_path):
    made = [
        reduce(tmp_path, run, calls=200 + 100 * run.rep, wait=run.cps / 500, valid=run != GRID[3])
        for run in GRID
    ]
    ds = study_summary.combine([path for _, path, *_ in made], GRID)
    assert ds["histogram_runs"].squeeze().to_numpy().tolist() == [[2, 1], [2, 2]]
    counted = [
        (run, open_messages(messages))
        for run, (_, _, messages, _) in zip(GRID, made, strict=True)
        if run != GRID[3]
    ]
    for quantity in summary_variables.COUNTED:
        for share in (0.5, 0.99, 0.999):
            by_cell = message_times.pooled_quantile(ds, quantity, share)
            for mode in ("default", "batch"):
                of_mode = [
                    (run, of_run(result, quantity)) for run, result in counted if run.mode == mode
                ]
                for cps in (500, 1000):
                    of_cell = np.concatenate([times for run, times in of_mode if run.cps == cps])
                    exact = np.quantile(of_cell, share, method="inverted_cdf") / 1000
                    result = float(by_cell.sel(mode=mode, cps=cps).item())
                    assert result == pytest.approx(exact, rel=0.01)


def of_run(found, quantity):
    waited, served = k_rcv(found), nanoseconds(found, "t_sip")
    return {"k_rcv": waited, "t_sip": served, "total": waited + served}[quantity]


def test_combined_has_planned_but_missing_and_invalid_runs(tmp_path):
    planned = [
        synthetic.Run(threads=threads, cps=cps, rep=rep)
        for threads in (2, 8)
        for cps in (500, 1000)
        for rep in (1, 2)
    ]
    paths = [reduce(tmp_path, run, calls=50, valid=run != planned[1])[1] for run in planned[:-1]]
    ds = study_summary.combine(paths, planned)
    assert tuple(ds["k_rcv_mean"].dims) == (*summary_variables.RUN_DIMS, "message_type")
    status = ds["status"].squeeze()
    assert status.to_numpy().ravel().tolist() == [
        "measured", "invalid", *["measured"] * 5, "missing"
    ]  # fmt: skip
    point = {"threads": 2, "cps": 500, "rep": 2}
    invalid = ds.sel(point).squeeze()
    assert np.isnan(float(invalid["pdr"]))
    assert np.isnan(invalid["k_rcv_mean"]).all()
    (finding,) = json.loads(invalid["findings"].item())
    assert (finding["rule"], finding["value"], finding["limit"]) == ("lateness_p99_us", 2100, 2000)
    assert np.isfinite(float(invalid["achieved_cps"]))
    missing = ds.sel(threads=8, cps=1000, rep=2).squeeze()
    assert np.isnan(float(missing["pdr"]))
    assert missing["probe_mode"].item() == ""
    assert ds.attrs["kernels"] == "0.0.0-synthetic"
    summary_files.write(ds, tmp_path / "summary.nc")
    again = summary_files.open_summary(tmp_path / "summary.nc")
    assert again.equals(ds)
    assert again.attrs["fidelity"] == synthetic.FIDELITY


def joined_again(tmp_path, paths, planned):
    """Join the summaries as the workflow does."""
    path = tmp_path / "results" / "study" / "synthetic" / "summary.nc"
    ds, settled = study_summary.join_again(
        path, paths, planned, tmp_path / "results" / "raw", tmp_path / "results"
    )
    study_summary.write_again(ds, settled, path)
    return ds


@pytest.mark.parametrize("added", [0, 3, 5])
def test_adding_a_run_to_a_join_equals_joining_all_runs(tmp_path, monkeypatch, added):
    paths = {}
    for number, run in enumerate(GRID[:-1]):
        reduce(tmp_path / "results", run, calls=20 + number, valid=number != 1)
        paths[run] = tmp_path / "results" / "runs" / run.path / "summary.nc.zst"
    before = [path for run, path in paths.items() if run != GRID[added]]
    joined_again(tmp_path, before, GRID)
    read = []
    reading = study_summary.read_run_summary
    monkeypatch.setattr(
        study_summary, "read_run_summary", lambda path: read.append(path) or reading(path)
    )
    after = joined_again(tmp_path, list(paths.values()), GRID)
    assert read == [paths[GRID[added]]]
    assert after.identical(study_summary.combine(list(paths.values()), GRID))


def test_a_join_reads_all_runs_again_if_one_has_changed(tmp_path):
    planned = [synthetic.Run(rep=rep) for rep in (1, 2)]
    for run in planned:
        reduce(tmp_path / "results", run, calls=20)
    paths = [tmp_path / "results" / "runs" / run.path / "summary.nc.zst" for run in planned]
    before = joined_again(tmp_path, paths, planned)
    shutil.rmtree(tmp_path / "results" / "raw" / planned[0].path)
    with pytest.raises(ComputedFileError, match="made from another record"):
        joined_again(tmp_path, paths, planned)
    ds, *_ = reduce(tmp_path / "results", planned[0], calls=40)
    summary_files.write(ds, paths[0])
    after = joined_again(tmp_path, paths, planned)
    assert after.identical(study_summary.combine(paths, planned))
    assert not after.equals(before)
    fewer = joined_again(tmp_path, paths[1:], planned[1:])
    assert fewer.identical(study_summary.combine(paths[1:], planned[1:]))


def test_a_grid_with_holes_is_combined_without_summaries(tmp_path):
    planned = [synthetic.Run(threads=2, cps=500), synthetic.Run(threads=8, cps=1000)]
    ds = study_summary.combine([], planned)
    result = sorted(ds["status"].to_numpy().ravel().tolist())
    assert result == ["missing", "missing", "not planned", "not planned"]
    assert ds.attrs["fidelity"].startswith("unknown")


def test_combine_refuses_unplanned_repeated_and_foreign_summaries(tmp_path):
    run, other = synthetic.Run(cps=500), synthetic.Run(cps=1000)
    _, path, messages, _ = reduce(tmp_path, run, calls=5)
    with pytest.raises(StableError, match="not planned"):
        study_summary.combine([path], [other])
    with pytest.raises(StableError, match="twice"):
        study_summary.combine([path, path], [run])
    with pytest.raises(StableError, match="no run of the study is recorded; measure a run"):
        study_summary.combine([], [])
    version = SUMMARY_VERSION
    with pytest.raises(StableError, match=f"expected 'sipsched run summary' version {version}"):
        foreign = tmp_path / "summary.nc.zst"
        foreign.write_bytes(zstandard.compress(messages.read_bytes()))
        study_summary.combine([foreign], [run])
    foreign.unlink()
    with pytest.raises(StableError, match="no such summary"):
        study_summary.combine([tmp_path / "summary.nc.zst"], [run])
    with pytest.raises(StableError, match="testbed: expected elsewhere, found synthetic"):
        study_summary.combine([path], [synthetic.Run(testbed="elsewhere", cps=500)])


def test_summary_refuses_another_runs_messages_and_cut_counters(tmp_path):
    _, _, messages, record = reduce(tmp_path, synthetic.Run(cps=500), calls=5)
    *_, other = reduce(tmp_path, synthetic.Run(cps=1000), calls=5)
    with pytest.raises(StableError, match="made from another record"):
        run_summary.summarise_run(messages, other)
    path = record / COUNTERS_FILE
    document = json.loads(zstandard.decompress(path.read_bytes()))
    document["sps"]["after"]["/proc/net/snmp"] = ""
    for content, message in (
        (json.dumps(document), r"sps after /proc/net/snmp: expected counters"),
        ("{", r"counters\.json\.zst: not JSON"),
    ):
        path.write_bytes(zstandard.compress(content.encode()))
        synthetic.rewrite(record)
        write_messages(messages_from_record(record), messages)
        with pytest.raises(StableError, match=message):
            run_summary.summarise_run(messages, record)


def write_counters(record, counters):
    (record / COUNTERS_FILE).write_bytes(zstandard.compress(json.dumps(counters).encode()))


def test_a_file_made_from_another_record_is_refused_and_named(tmp_path):
    run = synthetic.Run()
    _, path, messages, record = reduce(tmp_path, run, calls=20)
    synthetic.rewrite(record, {"started_at": "2026-02-01T00:00:00Z"})
    with pytest.raises(ComputedFileError, match="made from another record") as error:
        run_summary.summarise_run(messages, record)
    assert error.value.path == messages
    raw = record.parents[len(run.path.parts) - 1]
    with pytest.raises(ComputedFileError, match="made from another record") as error:
        study_summary.join([path], [run], raw=raw)
    assert error.value.path == path
    assert study_summary.join([path], [run]).summary["status"].item() == "measured"


def test_a_recorded_run_without_an_account_is_read():
    recorded = sorted((PROJECT_ROOT / "recorded" / "raw").glob("**/summary.nc.zst"))
    read = summary_files.open_run(recorded[0])
    assert np.isnan(float(read["competitor_share"]))
    assert float(read["messages"]) > 0
