import json
from dataclasses import asdict

import numpy as np
import pytest
import synthetic
import xarray as xr
import zstandard

from sipsched.errors import StableError
from sipsched.paths import PROJECT_ROOT
from sipsched.records import manifest, summary, trace
from sipsched.records.messages import (
    k_rcv,
    messages_from_record,
    nanoseconds,
    open_messages,
    write_messages,
)
from sipsched.records.publishable import publishable_hosts
from sipsched.records.record import read_record
from sipsched.versions import SUMMARY_VERSION

FITTED = next((PROJECT_ROOT / "recorded/fit").rglob("run.json")).parent


def reduce(tmp_path, run, **options):
    record = synthetic.write_record(tmp_path / "raw", run, **options)
    messages = tmp_path / "runs" / run.path / "messages.nc"
    write_messages(messages_from_record(record), messages)
    ds = summary.summarise_run(messages, record)
    path = messages.with_name("summary.nc.zst")
    summary.write(ds, path)
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
    """Summarise a run whose run.json says other things in these parts; those given as None are left out."""
    run = synthetic.Run()
    record = synthetic.write_record(tmp_path / "raw", run, calls=100, mode=0)
    document = json.loads((record / "run.json").read_text())
    for name, part in parts.items():
        if part is None:
            document.pop(name)
        else:
            document[name] = {**(document[name] or {}), **part}
    (record / "run.json").write_text(json.dumps(document))
    messages = tmp_path / "runs" / run.path / "messages.nc"
    write_messages(messages_from_record(record), messages)
    return summary.summarise_run(messages, record)


def test_calls_that_failed_or_were_late_are_lost(tmp_path):
    ds = summarised(tmp_path, generator={"calls_completed": 98, "calls_failed": 2, "calls_late": 7})
    assert float(ds["calls_late"]) == 7
    assert float(ds["call_loss"]) == pytest.approx(0.09)
    assert float(ds["messages"]) == 600


def test_where_nobody_noted_when_calls_were_set_up_their_loss_is_not_known(tmp_path):
    ds = summarised(tmp_path, generator={"calls_completed": 98, "calls_late": None})
    assert np.isnan(float(ds["call_loss"]))


def test_what_keeps_tasks_from_each_other(tmp_path):
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
    "factors", [None, {"unavailable": "not built", "tasks": None, "waits": None}]
)
def test_what_was_not_counted_is_not_known(tmp_path, factors):
    ds = summarised(tmp_path, factors=factors)
    for name in ("wake_ups", "migrations", "kernel_locks", "own_locks_ns", "descriptors"):
        assert np.isnan(float(ds[name]))


def test_a_summary_of_a_record_reduced_before_has_no_newer_number(tmp_path):
    ds, path, *_ = reduce(tmp_path, synthetic.Run(), calls=20)
    newer = ["call_loss", "wake_ups", "transport"]
    old = ds.drop_vars(newer)
    old.attrs["format_version"] = 8
    summary.write(old, path)
    read = summary.open_run(path)
    assert np.isnan(float(read["call_loss"]))
    assert np.isnan(float(read["wake_ups"]))
    assert str(read["transport"].item()) == ""
    assert float(read["proxy_cpu_ns"]) == float(ds["proxy_cpu_ns"])
    summary.write(read, path)
    combined = summary.combine([path], [synthetic.Run()])
    assert np.isnan(float(combined["call_loss"].squeeze()))


def test_what_a_front_and_its_instances_send_each_other_did_not_reach_the_sps(tmp_path):
    record = synthetic.write_record(tmp_path / "raw", synthetic.Run(), calls=100, mode=0)
    document = json.loads((record / "run.json").read_text())
    document["sut"] |= {"deployment": "front", "probe": "off"}
    (record / "run.json").write_text(json.dumps(document))
    (record / "counters.json").write_text(json.dumps(synthetic.counters(1300, 0)))
    messages = tmp_path / "messages.nc"
    write_messages(messages_from_record(record), messages)
    assert float(summary.summarise_run(messages, record)["in_datagrams"]) == 600


def test_overall_service_time_is_all_but_waiting(tmp_path):
    ds, *_ = reduce(tmp_path, synthetic.Run(), calls=50)
    found = summary.overall_service_time(ds)
    at = ds.sel(message_type="all")
    all_means = sum(float(at[f"{name}_mean"]) for name in ("k_rcv", "t_sip", "k_snd"))
    without_queue = all_means - float(at["k_sockq_mean"])
    assert float(found) == pytest.approx(without_queue + float(ds["k_sockq_alone"]))
    assert found.attrs["units"] == "us"
    assert float(summary.cpu_time(ds)) == pytest.approx(without_queue - float(at["t_sip_off_mean"]))
    preload, *_ = reduce(tmp_path, synthetic.Run(rep=2), calls=5, mode=3)
    assert np.isnan(summary.overall_service_time(preload))
    assert np.isnan(summary.cpu_time(preload))


