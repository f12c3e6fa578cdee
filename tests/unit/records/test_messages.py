import json

import numpy as np
import pytest
import synthetic
import xarray as xr

from sipsched.errors import ComputedFileError, StableError
from sipsched.files import seal
from sipsched.paths import PROJECT_ROOT
from sipsched.records import messages, trace
from sipsched.versions import MESSAGES_VERSION

RUN = synthetic.Run()
MEASURED = sorted(path.parent for path in (PROJECT_ROOT / "recorded/fit").rglob("trace.bin.zst"))


def parse(tmp_path, records=None, **options):
    return messages.messages_from_record(
        synthetic.write_record(tmp_path, RUN, records=records, **options)
    )


def draw(calls=100, seed=5):
    return synthetic.six_per_call(np.random.default_rng(seed), calls, 1000)


def by_arrival(records):
    return records[np.argsort(records["t_arr"], kind="stable")]


def flag(ds, name):
    return (ds["flags"].to_numpy() & messages.FLAGS[name]) != 0


def test_intervals_are_the_defined_differences(tmp_path):
    records = draw()
    ds = parse(tmp_path, records)
    truth = by_arrival(records)
    assert ds["t_arr"].dtype == np.int64
    assert np.array_equal(ds["t_arr"], truth["t_arr"])
    for name, expected in {
        "k_stack": truth["t_stack"] - truth["t_arr"],
        "k_sockq": truth["t_sockq"] - truth["t_stack"],
        "k_copy": truth["t_sip_in"] - truth["t_sockq"],
        "t_sip": truth["t_sip_out"] - truth["t_sip_in"] - truth["in_cost_ns"],
        "t_sip_off": truth["off_cpu_ns"],
        "k_snd": truth["t_dep"] - truth["t_sip_out"] - truth["out_cost_ns"],
    }.items():
        assert ds[name].dtype == np.uint32, name
        assert np.array_equal(ds[name], expected), name
    assert np.array_equal(messages.k_rcv(ds), truth["t_sip_in"] - truth["t_arr"])
    assert "k_rcv" not in ds
    tids = ds["worker"].attrs["thread_ids"]
    assert np.array_equal(tids[ds["worker"].to_numpy()], truth["tid"])


def test_a_run_over_tcp_has_the_same_columns_and_flags_shared_reads(tmp_path):
    records = draw()
    records["flags"][:] = 0
    records["flags"][3:5] = trace.Flag.SHARED_READ
    records["flags"][7] = trace.Flag.SPLIT
    records["flags"][9] = trace.Flag.LEFT
    ds = parse(tmp_path, records, mode=trace.ProbeMode.STREAM)
    assert set(ds) == set(parse(tmp_path / "udp", draw()))
    truth = by_arrival(records)
    for name in ("k_stack", "k_sockq", "k_copy", "t_sip", "k_snd"):
        assert "missing_reason" not in ds[name].attrs
        assert not (ds[name] == messages.MISSING).any()
    shared = flag(ds, "read_with_others")
    assert np.array_equal(shared, truth["flags"] & trace.Flag.SHARED_READ != 0)
    assert shared.sum() == 2
    assert flag(ds, "read_in_pieces").sum() == 1
    assert not flag(ds, "sockq_is_lower_bound").any()
    assert np.array_equal(ds["t_sip_off"] == messages.MISSING, flag(ds, "sent_by_another"))
    assert flag(ds, "sent_by_another").sum() == 1


def test_every_message_of_a_trace_becomes_a_row(tmp_path):
    ds = parse(tmp_path, draw(calls=1000))
    assert ds.sizes["message"] == 6000
    counts = np.bincount(ds["message_type"].to_numpy(), minlength=8)
    assert counts.tolist() == [0, 1000, 1000, 1000, 1000, 1000, 1000, 0]


