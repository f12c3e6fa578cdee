"""Tests of the papers' modes at all points of both papers, and of the formulas and overrides in modes.yaml."""

import os
import re
from typing import Any

import pytest

from sipsched.errors import StableError
from sipsched.plan.modes import (
    INSTANCE_KEYS,
    Counts,
    OtherInstance,
    Policy,
    Setting,
    find_mode,
    label,
    load_modes,
    value_name,
)

DECLARED = load_modes()
THREADS = (2, 4, 6, 8, 16)
# latency, min granularity and wake-up granularity of Krishnamurthy and Rouskas 2015, sections III-A and III-B
SINGLE_CORE = {
    ("baseline", 2): (1_000_000, 100_000, 25_000),
    ("baseline", 4): (1_000_000, 100_000, 25_000),
    ("baseline", 6): (1_000_000, 100_000, 25_000),
    ("baseline", 8): (1_000_000, 100_000, 25_000),
    ("baseline", 16): (1_000_000, 100_000, 25_000),
    ("enhanced", 2): (800_000, 100_000, 0),
    ("enhanced", 4): (800_000, 150_000, 0),
    ("enhanced", 6): (800_000, 200_000, 0),
    ("enhanced", 8): (800_000, 250_000, 0),
    ("enhanced", 16): (800_000, 400_000, 0),
    **{("desktop", threads): (10_000_000, 2_000_000, 2_000_000) for threads in THREADS},
}
# Krishnamurthy and Rouskas 2016, sections III and III-A: cores and threads, then latency, min granularity and
# migration cost. The wake-up granularity is 0, and tunable_scaling is off. The paper's processors have four cores.
MULTI_CORE_ENHANCED = {
    (2, 2): (1_600_000, 100_000, 0),
    (2, 4): (1_600_000, 100_000, 0),
    (2, 6): (1_600_000, 100_000, 0),
    (2, 8): (1_600_000, 150_000, 0),
    (2, 16): (1_600_000, 200_000, 0),
    (4, 2): (3_200_000, 100_000, 0),
    (4, 4): (3_200_000, 100_000, 0),
    (4, 6): (3_200_000, 100_000, 0),
    (4, 8): (3_200_000, 100_000, 0),
    (4, 16): (3_200_000, 200_000, 0),
    (6, 2): (4_800_000, 100_000, 500_000),
    (6, 4): (4_800_000, 100_000, 500_000),
    (6, 6): (4_800_000, 100_000, 500_000),
    (6, 8): (4_800_000, 100_000, 500_000),
    (6, 16): (4_800_000, 200_000, 500_000),
}


def at(name: str, cores: int, threads: int, declared: Any = DECLARED) -> dict[Setting, int]:
    processors = 1 if cores <= 4 else 2
    return find_mode(name, declared).settings(Counts(cores, threads, processors))


@pytest.mark.parametrize(("mode", "threads"), SINGLE_CORE)
def test_single_core_modes(mode: str, threads: int) -> None:
    latency, min_granularity, wakeup_granularity = SINGLE_CORE[mode, threads]
    assert at(mode, 1, threads) == {
        Setting.LATENCY: latency,
        Setting.MIN_GRANULARITY: min_granularity,
        Setting.WAKEUP_GRANULARITY: wakeup_granularity,
    }


@pytest.mark.parametrize("cores", [2, 4, 6])
@pytest.mark.parametrize("threads", THREADS)
def test_multi_core_baseline(cores: int, threads: int) -> None:
    assert at("baseline", cores, threads) == {
        Setting.LATENCY: 1_000_000,
        Setting.MIN_GRANULARITY: 100_000,
        Setting.WAKEUP_GRANULARITY: 25_000,
        Setting.MIGRATION_COST: 5_000_000,
        Setting.TUNABLE_SCALING: 1,
    }


@pytest.mark.parametrize(("cores", "factor"), [(2, 2), (4, 3), (6, 3), (8, 4)])
def test_scaled_baseline_multiplies_as_the_paper_of_2016_describes(cores: int, factor: int) -> None:
    scaled = (Setting.LATENCY, Setting.MIN_GRANULARITY, Setting.WAKEUP_GRANULARITY)
    baseline = at("baseline", cores, 8)
    expected = {key: value * (factor if key in scaled else 1) for key, value in baseline.items()}
    assert at("baseline-scaled", cores, 8) == expected


@pytest.mark.parametrize(("cores", "threads"), MULTI_CORE_ENHANCED)
def test_multi_core_enhanced(cores: int, threads: int) -> None:
    latency, min_granularity, migration_cost = MULTI_CORE_ENHANCED[cores, threads]
    assert at("enhanced", cores, threads) == {
        Setting.LATENCY: latency,
        Setting.MIN_GRANULARITY: min_granularity,
        Setting.WAKEUP_GRANULARITY: 0,
        Setting.MIGRATION_COST: migration_cost,
        Setting.TUNABLE_SCALING: 0,
    }