def test_drops_by_type(tmp_path):
    records = synthetic.six_per_call(np.random.default_rng(4), 100, 1000)
    records = synthetic.refuse(records, 60, np.random.default_rng(5))
    records = synthetic.resend(records, 10, np.random.default_rng(6))
    ds, *_ = reduce(tmp_path, synthetic.Run(), records=records)
    refused = records["kind"][records["event"] == trace.Event.DROP]
    for name, kind in zip(summary.TYPES[1:7], synthetic.KINDS, strict=True):
        at = ds.sel(message_type=name)
        assert int(at["drops"]) == np.count_nonzero(refused == kind), name
        assert int(at["count"] + at["drops"]) == 100, name
    assert int(ds["drops"].sel(message_type="all")) == int(ds["probe_drops"]) == 60


def test_a_message_that_meets_no_other_waits_for_the_kernel_alone(tmp_path):
    # a message every ms, each 100 us in the SPS; every second one has another 20 us behind it
    records = synthetic.six_per_call(np.random.default_rng(4), 10, 1000)
    i = np.arange(60, dtype=np.uint64)
    records["t_arr"] = 10**12 + i // 2 * 1_000_000 + i % 2 * 20_000
    records["t_stack"] = records["t_arr"] + 1_000
    records["t_sockq"] = records["t_stack"] + np.where(i % 2, 80_000, 5_000).astype(np.uint64)
    for name, after in (("t_sip_in", 1_000), ("t_sip_out", 91_000), ("t_dep", 94_000)):
        records[name] = records["t_sockq"] + np.uint64(after)
    ds, *_ = reduce(tmp_path, synthetic.Run(), records=records)
    assert float(ds["k_sockq_alone"]) == 5
    assert int(ds["k_sockq_alone_n"]) == 29  # the first met we know not whom
    # 100 us of the first; the second comes at 20 us and stays 178 us
    assert int(ds["busy_periods"]) == 30
    assert float(ds["busy_periods_effective"]) == pytest.approx(30)
    assert float(ds["busy_longest_s"]) == pytest.approx(196e-6, abs=2e-6)
    assert float(ds["busy_longest_share"]) == pytest.approx(196 / 29_196, rel=0.02)


def test_one_long_busy_period_is_most_of_what_a_run_holds(tmp_path):
    # a message every ms, each 50 us in the SPS; from the 20th on for 10 ms each one is: to the 30th it is never empty
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
    # the 30th leaves 10.05 ms after it comes, so the 31st to the 40th find it there
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
    assert settings["translated"] is False  # only the measurement's own word says that it is one
    assert settings["in_force"] == {"a": "7", "each worker": "100000"}
    assert [step["unavailable"] for step in settings["steps"]] == [None, "EEVDF has none"]


def test_every_variable_is_described(tmp_path):
    ds, *_ = reduce(tmp_path, synthetic.Run())
    for name, variable in ds.data_vars.items():
        assert {"long_name", "definition"} <= set(variable.attrs), name
        assert variable.dtype.kind == "U" or "units" in variable.attrs, name


def test_the_file_of_a_run_is_small_and_holds_all_of_it(tmp_path):
    ds, path, *_ = reduce(tmp_path, synthetic.Run(), calls=20_000)
    # hosts as they are described of a real machine, all else as it is
    recorded = recorded_hosts()
    real = ds.assign_attrs(hosts=recorded)
    summary.write(real, path)
    assert len(recorded) > 9000
    assert path.stat().st_size <= 8000
    again = summary.open_run(path)
    xr.testing.assert_identical(again, real[list(again.variables)])
    assert set(again.variables) == set(ds.variables)


def recorded_hosts():
    record = read_record(FITTED)
    return json.dumps(publishable_hosts(asdict(record.hosts)), sort_keys=True)