def test_order_in_the_trace_does_not_matter(tmp_path):
    records = draw()
    shuffled = np.random.default_rng(1).permutation(records)
    a = parse(tmp_path / "a", records)
    b = parse(tmp_path / "b", shuffled)
    assert a.drop_attrs().equals(b.drop_attrs())


def test_a_later_datagram_of_same_call_cseq_and_kind_is_a_retransmission(tmp_path):
    first = draw()
    ds = parse(tmp_path, synthetic.resend(first, 40, np.random.default_rng(2)))
    again = ds["message_type"].to_numpy() == messages.MESSAGE_TYPES["retransmission"]
    assert again.sum() == 40
    assert np.array_equal(ds["t_arr"].to_numpy()[~again], np.sort(first["t_arr"]))


def test_a_resend_after_a_drop_is_a_retransmission(tmp_path):
    rng = np.random.default_rng(2)
    records = synthetic.refuse(draw(), 30, rng)
    dropped = records[records["event"] == trace.Event.DROP]
    records = np.concatenate([records, synthetic.resend(dropped, 30, rng)[30:]])
    ds = parse(tmp_path, records)
    assert ds.sizes == {"message": 600, "drop": 30}
    assert (ds["message_type"] == 7).sum() == 30
    assert (ds["drop_type"].to_numpy() != 7).all()
    assert (ds["drop_reason"] == 12).all()
    assert np.array_equal(ds["drop_t_arr"], np.sort(dropped["t_arr"]))


def test_duplicated_records_are_retransmissions_and_other_kinds_are_not(tmp_path):
    records = draw(calls=10)
    assert (parse(tmp_path / "a", np.repeat(records, 2))["message_type"] == 7).sum() == 60
    records["kind"] = trace.MessageKind.OTHER
    assert (parse(tmp_path / "b", np.repeat(records, 2))["message_type"] == 0).all()


def test_missing_timestamps_become_missing_values(tmp_path):
    records = by_arrival(draw(calls=10))
    records["t_sip_out"][3] = records["t_dep"][3] = 0
    records["flags"][3] |= trace.Flag.NO_SEND
    records["t_dep"][4] = 0
    records["flags"][4] |= trace.Flag.NO_DEP
    for stamp in ("t_arr", "t_stack", "t_sockq"):
        records[stamp][5] = 0
    records["flags"][5] |= trace.Flag.UNMATCHED
    ds = parse(tmp_path, records)
    for name in ("t_sip", "t_sip_off", "k_snd"):
        assert ds[name].to_numpy()[flag(ds, "nothing_sent")].tolist() == [messages.MISSING]
    at = flag(ds, "departure_not_seen")
    assert ds["k_snd"].to_numpy()[at].tolist() == [messages.MISSING]
    assert ds["t_sip"].to_numpy()[at] != messages.MISSING
    at = flag(ds, "arrival_not_found")
    assert ds["t_arr"].to_numpy()[at].tolist() == [records["t_sip_in"][5]]
    assert np.isnan(messages.k_rcv(ds)[at]).all()
    assert ds["t_sip"].to_numpy()[at] != messages.MISSING
    assert (np.diff(ds["t_arr"]) >= 0).all()
    assert np.isnan(messages.k_rcv(ds)).sum() == 1


def test_order_violations_are_clipped_and_the_sum_stays_exact(tmp_path):
    records = by_arrival(draw(calls=10))
    records["t_stack"][0] = records["t_arr"][0] - np.uint64(50)
    records["t_sockq"][1] = records["t_stack"][1] - np.uint64(50)
    records["t_sip_in"][2] = records["t_sockq"][2] - np.uint64(50)
    records["t_sip_out"][3] = records["t_sip_in"][3]
    records["t_dep"][4] = records["t_sip_out"][4]
    ds = parse(tmp_path, records)
    assert np.flatnonzero(flag(ds, "clipped")).tolist() == [0, 1, 2, 3, 4]
    assert int(ds["k_stack"][0]) == int(ds["k_sockq"][1]) == int(ds["k_copy"][2]) == 0
    assert int(ds["t_sip"][3]) == int(ds["k_snd"][4]) == 0
    assert np.array_equal(messages.k_rcv(ds), records["t_sip_in"] - records["t_arr"])