@pytest.mark.parametrize("cores", [1, 2, 4, 6])
def test_default_changes_nothing(cores: int) -> None:
    assert at("default", cores, 8) == {}


def test_between_two_listed_counts_the_value_of_the_smaller_count_is_used() -> None:
    assert at("enhanced", 1, 12)[Setting.MIN_GRANULARITY] == 250_000
    assert at("enhanced", 1, 1)[Setting.MIN_GRANULARITY] == 100_000
    assert at("enhanced", 3, 8)[Setting.MIN_GRANULARITY] == 150_000


def test_the_cores_and_workers_of_an_instance_select_its_settings() -> None:
    assert at("enhanced+cores=4+threads=6", 1, 8) == at("enhanced", 4, 6)


def test_overrides_replace_and_add() -> None:
    result = at("enhanced+migration_cost_ns=250000+tunable_scaling=linear", 4, 6)
    assert result[Setting.MIGRATION_COST] == 250_000
    assert result[Setting.TUNABLE_SCALING] == 2
    assert result[Setting.LATENCY] == 3_200_000
    assert at("default+min_granularity_ns=100000", 1, 8) == {Setting.MIN_GRANULARITY: 100_000}


@pytest.mark.parametrize(
    ("name", "other", "words"),
    [
        ("default", OtherInstance(), "default"),
        ("default+threads=1", OtherInstance(threads=1), "1 worker"),
        ("batch+threads=2", OtherInstance(threads=2), "batch with 2 workers"),
        ("default+sut=kamailio-udp-fm", OtherInstance("kamailio-udp-fm"), "kamailio-udp-fm"),
        ("default+cores=2", OtherInstance(cores=2), "2 cores"),
        ("default+start=2", OtherInstance(start=2), "default (start 2)"),
        ("default+threads=2+start=3", OtherInstance(threads=2, start=3), "2 workers (start 3)"),
        (
            "batch+receive_buffer_bytes=65536",
            OtherInstance(receive_buffer_bytes=65536),
            "batch with 64\u00a0KiB buffer",
        ),
        (
            "fifo+priority=5+threads=16",
            OtherInstance(threads=16),
            "fifo+priority=5 with 16 workers",
        ),
    ],
)
def test_a_mode_can_name_another_instance(name: str, other: OtherInstance, words: str) -> None:
    mode = find_mode(name, load_modes())
    assert mode.other == other
    # keys of the instance, such as the number of threads, are no settings of the kernel
    assert not set(INSTANCE_KEYS) & {str(setting) for setting in mode.overrides}
    assert label(name, translated=False, missing=()) == words


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "fast",
            r"mode 'fast': 'fast' is not declared .*baseline, baseline-scaled, batch, .*slice-100ms",
        ),
        ("enhanced+migration_cost=0", "expected SETTING=VALUE with one of latency_ns"),
        ("enhanced+latency_ns", "expected SETTING=VALUE"),
        ("enhanced+latency_ns=1ms", "latency_ns: expected nanoseconds .*found '1ms'"),
        ("enhanced+latency_ns=007", "without leading zeros"),
        ("enhanced+latency_ns=1+latency_ns=2", "latency_ns is overridden twice"),
        ("enhanced+tunable_scaling=log", "expected none, logarithmic, linear"),
        ("default+threads=0", "threads: expected a number of workers from 1 to 9999, found '0'"),
        ("default+threads=2+threads=4", "threads is overridden twice"),
        (
            "default+receive_buffer_bytes=4095",
            "size in bytes from 4096 to 1073741824, found '4095'",
        ),
        ("default+start=1", "start: expected the number of a further start from 2 to 9, found '1'"),
        ("default+cores=0", "cores: expected a number of CPUs from 1 to 9999, found '0'"),
        ("default+receive_buffer_bytes=64k", "receive_buffer_bytes: expected .* found '64k'"),
        ("default+policy=deadline", "policy: expected other, fifo, rr, batch, found 'deadline'"),
        ("default+nice=-21", "nice: expected -20 to 19 .*found '-21'"),
        ("default+nice=+5", "nice: expected -20 to 19"),
        ("default+slice_ns=99999", "slice_ns: expected 100000 to 100000000 .*found '99999'"),
        ("default+slice_ns=-100000", "slice_ns: expected 100000 to 100000000"),
        ("default+base_slice_ns=1", "base_slice_ns: expected 100000 to 1000000000"),
        ("fifo+priority=100", "priority: expected 1 to 99"),
        ("fifo+priority=0", "priority: expected 1 to 99"),
        ("default+priority=1", "policy other ignores priority; only fifo and rr use it"),
        ("fifo+policy=batch", "policy batch ignores priority"),
        ("fifo+nice=-5", "policy fifo ignores nice; only other and batch use it"),
        ("rr+slice_ns=100000", "policy rr ignores slice_ns"),
        ("slice-1ms+policy=fifo", "policy fifo ignores slice_ns"),
    ],
)
def test_a_wrong_name_is_one_clear_error(name: str, message: str) -> None:
    with pytest.raises(StableError, match=message):
        find_mode(name, load_modes())


