"""Tests of the translation of modes into settings of a kernel, on listings of the kernels' scheduler files."""

from typing import Any

import pytest

from sipsched.measure.scheduler import (
    BASE_SLICE,
    DEBUGFS,
    FILES,
    PLAIN,
    SYSCTL,
    TASK_PLACES,
    TASK_SLICE,
    KernelFamily,
    KernelScheduler,
    Step,
    TaskAttributes,
    compile_mode,
    is_translation,
    label,
    refuse_tasks,
    same_settings,
    switch_lines,
    task_attributes,
    task_places,
    writes,
)
from sipsched.plan.modes import Counts, Policy, Setting, find_mode, load_modes

DECLARED = load_modes()
# the output of `grep . /proc/sys/kernel/sched_* /sys/kernel/debug/sched/*` on Debian's kernels with 8 CPUs
LINUX_5_10 = """\
/proc/sys/kernel/sched_latency_ns:24000000
/proc/sys/kernel/sched_migration_cost_ns:500000
/proc/sys/kernel/sched_min_granularity_ns:3000000
/proc/sys/kernel/sched_tunable_scaling:1
/proc/sys/kernel/sched_wakeup_granularity_ns:4000000
"""
LINUX_6_1 = """\
/sys/kernel/debug/sched/latency_ns:24000000
/sys/kernel/debug/sched/migration_cost_ns:500000
/sys/kernel/debug/sched/min_granularity_ns:3000000
/sys/kernel/debug/sched/tunable_scaling:1
/sys/kernel/debug/sched/wakeup_granularity_ns:4000000
"""
LINUX_6_12 = """\
/sys/kernel/debug/sched/base_slice_ns:2800000
/sys/kernel/debug/sched/migration_cost_ns:500000
/sys/kernel/debug/sched/tunable_scaling:1
"""
# the papers' kernels: 2.6.32 lacks tunable_scaling and has another name for the migration cost; 3.2 has tunable_scaling
LINUX_2_6_32 = """\
/proc/sys/kernel/sched_latency_ns:10000000
/proc/sys/kernel/sched_migration_cost:500000
/proc/sys/kernel/sched_min_granularity_ns:2000000
/proc/sys/kernel/sched_wakeup_granularity_ns:2000000
"""
LINUX_3_2 = LINUX_2_6_32 + "/proc/sys/kernel/sched_tunable_scaling:1\n"


def kernel(
    listing: str, *, locked: bool = False, slices: bool = False, base_ns: int | None = None
) -> KernelScheduler:
    lines = dict(line.split(":") for line in listing.splitlines())
    assert set(lines) <= set(FILES)
    files = {path: None if locked else text for path, text in lines.items()}
    return KernelScheduler(files, slices, base_ns)


def compiled(name: str, on: KernelScheduler, cores: int = 4, threads: int = 8) -> list[Step]:
    mode = find_mode(name, DECLARED)
    return compile_mode(mode.settings(Counts(cores, threads, 1 if cores <= 4 else 2)), on)


@pytest.mark.parametrize(
    ("listing", "family"),
    [
        (LINUX_2_6_32, KernelFamily.SYSCTL),
        (LINUX_3_2, KernelFamily.SYSCTL),
        (LINUX_5_10, KernelFamily.SYSCTL),
        (LINUX_6_1, KernelFamily.DEBUGFS),
        (LINUX_6_12, KernelFamily.EEVDF),
        ("", KernelFamily.EEVDF),
    ],
)
def test_the_family_of_a_kernel_follows_from_its_files(listing: str, family: KernelFamily) -> None:
    assert kernel(listing).family is family


