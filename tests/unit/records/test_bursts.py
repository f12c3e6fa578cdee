"""Tests of reading the bursts of other programs and of softirqs on the proxy's CPUs."""

import json

import pytest
import synthetic

from sipsched.errors import StableError
from sipsched.records.bursts import BURSTS_FILE, Program, read_bursts
from sipsched.records.verification import verify

SH, RX = Program("sh", "fair"), Program("NET_RX", "softirq")
PLANTED = [
    (1, 1_000, 51_000, "fair", "sh", 7),
    # the softirq interrupts sh; the softirq's line is before the line of sh, because the softirq ends first
    (1, 130_000, 155_000, "softirq", "NET_RX", 0),
    (1, 100_000, 200_000, "fair", "sh", 7),
    (1, 200_000, 220_000, "kernel", "kworker/1:1", 8),
    (0, 0, 1_000_000, "realtime", 'a"b', 9),
]


def written(folder, data):
    (folder / BURSTS_FILE).write_bytes(data)
    return folder


def read(folder, bursts, lost=0):
    data = synthetic.compress(synthetic.encode_bursts(bursts, lost))
    return read_bursts(written(folder, data))


def test_the_time_of_each_program_within_a_stretch(tmp_path):
    bursts = read(tmp_path, PLANTED)
    assert bursts.ran_ns(1, 0, 1_000_000) == {
        SH: 50_000 + 75_000,
        RX: 25_000,
        Program("kworker/1:1", "kernel"): 20_000,
    }
    assert list(bursts.ran_ns(1, 140_000, 205_000)) == [SH, RX, Program("kworker/1:1", "kernel")]
    assert bursts.ran_ns(1, 140_000, 205_000)[SH] == 45_000
    assert bursts.ran_ns(1, 51_000, 100_000) == {}
    assert bursts.ran_ns(1, 60_000, 60_000) == {}
    assert bursts.ran_ns(0, 10, 20) == {Program('a"b', "realtime"): 10}
    assert bursts.ran_ns(5, 0, 1_000_000) == {}
    assert bursts.lost == 0
    # the intervals on a CPU do not overlap, because the reader splits interrupted bursts
    here = bursts.cpu == 1
    assert (bursts.start_ns[here][1:] >= bursts.end_ns[here][:-1]).all()


def test_a_full_ring_buffer_is_reported(tmp_path):
    assert read(tmp_path, PLANTED, lost=12).lost == 12


def test_a_run_without_any_burst_is_not_a_run_without_a_file(tmp_path):
    assert read_bursts(tmp_path) is None
    bursts = read(tmp_path, [])
    assert bursts is not None
    assert bursts.ran_ns(1, 0, 10**12) == {}


WHOLE = synthetic.compress(synthetic.encode_bursts(PLANTED * 50))
TEXT = synthetic.encode_bursts(PLANTED)


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (WHOLE[:-20], "truncated: the zstd frame has no end"),
        # sipaccount was killed while it wrote the file of bursts
        (synthetic.compress(TEXT[:-30]), "repeat the run"),
        (synthetic.compress(TEXT.replace(b'"version": 1', b'"version": 2')), "expected version 1"),
        (synthetic.compress(TEXT.replace(b'"fair"', b'"unfair"')), "unfair"),
        (synthetic.compress(TEXT.replace(b"51000", b"999")), "ends before it starts"),
        (synthetic.compress(TEXT.replace(b'"lost"', b'"list"')), "lost"),
        (b"", "not a zstd file"),
    ],
)
def test_a_damaged_file_is_refused_with_its_name(tmp_path, data, error):
    with pytest.raises(StableError, match=error) as refused:
        read_bursts(written(tmp_path, data))
    assert str(refused.value).startswith(str(tmp_path / BURSTS_FILE))


def test_verification_finds_a_truncated_file(tmp_path):
    record = synthetic.write_record(tmp_path / "raw", synthetic.Run(), calls=5, bursts=PLANTED)
    assert BURSTS_FILE in json.loads((record / "run.json").read_text())["files"]
    assert verify(tmp_path / "raw").intact
    path = record / BURSTS_FILE
    path.write_bytes(path.read_bytes()[:-5])
    (damaged,) = verify(tmp_path / "raw").runs
    assert damaged.damage[0].startswith(f"{BURSTS_FILE}: expected ")