TODAYS = {
    "slice-100us": {Setting.SLICE: 100_000},
    "slice-250us": {Setting.SLICE: 250_000},
    "slice-500us": {Setting.SLICE: 500_000},
    "slice-1ms": {Setting.SLICE: 1_000_000},
    "slice-3ms": {Setting.SLICE: 3_000_000},
    "slice-10ms": {Setting.SLICE: 10_000_000},
    "slice-100ms": {Setting.SLICE: 100_000_000},
    "batch": {Setting.POLICY: Policy.BATCH.number},
    "nice-10": {Setting.NICE: -10},
    "fifo": {Setting.POLICY: Policy.FIFO.number, Setting.PRIORITY: 1},
    "rr": {Setting.POLICY: Policy.RR.number, Setting.PRIORITY: 1},
}


@pytest.mark.parametrize("name", TODAYS)
@pytest.mark.parametrize("cores", [1, 6])
def test_modes_have_the_kernels_names_and_units(name: str, cores: int) -> None:
    assert at(name, cores, 8) == TODAYS[name]


def test_policies_have_the_kernels_numbers() -> None:
    numbers = {policy: getattr(os, f"SCHED_{policy.upper()}") for policy in Policy}
    assert {policy: policy.number for policy in Policy} == numbers


def test_overrides_have_the_kernels_names_and_units() -> None:
    assert at("default+policy=batch", 1, 8) == TODAYS["batch"]
    assert at("default+slice_ns=100000", 1, 8) == TODAYS["slice-100us"]
    assert at("default+nice=-10", 1, 8) == TODAYS["nice-10"]
    # a real-time policy without a given priority has the lowest priority
    assert at("default+policy=rr", 1, 8) == TODAYS["rr"]
    assert at("fifo+priority=99", 1, 8) == TODAYS["fifo"] | {Setting.PRIORITY: 99}
    assert at("batch+nice=5+slice_ns=250000", 1, 8) == TODAYS["batch"] | {
        Setting.NICE: 5,
        Setting.SLICE: 250_000,
    }
    assert at("default+base_slice_ns=3000000", 1, 8) == {Setting.BASE_SLICE: 3_000_000}


def test_names_of_modes_are_safe_in_paths_shells_and_lists() -> None:
    assert all(re.fullmatch(r"[a-z][a-z0-9_-]*", name) for name in DECLARED)


def test_values_have_their_declared_names() -> None:
    assert value_name(Setting.POLICY, Policy.BATCH.number) == "batch"
    assert value_name(Setting.TUNABLE_SCALING, 1) == "logarithmic"
    assert value_name(Setting.NICE, -10) == "-10"
    assert value_name(Setting.POLICY, 6) == "6"


def test_a_wrong_file_names_the_key(tmp_path: Any) -> None:
    path = tmp_path / "modes.yaml"
    path.write_text("default: {source: x, variants: [{cores: '1+', sched_latency: 5}]}")
    with pytest.raises(StableError, match=r"modes\.yaml: .*sched_latency"):
        load_modes(path)
    path.write_text("default: {source: x, variants: [{cores: '2', sched_latency_ns: 5}]}")
    with pytest.raises(StableError, match="no variant for 1 core"):
        at("default", 1, 2, load_modes(path))
    path.write_text("default: {source: x, variants: [{cores: '1+', policy: idle}]}")
    with pytest.raises(StableError, match=r"modes\.yaml: .*policy"):
        load_modes(path)
    for table, expected in (
        ("{2: 5}", "sched_latency_ns.by: "),
        ("{by: threads}", "sched_latency_ns: expected a row per number of threads"),
        ("{by: threads, two: 5}", "sched_latency_ns: .*'two'"),
        ("{by: threads, 2: -5}", "sched_latency_ns.2: .*-5"),
        ("{by: threads, 2: {by: workers, 2: 5}}", "sched_latency_ns.2.by: .*'workers'"),
        ("", "sched_latency_ns has no value"),
    ):
        text = f"default: {{source: x, variants: [{{cores: '1+', sched_latency_ns: {table}}}]}}"
        path.write_text(text)
        with pytest.raises(StableError, match=expected):
            load_modes(path)
    path.write_text("desktop: {source: x, variants: [{cores: '1+'}]}")
    with pytest.raises(StableError, match="default is missing"):
        load_modes(path)
    path.write_text("default: {source: x, variants: [{cores: '1+', priority: 1}]}")
    with pytest.raises(StableError, match="policy other ignores priority"):
        find_mode("default", load_modes(path))


def test_no_two_modes_look_alike():
    looks = [find_mode(name, load_modes()).look for name in load_modes()]
    assert len(looks) == len(set(looks)) > 10