@pytest.mark.parametrize("name", ["baseline", "enhanced"])
@pytest.mark.parametrize("cores", [1, 2, 4, 6])
@pytest.mark.parametrize(
    ("listing", "folder"), [(LINUX_5_10, SYSCTL + "sched_"), (LINUX_6_1, DEBUGFS)]
)
def test_cfs_accepts_every_setting_unchanged(
    name: str, cores: int, listing: str, folder: str
) -> None:
    on = kernel(listing)
    steps = compiled(name, on, cores)
    asked = find_mode(name, DECLARED).settings(Counts(cores, 8, 1 if cores <= 4 else 2))
    assert {step.setting: step.value for step in steps if step.asked is not None} == asked
    assert all(step.place == folder + step.setting for step in steps)
    assert all(step.unavailable is None for step in steps)
    assert label(find_mode(name, DECLARED), on, steps) == name


def test_debugfs_kernels_write_the_scaling_last_and_always() -> None:
    on = kernel(LINUX_6_1)
    last = compiled("baseline", on, cores=1)[-1]
    assert last == Step(Setting.TUNABLE_SCALING, None, DEBUGFS + "tunable_scaling", 1)
    assert compiled("enhanced", on)[-1] == Step(
        Setting.TUNABLE_SCALING, 0, DEBUGFS + "tunable_scaling", 0
    )
    assert compiled("default", on) == []
    # the scaling is not set last, because before Linux 5.13 every write recomputes the ratio
    assert compiled("baseline", kernel(LINUX_5_10), cores=1)[-1].setting is not (
        Setting.TUNABLE_SCALING
    )


def test_the_papers_kernels_lack_some_files() -> None:
    multi = compiled("enhanced", kernel(LINUX_3_2))
    assert [step.place for step in multi if step.setting is Setting.MIGRATION_COST] == [
        SYSCTL + "sched_migration_cost"
    ]
    assert all(step.unavailable is None for step in multi)
    on = kernel(LINUX_2_6_32)
    steps = compiled("enhanced", on)
    assert steps[-1].unavailable == "this kernel has no file for tunable_scaling"
    assert label(find_mode("enhanced", DECLARED), on, steps) == "enhanced (without tunable_scaling)"
    assert not is_translation(find_mode("enhanced", DECLARED), on, steps)


def test_a_value_below_the_minimum_is_unavailable() -> None:
    name = "enhanced+min_granularity_ns=50000"
    (step,) = (s for s in compiled(name, kernel(LINUX_5_10)) if s.value is None)
    assert step.unavailable == "this kernel accepts only 100000 to 1000000000"
    assert all(s.unavailable is None for s in compiled(name, kernel(LINUX_6_1)))


def test_eevdf_translates_the_settings_of_cfs() -> None:
    on = kernel(LINUX_6_12, slices=True)
    steps = {step.setting: step for step in compiled("enhanced", on)}
    assert steps[Setting.MIN_GRANULARITY].place == BASE_SLICE
    assert steps[Setting.MIN_GRANULARITY].value == 100_000
    assert steps[Setting.MIGRATION_COST].value == 0
    assert steps[Setting.TUNABLE_SCALING].value == 0
    for setting in (Setting.LATENCY, Setting.WAKEUP_GRANULARITY):
        assert steps[setting].place is None
        assert "EEVDF" in str(steps[setting].unavailable)
    mode = find_mode("enhanced", DECLARED)
    assert label(mode, on, list(steps.values())) == "enhanced (EEVDF translation)"
    assert is_translation(mode, on, list(steps.values()))


def test_a_locked_kernel_sets_slices_of_single_tasks() -> None:
    on = kernel(LINUX_6_12, locked=True, slices=True)
    steps = {step.setting: step for step in compiled("enhanced", on, cores=1)}
    assert steps[Setting.MIN_GRANULARITY].place == TASK_SLICE
    assert steps[Setting.MIN_GRANULARITY].value == 250_000
    multi = {step.setting: step for step in compiled("enhanced", on)}
    assert "locked down" in str(multi[Setting.MIGRATION_COST].unavailable)
    assert "not scaled" in str(multi[Setting.TUNABLE_SCALING].unavailable)
    (shortest,) = compiled("default+min_granularity_ns=1", on)
    assert (shortest.asked, shortest.value) == (1, 100_000)
    # a locked kernel whose tasks have no slices accepts no setting of enhanced mode
    steps_without = compiled("enhanced", kernel(LINUX_6_12, locked=True))
    assert all(step.unavailable for step in steps_without)


