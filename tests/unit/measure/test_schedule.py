"""Tests of schedules of `sipload schedule`, compared with the algorithm of schedule.h in numpy."""

import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from helpers import build_native

from sipsched.measure.findings import arrival_numbers
from sipsched.measure.generator import Arrivals
from sipsched.records.load_report import CallCounts
from sipsched.validity.certificate import certify, ks_p_value

HEADER = np.dtype(
    [
        ("magic", "S8"),
        ("version", "<u4"),
        ("law", "<u4"),
        ("count", "<u8"),
        ("distinct", "<u8"),
        ("seed", "<u8"),
        ("rate_cps", "<f8"),
    ]
)
CALL = np.dtype([("offset_ns", "<u8"), ("random", "<u8"), ("instance", "<u4")])
STEP = 0x9E3779B97F4A7C15
RATE = 2000
MS = 1_000_000


@pytest.fixture(scope="module")
def sipload(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_native("generator", tmp_path_factory.mktemp("native"), "sipload") / "sipload"


def draw(
    sipload: Path, blocks: list[tuple[int, int]] | None = None, seed: int = 7, calls: int = 1000
) -> tuple[dict[str, int], npt.NDArray[Any]]:
    output, listed = sipload.parent / "x.schedule", sipload.parent / "x.blocks"
    what = ["--calls", str(calls)]
    if blocks is not None:
        listed.write_text("".join(f"{block} {length_ns}\n" for block, length_ns in blocks))
        what = ["--blocks", str(listed)]
    argv = [
        sipload,
        "schedule",
        "--rate",
        str(RATE),
        "--seed",
        str(seed),
        "--output",
        output,
        *what,
    ]
    said = json.loads(subprocess.run(argv, check=True, capture_output=True).stdout)
    data = output.read_bytes()
    header = np.frombuffer(data, HEADER, count=1)[0]
    drawn = np.frombuffer(data, CALL, offset=HEADER.itemsize)
    assert (header["magic"], header["version"], header["seed"]) == (b"SIPSCHED", 3, seed)
    assert said == {
        "calls": drawn.size,
        "distinct": header["distinct"],
        "first_ns": drawn["offset_ns"][0],
        "last_ns": drawn["offset_ns"][-1],
    }
    return said, drawn


def splitmix64(state: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    x = state
    x = (x ^ x >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ x >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    return x ^ x >> np.uint64(31)


def states(seed: int, count: int) -> npt.NDArray[np.uint64]:
    return np.uint64(seed) + np.arange(1, count + 1, dtype=np.uint64) * np.uint64(STEP)


def exponential_offsets(seed: int, count: int) -> npt.NDArray[np.int64]:
    """Return start times in ns by the algorithm of schedule.h: the sum of exponential gaps from splitmix64."""
    u = ((splitmix64(states(seed, count)) >> np.uint64(11)) + np.uint64(1)).astype("f8") * 2.0**-53
    m, e = np.frexp(u)
    small = m < 0.70710678118654752
    m, e = np.where(small, 2 * m, m), np.where(small, e - 1, e)
    s = (m - 1) / (m + 1)
    z, p = s * s, np.full(count, 1 / 25)
    for k in range(23, 0, -2):
        p = p * z + 1 / k
    t_s = np.cumsum(-(e * 0.69314718055994531 + 2 * s * p) / RATE)
    return np.floor(t_s * 1e9 + 0.5).astype("i8")


def seed_of_block(seed: int, block: int) -> int:
    first = int(splitmix64(states(seed, 1))[0])
    return int(splitmix64(states((first + block) % 2**64, 1))[0])


def test_a_schedule_follows_the_described_algorithm(sipload: Path) -> None:
    _, drawn = draw(sipload, seed=12345)
    assert np.array_equal(drawn["offset_ns"], exponential_offsets(12345, 1000))
    own = ~np.uint64(12345) + np.arange(1000, dtype=np.uint64) * np.uint64(STEP)
    assert np.array_equal(drawn["random"], own)


def test_every_window_of_a_block_has_the_same_calls(sipload: Path) -> None:
    blocks = [(0, 300 * MS)] * 4 + [(1, 271 * MS)] * 4 + [(5, 333 * MS), (5, 100 * MS)]
    said, drawn = draw(sipload, blocks)
    start_ns, at, distinct = 0, 0, {}
    for block, length_ns in blocks:
        expected = exponential_offsets(seed_of_block(7, block), 2000)
        expected = expected[expected < length_ns]
        result = drawn[at : at + expected.size]
        assert np.array_equal(result["offset_ns"] - start_ns, expected)
        own = ~np.uint64(seed_of_block(7, block)) + np.arange(
            expected.size, dtype="u8"
        ) * np.uint64(STEP)
        assert np.array_equal(result["random"], own)
        distinct[block] = max(expected.size, distinct.get(block, 0))
        start_ns, at = start_ns + length_ns, at + expected.size
    assert at == drawn.size == said["calls"]
    assert said["distinct"] == sum(distinct.values())


def lengths(seed: int, windows: int, blocks: int) -> list[tuple[int, int]]:
    jitter = np.random.default_rng(seed).uniform(0.8, 1.2, blocks)
    return [(b, int(500 * MS * jitter[b])) for b in range(blocks) for _ in range(windows)]


def test_the_law_holds_over_a_replayed_schedule(sipload: Path) -> None:
    """Test 60 s in blocks of four windows. Only a quarter of all calls is sampled, and determines random deviations."""
    p_values, ratios, plain = [], [], []
    for seed in range(40):
        said, drawn = draw(sipload, lengths(seed, 4, 30), seed)
        replays = CallCounts(
            said["calls"], 0, 0, 0, 0.0, 0, 0, calls_distinct=said["distinct"]
        ).replays
        assert replays == 4
        starts = drawn["offset_ns"].astype("i8")
        certificate = certify(starts, RATE, "exponential", starts, replays)
        assert certificate.ks_distance is not None
        assert certificate.achieved_cps == pytest.approx(RATE, rel=4 / np.sqrt(said["distinct"]))
        numbers = arrival_numbers(certificate)
        assert numbers["rate_error"] == numbers["cv_error"] == numbers["lateness_p99_us"] == 0
        p_values.append(ks_p_value(certificate.ks_distance, certificate.distinct_gaps))
        plain.append(ks_p_value(certificate.ks_distance, certificate.arrivals - 1))
        ratios.append(certificate.variance_to_mean)
    assert 0.35 < np.mean(p_values) < 0.65
    assert np.mean(np.array(p_values) < 0.05) <= 0.15
    # if all calls counted as sampled, the test would reject correct arrivals too often
    assert np.mean(np.array(plain) < 0.05) > 0.3
    assert np.mean(ratios, axis=0) == pytest.approx([1, 1, 1, 1], abs=0.03)


def test_a_schedule_without_blocks_plays_each_call_once(sipload: Path) -> None:
    said, _ = draw(sipload)
    assert said["calls"] == said["distinct"] == 1000
    assert CallCounts(1000, 0, 0, 0, 0.0, 0, 0).replays == 1


def test_the_duration_of_arrivals() -> None:
    assert Arrivals(200, 1000, 1).duration_s == 5
    blocks = Arrivals.in_blocks(200, 1, [(0, 500 * MS, 0), (0, 500 * MS, 1), (1, 250 * MS, 0)])
    assert (blocks.duration_s, blocks.calls) == (1.25, 250)
