"""Test the record that `fab watch` writes about a running proxy."""

import json
import re
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
import zstandard
from watched import document, second

from sipsched.errors import StableError
from sipsched.paths import PROJECT_ROOT
from sipsched.records import histogram, watch
from sipsched.records.messages import open_messages, write_messages
from sipsched.records.trace import RECORD, Event, Flag, ProbeMode


def test_names_are_the_lists_of_the_probe() -> None:
    header = (PROJECT_ROOT / "hardware/common/trace.h").read_text().replace("\\\n", " ")
    for macro, names in (("TRACE_METHODS", watch.METHODS), ("TRACE_STATUSES", watch.STATUSES)):
        (line,) = re.findall(rf"#define {macro}\s+(.*)", header)
        assert tuple(re.findall(r'"([^"]*)"', line)) == names
    (not_sip,) = re.findall(r"#define TRACE_NOT_SIP\s+(\d+)", header)
    assert int(not_sip) == watch.NOT_SIP_CODE
    (bits,) = re.findall(r"#define TRACE_KIND_BITS\s+(\d+)", header)
    assert int(bits) == watch.KIND_BITS
    assert f"TRACE_FLAG_ANSWERED = 1 << {watch.ANSWERED.bit_length() - 1}," in header
    codes = list(watch.NAMES.values())
    assert len(set(codes)) == len(codes)


def records() -> np.ndarray:
    """Return an INVITE, a REGISTER that the proxy answered, a message without an arrival, and a drop."""
    result = np.zeros(4, RECORD)
    result["t_arr"] = (1000, 3000, 0, 2000)
    result["t_sip_in"] = (1500, 3100, 5000, 0)
    result["t_sip_out"] = (2500, 3400, 0, 0)
    result["kind"] = (1, watch.METHODS.index("REGISTER") + 1 << 3, 30 << 3, 1)
    result["flags"] = (0, watch.ANSWERED, Flag.UNMATCHED | Flag.NO_SEND, 0)
    result["event"] = (0, 0, 0, Event.DROP)
    result["call_id_hash"] = (11, 12, 0, 13)
    result["length"] = (500, 300, 7, 500)
    result["rmem"] = (1280, 2560, 0, 9000)
    result["tid"] = (5, 6, 5, 0)
    result["drop_reason"][3] = 12
    return result


def test_methods_and_statuses_are_counted() -> None:
    assert watch.count_names(records()) == {"INVITE": 2, "REGISTER": 1, "not SIP": 1}


def test_times_are_missing_where_a_timestamp_is() -> None:
    waiting, service = watch.times_of(records()[:3])
    np.testing.assert_array_equal(waiting, [500, 100, np.nan])
    np.testing.assert_array_equal(service, [1000, 300, np.nan])


def test_histograms_of_seconds_add_up() -> None:
    times = np.array([1e3, 2e3, 3e3, 1e6])
    total = watch.add_bins([watch.bins_of(times), watch.bins_of(times), []])
    np.testing.assert_array_equal(total, 2 * histogram.count(times))


def written(folder: Path, found: np.ndarray) -> None:
    trace = zstandard.compress(watch.trace_header(ProbeMode.EXACT))
    (folder / watch.TRACE_FILE).write_bytes(trace + zstandard.compress(found.tobytes()))