KERNELS = {
    "sysctl": kernel(LINUX_5_10),
    "debugfs": kernel(LINUX_6_1),
    "eevdf": kernel(LINUX_6_12, slices=True, base_ns=2_800_000),
    "locked": kernel(LINUX_6_12, locked=True, slices=True, base_ns=2_800_000),
    "6.6": kernel(LINUX_6_12),
}
TASKS = {
    "batch": TaskAttributes(Policy.BATCH),
    "fifo": TaskAttributes(Policy.FIFO, priority=1),
    "rr": TaskAttributes(Policy.RR, priority=1),
    "nice-10": TaskAttributes(nice=-10),
    "batch+nice=5": TaskAttributes(Policy.BATCH, nice=5),
    "default+policy=fifo+priority=50": TaskAttributes(Policy.FIFO, priority=50),
}


@pytest.mark.parametrize("name", TASKS)
@pytest.mark.parametrize("on", KERNELS.values(), ids=KERNELS)
def test_every_kernel_accepts_attributes_of_tasks(name: str, on: KernelScheduler) -> None:
    mode, steps = find_mode(name, DECLARED), compiled(name, on)
    assert task_attributes(steps) == TASKS[name]
    assert {step.place for step in steps} == {TASK_PLACES[step.setting] for step in steps}
    assert writes(steps) == []
    assert not is_translation(mode, on, steps)
    assert label(mode, on, steps) == name


def test_slices_of_tasks_need_linux_6_12() -> None:
    for on in (KERNELS["eevdf"], KERNELS["locked"]):
        (step,) = compiled("slice-100us", on)
        assert step == Step(Setting.SLICE, 100_000, TASK_SLICE, 100_000)
        assert task_attributes([step]) == TaskAttributes(slice_ns=100_000)
    for name, reason in (
        ("6.6", "Linux 6.12 and later do"),
        ("sysctl", "CFS has no slices of single tasks"),
        ("debugfs", "CFS has no slices of single tasks"),
    ):
        on = KERNELS[name]
        steps = compiled("slice-100us", on)
        assert reason in str(steps[0].unavailable)
        assert task_attributes(steps) == PLAIN
        assert task_places(steps) == []
        mode = find_mode("slice-100us", DECLARED)
        assert label(mode, on, steps) == "slice-100us (without slice_ns)"


def test_the_base_slice_is_a_file_of_eevdf() -> None:
    name = "default+base_slice_ns=5000000"
    assert writes(compiled(name, KERNELS["eevdf"])) == [(BASE_SLICE, 5_000_000)]
    (locked,) = compiled(name, KERNELS["locked"])
    assert "locked down" in str(locked.unavailable)
    for family in ("sysctl", "debugfs"):
        assert writes(compiled(name, KERNELS[family])) == []
        assert "CFS has no base slice" in str(compiled(name, KERNELS[family])[0].unavailable)


@pytest.mark.parametrize(
    ("on", "own", "reason", "task"),
    [
        ("locked", "slice_ns=300000", "the mode already sets ", {"slice_ns": 300_000}),
        ("eevdf", "base_slice_ns=300000", "the mode already sets ", {}),
        ("locked", "policy=fifo", "real-time policy", {"policy": Policy.FIFO, "priority": 1}),
    ],
)
def test_a_mode_s_own_setting_replaces_a_translated_slice(
    on: str, own: str, reason: str, task: dict[str, Any]
) -> None:
    steps = compiled(f"baseline+{own}", KERNELS[on], cores=1)
    unavailable = {step.setting: step.unavailable for step in steps}
    assert reason in str(unavailable[Setting.MIN_GRANULARITY])
    assert task_attributes(steps) == TaskAttributes(**task)
    assert dict(writes(steps)) == ({BASE_SLICE: 300_000} if on == "eevdf" else {})