def test_intervals_from_4_29_s_up_saturate(tmp_path):
    records = by_arrival(draw(calls=10))
    later = np.uint64(5_000_000_000)
    for stamp in ("t_sockq", "t_sip_in", "t_sip_out", "t_dep"):
        records[stamp][7] += later
    records["off_cpu_ns"][8] = 0xFFFFFFFF
    ds = parse(tmp_path, records)
    assert int(ds["k_sockq"][7]) == messages.SATURATED
    assert int(ds["t_sip_off"][8]) == messages.SATURATED
    assert np.flatnonzero(flag(ds, "saturated")).tolist() == [7, 8]


def test_preload_has_k_rcv_and_gives_reasons_for_missing_columns(tmp_path):
    records = draw()
    ds = parse(tmp_path, records, mode=3)
    truth = by_arrival(records)
    assert np.array_equal(ds["k_rcv"], truth["t_sip_in"] - truth["t_arr"])
    assert np.array_equal(messages.k_rcv(ds), truth["t_sip_in"] - truth["t_arr"])
    for name in ("k_stack", "k_sockq", "k_copy", "t_sip_off", "k_snd"):
        assert (ds[name] == messages.MISSING).all()
        assert "preload" in ds[name].attrs["missing_reason"]


@pytest.mark.parametrize("options", [{}, {"drops": 7}, {"mode": 3}, {"calls": 0}, {"calls": 2000}])
def test_file_round_trip(tmp_path, options):
    ds = parse(tmp_path / "raw", **options)
    path = tmp_path / "new" / "messages.nc"
    messages.write_messages(ds, path)
    assert messages.open_messages(path).equals(ds)
    assert [p.name for p in path.parent.iterdir()] == ["messages.nc"]
    decoded = xr.open_dataset(path)
    assert decoded.attrs["fidelity"] == synthetic.FIDELITY
    assert decoded.attrs["format_version"] == MESSAGES_VERSION
    for name, variable in decoded.variables.items():
        assert {"long_name", "units", "definition"} <= set(variable.attrs), name
    if options == {"mode": 3}:
        assert bool(decoded["k_stack"].isnull().all())


@pytest.mark.parametrize("pause_s", [4, 5, 5000])
def test_arrivals_are_stored_as_gaps_of_any_length(tmp_path, pause_s):
    ds = parse(tmp_path / "raw", drops=400, calls=2000)
    for name in ("t_arr", "drop_t_arr"):
        later = np.arange(ds[name].size) >= ds[name].size // 2
        ds[name] = ds[name] + later * pause_s * 10**9
    path = tmp_path / "messages.nc"
    messages.write_messages(ds, path)
    assert messages.open_messages(path).equals(ds)
    plain = xr.load_dataset(path, engine="netcdf4", decode_times=False)
    assert "t_arr" not in plain
    assert plain["gap"].dtype == (np.uint32 if pause_s == 4 else np.uint64)
    for gap, arrived in (("gap", "t_arr"), ("drop_gap", "drop_t_arr")):
        instants = plain[gap].attrs["first"] + plain[gap].to_numpy().astype(np.int64).cumsum()
        assert np.array_equal(instants, ds[arrived])


@pytest.mark.parametrize("top", [2**24 - 1, 2**24, 2**30 - 1, messages.SATURATED - 1])
def test_any_values_survive_writing_and_reading(tmp_path, top):
    ds = parse(tmp_path / "raw", draw(calls=12_000))
    rng = np.random.default_rng(top)
    for name in messages.INTERVALS.keys() & set(ds.data_vars):
        values = rng.integers(0, top, ds.sizes["message"], dtype=np.uint32, endpoint=True)
        values[rng.random(len(values)) < 0.01] = messages.MISSING
        values[rng.random(len(values)) < 0.001] = messages.SATURATED
        ds[name] = ds[name].copy(data=values)
    messages.write_messages(ds, tmp_path / "messages.nc")
    assert messages.open_messages(tmp_path / "messages.nc").equals(ds)


