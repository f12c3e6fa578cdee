import numpy as np
import pytest
import synthetic

from sipsched.errors import StableError
from sipsched.records import trace

RECORDS = synthetic.six_per_call(np.random.default_rng(3), 20, 1000)


def write(tmp_path, data):
    path = tmp_path / "trace.bin.zst"
    path.write_bytes(data)
    return path


def test_layout_is_that_of_trace_h():
    # sizes in bytes of the packed structures in hardware/common/trace.h
    assert trace.HEADER.itemsize == 24
    assert trace.RECORD.itemsize == 88
    assert trace.RECORD.fields["flags"][1] == 80
    assert trace.RECORD.fields["drop_reason"][1] == 87


def test_reads_back_what_was_written(tmp_path):
    path = write(tmp_path, synthetic.compress(synthetic.encode(RECORDS, mode=1)))
    result = trace.read_trace(path, expected=len(RECORDS))
    assert result.mode is trace.ProbeMode.EXACT
    assert np.array_equal(result.records, RECORDS)


def test_reads_several_frames(tmp_path):
    data = synthetic.encode(RECORDS)
    two = synthetic.compress(data[:1000]) + synthetic.compress(data[1000:])
    assert np.array_equal(trace.read_trace(write(tmp_path, two)).records, RECORDS)


def test_header_alone_is_an_empty_trace(tmp_path):
    path = write(tmp_path, synthetic.compress(synthetic.encode(RECORDS[:0])))
    assert len(trace.read_trace(path, expected=0).records) == 0


def test_preload_tail_is_cut(tmp_path):
    data = synthetic.encode(synthetic.without_bpf(RECORDS, tail=50), mode=3)
    result = trace.read_trace(write(tmp_path, synthetic.compress(data)), expected=len(RECORDS))
    assert len(result.records) == len(RECORDS)


COMPRESSED = synthetic.compress(synthetic.encode(RECORDS))
SPOILT = {
    "empty file": (b"", "not a zstd file: expected 28 b5 2f fd, it is empty"),
    "not zstd": (b"\x1f\x8b\x08\x00", "not a zstd file: .* it starts with 1f 8b 08 00"),
    "cut frame": (COMPRESSED[:-200], "truncated: the zstd frame has no end"),
    "cut second frame": (COMPRESSED + COMPRESSED[:40], "truncated: the zstd frame has no end"),
    "damaged frame": (COMPRESSED[:8] + b"\xff" * 200 + COMPRESSED[208:], "damaged zstd|truncated"),
    "no header": (synthetic.compress(b"SIPTR"), "expected a header of 24 bytes, found 5"),
    "magic": (
        synthetic.compress(synthetic.encode(RECORDS, magic=b"TRACESIP")),
        "expected magic b'SIPTRACE', found b'TRACESIP'",
    ),
    "version": (
        synthetic.compress(synthetic.encode(RECORDS, version=9)),
        "unknown trace version: expected 1, found 9",
    ),
    "record size": (
        synthetic.compress(synthetic.encode(RECORDS, record_size=80)),
        "record size: expected 88 bytes, found 80",
    ),
    "mode": (synthetic.compress(synthetic.encode(RECORDS, mode=7)), "probe mode: .* found 7"),
    "partial record": (
        synthetic.compress(synthetic.encode(RECORDS)[:-30]),
        "truncated: expected whole records of 88 bytes, found 119 and 58 bytes more",
    ),
    "too few": (
        synthetic.compress(synthetic.encode(RECORDS[:100])),
        "truncated: expected 120 records .* found 100",
    ),
    "too many": (
        synthetic.compress(synthetic.encode(np.concatenate([RECORDS, RECORDS]))),
        "not of this run: expected 120 records .* found 240",
    ),
}


@pytest.mark.parametrize("case", SPOILT)
def test_bad_input_is_one_line_naming_the_file(tmp_path, case):
    data, message = SPOILT[case]
    path = write(tmp_path, data)
    with pytest.raises(StableError, match=message) as caught:
        trace.read_trace(path, expected=len(RECORDS))
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_missing_file(tmp_path):
    with pytest.raises(StableError, match="no such trace"):
        trace.read_trace(tmp_path / "trace.bin.zst")