def test_messages_have_the_columns_of_a_run_and_say_what_was_joined(tmp_path: Path) -> None:
    written(tmp_path, records())
    write_messages(watch.messages_of_watch(tmp_path, document()), tmp_path / "messages.nc")
    ds = open_messages(tmp_path / "messages.nc")
    assert ds["t_arr"].to_numpy().tolist() == [1000, 3000, 5000]
    assert ds["t_sip"].to_numpy()[:2].tolist() == [1000, 300]
    assert ds["message_type"].to_numpy().tolist() == [1, 0, 0]
    names = dict(
        zip(ds["name"].attrs["flag_values"], ds["name"].attrs["flag_meanings"].split(), strict=True)
    )
    assert [names[code] for code in ds["name"].to_numpy()] == ["INVITE", "REGISTER", "not_SIP"]
    assert ds["length"].to_numpy().tolist() == [500, 300, 7]
    assert ds["queued_bytes"].to_numpy().tolist() == [1280, 2560, 0]
    assert ds["drop_t_arr"].to_numpy().tolist() == [2000]
    meanings = ds["flags"].attrs["flag_meanings"].split()
    masks = dict(zip(meanings, ds["flags"].attrs["flag_masks"], strict=True))
    answered = ds["flags"].to_numpy() & masks["answered_by_proxy"] != 0
    assert answered.tolist() == [False, True, False]
    unmatched = ds["flags"].to_numpy() & masks["arrival_not_found"] != 0
    assert unmatched.tolist() == [False, False, True]
    assert ds.attrs["transport"] == "udp"


def test_messages_over_tcp_are_marked(tmp_path: Path) -> None:
    found = records()
    found["flags"][1] |= watch.OVER_TCP
    written(tmp_path, found)
    ds = watch.messages_of_watch(tmp_path, document(transports="udp+tcp"))
    assert (ds["flags"].to_numpy() & watch.OVER_TCP != 0).tolist() == [False, True, False]
    assert "over_tcp" in ds["flags"].attrs["flag_meanings"].split()
    assert ds.attrs["transport"] == "udp+tcp"
    written(tmp_path, records())
    ds = watch.messages_of_watch(tmp_path, document(transports="udp+tcp"))
    assert ds.attrs["transport"] == "udp"


def test_repeated_requests_of_all_methods_are_retransmissions(tmp_path: Path) -> None:
    kinds = {name: watch.METHODS.index(name) + 1 << 3 for name in ("REGISTER", "OPTIONS")}
    kinds |= {"183": len(watch.METHODS) + watch.STATUSES.index("183") + 1 << 3, "INVITE": 1}
    rows = (
        # method or status, hash of the Call-ID, CSeq, expected message type
        ("REGISTER", 11, 1, 0),
        ("INVITE", 11, 1, 1),
        ("REGISTER", 11, 1, 7),
        ("REGISTER", 11, 2, 0),
        ("OPTIONS", 11, 1, 0),
        ("REGISTER", 12, 1, 0),
        ("INVITE", 11, 1, 7),
        ("183", 11, 1, 0),
        ("183", 11, 1, 0),
        ("REGISTER", 0, 1, 0),
        ("REGISTER", 0, 1, 0),
        ("REGISTER", 11, 1, 7),
    )
    found = np.zeros(len(rows), RECORD)
    found["t_arr"] = 1000 * np.arange(1, len(rows) + 1)
    found["t_sip_in"] = found["t_arr"] + 100
    found["kind"] = [kinds[name] for name, *_ in rows]
    found["call_id_hash"] = [call for _, call, _, _ in rows]
    found["cseq"] = [cseq for _, _, cseq, _ in rows]
    # in a trace, the messages need not have the order of their arrival
    written(tmp_path, found[::-1])
    ds = watch.messages_of_watch(tmp_path, document())
    assert ds["message_type"].to_numpy().tolist() == [expected for *_, expected in rows]


def test_a_second_is_read_as_it_was_written_and_a_cut_line_is_ignored(tmp_path: Path) -> None:
    first = second()
    line = json.dumps(asdict(first))
    (tmp_path / watch.SECONDS_FILE).write_text(f"{line}\n{line[:50]}")
    (read,) = watch.read_seconds(tmp_path)
    assert json.loads(json.dumps(asdict(read))) == json.loads(line)


def test_document_is_read_as_it_was_written(tmp_path: Path) -> None:
    watch.write_watch(tmp_path / watch.WATCH_FILE, document())
    assert asdict(watch.read_watch(tmp_path)).keys() == asdict(document()).keys()
    assert watch.read_watch(tmp_path).udp_ports == [5060]
    (tmp_path / watch.WATCH_FILE).write_text('{"watch_version": 99}')
    with pytest.raises(StableError, match="watch_version 1"):
        watch.read_watch(tmp_path)