@pytest.mark.parametrize("kept", [0, 100, 0.3, 0.9])
def test_a_damaged_file_is_named_and_can_be_made_again(tmp_path, kept):
    ds = parse(tmp_path / "raw", calls=2000)
    path = tmp_path / "messages.nc"
    messages.write_messages(ds, path)
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.truncate(int(kept * size) if kept < 1 else kept)
    with pytest.raises(
        ComputedFileError, match=r"messages\.nc: .*delete it and run snakemake"
    ) as error:
        messages.open_messages(path)
    assert error.value.path == path
    messages.write_messages(ds, path)
    assert messages.open_messages(path).equals(ds)


@pytest.mark.parametrize("record", MEASURED, ids=lambda path: path.parent.name)
def test_size_of_a_measured_run(record, tmp_path):
    ds = messages.messages_from_record(record)
    messages.write_messages(ds, tmp_path / "messages.nc")
    assert messages.open_messages(tmp_path / "messages.nc").equals(ds)
    # subtract the fixed size: HDF5 uses 20 kB for the columns' attributes and 30 kB for the index of their chunks
    size = ((tmp_path / "messages.nc").stat().st_size - 50_000) / ds.sizes["message"]
    print(f"{size:.2f} bytes a message beside 50 kB")
    assert size <= 14


def test_size_at_most_14_and_a_half_bytes_a_message(tmp_path):
    ds = parse(tmp_path / "raw", calls=100_000)
    path = tmp_path / "messages.nc"
    messages.write_messages(ds, path)
    size = path.stat().st_size / ds.sizes["message"]
    print(f"{size:.2f} bytes a message")
    assert ds.sizes["message"] == 600_000
    assert size <= 14.5


def test_probe_off_gives_an_empty_dataset_with_reasons(tmp_path):
    record = synthetic.write_record(tmp_path, RUN)
    (record / "trace.bin.zst").unlink()
    with pytest.raises(
        StableError,
        match=r"trace\.bin\.zst: expected \d+ bytes as run\.json says, found no such file",
    ):
        messages.messages_from_record(record)
    document = json.loads((record / "run.json").read_text())
    synthetic.rewrite(record, {"probe": document["probe"] | {"mode": "off"}})
    ds = messages.messages_from_record(record)
    assert ds.sizes["message"] == 0
    assert ds["t_sip"].attrs["missing_reason"] == "the probe was off"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not JSON"),
        ('{"schema_version": 2, "run": {', "not JSON"),
        ("[1]", "expected a JSON object"),
        ("\udcff", "not JSON: 'utf-8' codec"),
        ('{"schema_version": 1}', "schema_version: expected 2, found 1"),
        ('{"schema_version": 2, "run": {}}', "but its last key has another value"),
        (seal('{"schema_version": 2, "run": {}}'), "missing required field `testbed`"),
    ],
)
def test_bad_run_json(tmp_path, text, message):
    record = synthetic.write_record(tmp_path, RUN, calls=1)
    (record / "run.json").write_text(text, errors="surrogateescape")
    with pytest.raises(StableError, match=message):
        messages.messages_from_record(record)


def test_bad_messages_file(tmp_path):
    path = tmp_path / "messages.nc"
    with pytest.raises(StableError, match="no such file"):
        messages.open_messages(path)
    path.write_bytes(b"not netCDF")
    with pytest.raises(StableError, match="not a netCDF-4 file"):
        messages.open_messages(path)
    xr.Dataset(attrs={"format": "sipsched messages", "format_version": 99}).to_netcdf(path)
    with pytest.raises(
        StableError, match=f"version {MESSAGES_VERSION}, found 'sipsched messages' version 99"
    ):
        messages.open_messages(path)