@pytest.mark.parametrize("form", ["packed", "a variable for each"])
def test_a_run_s_file_of_an_earlier_program_is_read_as_well(tmp_path, form):
    run = synthetic.Run()
    ds, path, *_ = reduce(tmp_path, run)
    earlier = ds.drop_dims("bin").drop_vars("quantity").assign_attrs(format_version=8)
    if form == "packed":
        earlier = summary._packed(ds).drop_vars("histogram")
        earlier.attrs["format_version"] = 8
    stored = tmp_path / "summary.nc.zst"
    earlier.to_netcdf(tmp_path / "earlier.nc", engine="netcdf4")
    stored.write_bytes(zstandard.compress((tmp_path / "earlier.nc").read_bytes()))
    again = summary.open_run(stored)
    assert int(again["histogram"].sum()) == 0
    xr.testing.assert_identical(again.drop_dims("bin"), ds.drop_dims("bin"))
    before, after = (summary.combine([file], [run]) for file in (stored, path))
    xr.testing.assert_identical(
        before.drop_vars(["histogram", "histogram_runs"]),
        after.drop_vars(["histogram", "histogram_runs"]),
    )
    # what is not known of every run is not said of any
    assert np.isnan(summary.pooled_quantile(before, "k_rcv", 0.5)).all()
    assert np.isfinite(summary.pooled_quantile(after, "k_rcv", 0.5)).all()


def test_a_damaged_summary_is_named_and_what_to_do(tmp_path):
    run = synthetic.Run()
    _, path, *_ = reduce(tmp_path, run)
    content = path.read_bytes()
    inside = zstandard.decompress(content)
    assert summary.is_current(path)
    for damaged in (content[:-20], content[:10], b"", inside, zstandard.compress(inside[:300])):
        path.write_bytes(damaged)
        with pytest.raises(StableError, match=r"summary\.nc\.zst: .*delete it and run snakemake"):
            summary.combine([path], [run])
        assert not summary.is_current(path)


def test_quantiles_of_a_cell_and_of_a_mode_are_those_of_their_messages(tmp_path):
    planned = [
        synthetic.Run(mode=mode, cps=cps, rep=rep)
        for mode in ("default", "batch")
        for cps in (500, 1000)
        for rep in (1, 2)
    ]
    made = [
        reduce(
            tmp_path, run, calls=200 + 100 * run.rep, wait=run.cps / 500, valid=run != planned[3]
        )
        for run in planned
    ]
    ds = summary.combine([path for _, path, *_ in made], planned)
    assert ds["histogram_runs"].squeeze().to_numpy().tolist() == [[2, 1], [2, 2]]
    counted = [
        (run, open_messages(messages))
        for run, (_, _, messages, _) in zip(planned, made, strict=True)
        if run != planned[3]
    ]
    for quantity in summary.COUNTED:
        for share in (0.5, 0.99, 0.999):
            by_cell = summary.pooled_quantile(ds, quantity, share)
            by_mode = summary.pooled_quantile(ds, quantity, share, ["cps"])
            for mode in ("default", "batch"):
                of_mode = [
                    (run, of_run(found, quantity)) for run, found in counted if run.mode == mode
                ]
                for cps in (500, 1000):
                    of_cell = np.concatenate([times for run, times in of_mode if run.cps == cps])
                    exact = np.quantile(of_cell, share, method="inverted_cdf") / 1000
                    found = float(by_cell.sel(mode=mode, cps=cps).item())
                    assert found == pytest.approx(exact, rel=0.01)
                together = np.concatenate([times for _, times in of_mode])
                exact = np.quantile(together, share, method="inverted_cdf") / 1000
                assert float(by_mode.sel(mode=mode).item()) == pytest.approx(exact, rel=0.01)


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
    ds = summary.combine(paths, planned)
    assert tuple(ds["k_rcv_mean"].dims) == (*summary.RUN_DIMS, "message_type")
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
    summary.write(ds, tmp_path / "summary.nc")
    again = summary.open_summary(tmp_path / "summary.nc")
    assert again.equals(ds)
    assert again.attrs["fidelity"] == synthetic.FIDELITY


def joined_again(tmp_path, paths, planned):
    """What the workflow's join does."""
    path = tmp_path / "results" / "study" / "synthetic" / "summary.nc"
    ds, settled = summary.join_again(path, paths, planned, tmp_path / "results" / "raw")
    summary.write_again(ds, settled, path)
    return ds


@pytest.mark.parametrize("added", [0, 3, 5])
def test_a_run_that_comes_to_a_join_makes_the_same_as_all_at_once(tmp_path, monkeypatch, added):
    planned = [
        synthetic.Run(mode=mode, cps=cps, rep=rep)
        for mode in ("default", "batch")
        for cps in (500, 1000)
        for rep in (1, 2)
    ]
    paths = {}
    for number, run in enumerate(planned[:-1]):
        reduce(tmp_path / "results", run, calls=20 + number, valid=number != 1)
        paths[run] = tmp_path / "results" / "runs" / run.path / "summary.nc.zst"
    before = [path for run, path in paths.items() if run != planned[added]]
    joined_again(tmp_path, before, planned)
    read = []
    reading = summary._read_summary
    monkeypatch.setattr(summary, "_read_summary", lambda path: read.append(path) or reading(path))
    after = joined_again(tmp_path, list(paths.values()), planned)
    assert read == [paths[planned[added]]]
    assert after.identical(summary.combine(list(paths.values()), planned))