def test_refused_attributes_are_unavailable_together() -> None:
    on = KERNELS["eevdf"]
    mode = find_mode("enhanced+policy=fifo", DECLARED)
    steps = refuse_tasks(compiled(mode.name, on), "the kernel refuses: Operation not permitted")
    assert task_attributes(steps) == PLAIN
    assert dict(writes(steps))[BASE_SLICE] == 100_000
    assert label(mode, on, steps) == (
        "enhanced+policy=fifo (EEVDF translation) (without policy, priority)"
    )


def test_modes_with_equal_settings_are_grouped() -> None:
    names = [
        *("default", "slice-1ms", "default+slice_ns=2800000", "batch", "default+policy=batch"),
        *("fifo", "rr", "default+policy=other", "default+base_slice_ns=2800000", "nice-10"),
        *("default+slice_ns=1000000", "batch+slice_ns=2800000"),
    ]
    on = KERNELS["eevdf"]
    assert same_settings({name: compiled(name, on) for name in names}, on) == (
        ("default", *(names[i] for i in (2, 7, 8))),
        ("slice-1ms", "default+slice_ns=1000000"),
        ("batch", "default+policy=batch", "batch+slice_ns=2800000"),
    )
    # if the kernel's file is not readable, a task's slice shows the base slice
    on = KERNELS["locked"]
    result = same_settings({name: compiled(name, on) for name in names}, on)
    assert set(result[0]) == {"default", *(names[i] for i in (2, 7, 8))}
    # a CFS kernel supports none of the slices
    on = KERNELS["debugfs"]
    slices = [name for name in DECLARED if name.startswith("slice-")]
    result = same_settings({name: compiled(name, on) for name in ("default", *slices)}, on)
    assert result == (("default", *slices),)
    # a mode that sets the kernel's own values equals the default mode
    same = "default+latency_ns=24000000+tunable_scaling=logarithmic"
    equal = same_settings({name: compiled(name, on) for name in ("default", same)}, on)
    assert equal == (("default", same),)
    # on EEVDF, all modes of config/modes.yaml have different settings
    on = KERNELS["eevdf"]
    assert same_settings({name: compiled(name, on) for name in DECLARED}, on) == ()


def test_each_mode_of_the_switcher_restores_the_others_files() -> None:
    on = KERNELS["eevdf"]
    names = ("default", "default+base_slice_ns=5000000", "fifo", "batch+nice=-3+slice_ns=100000")
    assert switch_lines([compiled(name, on) for name in names], on) == [
        "mode 0 task other nice 0 priority 0 slice 0",
        f"mode 0 file {BASE_SLICE} 2800000",
        "mode 1 task other nice 0 priority 0 slice 0",
        f"mode 1 file {BASE_SLICE} 5000000",
        "mode 2 task fifo nice 0 priority 1 slice 0",
        f"mode 2 file {BASE_SLICE} 2800000",
        "mode 3 task batch nice -3 priority 0 slice 100000",
        f"mode 3 file {BASE_SLICE} 2800000",
    ]


def test_the_switcher_writes_the_scaling_of_cfs_last() -> None:
    on = KERNELS["debugfs"]
    lines = switch_lines([compiled(name, on, cores=1) for name in ("default", "enhanced")], on)
    files = ("latency_ns", "min_granularity_ns", "wakeup_granularity_ns", "tunable_scaling")
    values = ((24_000_000, 3_000_000, 4_000_000, 1), (800_000, 250_000, 0, 1))
    for number, expected in enumerate(values):
        assert [line for line in lines if line.startswith(f"mode {number} file")] == [
            f"mode {number} file {DEBUGFS}{name} {value}"
            for name, value in zip(files, expected, strict=True)
        ]