def test_a_join_reads_all_runs_again_where_one_is_not_as_it_was(tmp_path):
    planned = [synthetic.Run(rep=rep) for rep in (1, 2)]
    for run in planned:
        reduce(tmp_path / "results", run, calls=20)
    paths = [tmp_path / "results" / "runs" / run.path / "summary.nc.zst" for run in planned]
    before = joined_again(tmp_path, paths, planned)
    ds, *_ = reduce(tmp_path / "other", planned[0], calls=40)
    summary.write(ds, paths[0])
    after = joined_again(tmp_path, paths, planned)
    assert after.identical(summary.combine(paths, planned))
    assert not after.equals(before)
    fewer = joined_again(tmp_path, paths[1:], planned[1:])
    assert fewer.identical(summary.combine(paths[1:], planned[1:]))


def test_combined_of_a_grid_with_holes_and_of_nothing(tmp_path):
    planned = [synthetic.Run(threads=2, cps=500), synthetic.Run(threads=8, cps=1000)]
    ds = summary.combine([], planned)
    found = sorted(ds["status"].to_numpy().ravel().tolist())
    assert found == ["missing", "missing", "not planned", "not planned"]
    assert ds.attrs["fidelity"].startswith("unknown")


def test_combine_refuses_what_does_not_belong(tmp_path):
    run, other = synthetic.Run(cps=500), synthetic.Run(cps=1000)
    _, path, messages, _ = reduce(tmp_path, run, calls=5)
    with pytest.raises(StableError, match="not planned"):
        summary.combine([path], [other])
    with pytest.raises(StableError, match="twice"):
        summary.combine([path, path], [run])
    with pytest.raises(StableError, match="expected runs planned on one testbed, found none"):
        summary.combine([], [])
    version = SUMMARY_VERSION
    with pytest.raises(StableError, match=f"expected 'sipsched run summary' version {version}"):
        foreign = tmp_path / "summary.nc.zst"
        foreign.write_bytes(zstandard.compress(messages.read_bytes()))
        summary.combine([foreign], [run])
    foreign.unlink()
    with pytest.raises(StableError, match="no such summary"):
        summary.combine([tmp_path / "summary.nc.zst"], [run])
    with pytest.raises(StableError, match="testbed: expected elsewhere, found synthetic"):
        summary.combine([path], [synthetic.Run(testbed="elsewhere", cps=500)])


def test_summary_refuses_another_runs_messages_and_cut_counters(tmp_path):
    _, _, messages, record = reduce(tmp_path, synthetic.Run(cps=500), calls=5)
    *_, other = reduce(tmp_path, synthetic.Run(cps=1000), calls=5)
    with pytest.raises(StableError, match=r"cps: expected 1000 .* found 500"):
        summary.summarise_run(messages, other)
    path = record / "counters.json"
    document = json.loads(path.read_text())
    document["sps"]["after"]["/proc/net/snmp"] = ""
    path.write_text(json.dumps(document))
    with pytest.raises(StableError, match=r"sps after /proc/net/snmp: expected counters"):
        summary.summarise_run(messages, record)
    path.write_text(path.read_text()[:100])
    with pytest.raises(StableError, match="not JSON"):
        summary.summarise_run(messages, record)


def named(record):
    (record / "run.json").unlink(missing_ok=True)
    return {name: asdict(report) for name, report in manifest.reports(record).items()}


def test_counters_are_read_from_the_file_of_either_time(tmp_path):
    before, _, messages, record = reduce(tmp_path, synthetic.Run(), calls=20)
    earlier = record / "counters.json"
    now = record / "counters.json.zst"
    now.write_bytes(zstandard.compress(earlier.read_bytes()))
    content = json.loads((record / "run.json").read_text())
    earlier.unlink()
    (record / "run.json").write_text(json.dumps(content | {"files": named(record)}))
    xr.testing.assert_identical(summary.summarise_run(messages, record), before)
    now.write_bytes(zstandard.compress(b"{"))
    (record / "run.json").write_text(json.dumps(content | {"files": named(record)}))
    with pytest.raises(StableError, match=r"counters\.json\.zst: not JSON"):
        summary.summarise_run(messages, record)
