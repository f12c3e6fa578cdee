"""Tests of the virtual clock of a guest: errors of the real library in the real QEMU, and the self-test's verdict."""

import dataclasses
import math
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from sipsched.errors import StableError, TransientError
from sipsched.paths import PROJECT_ROOT
from sipsched.testbed import virtual_clock
from sipsched.testbed.guest import QEMU
from sipsched.testbed.inventory import VirtualClock
from sipsched.testbed.virtual_clock import SelfTest

CLOCK = VirtualClock(mips=2000, quantum_ns=5000, kernel_weight=1, wake_ns=0)
EXACT = {
    "cpus": 4,
    "loop_ns": 1_000_000,
    "loop_exact_ns": 1_000_000,
    "speeds": [1000.0, 1000.0, 1000.0],
    "workers": 2,
    "service_ns": 400_000,
    # With 2000 MIPS and kernel weight 1, the delivery of a message takes 4 µs in addition to the computed wait.
    "wait_ns": 364_000,
    "theory_ns": 360_000,
    "room": 11,
    "lost": 230,
    "theory_lost": 230,
}
COUNTERS = virtual_clock.Statistics(10**9, 200_000, 3000, 0, 0, 2000, 60_000, 0)
needs_qemu = pytest.mark.skipif(shutil.which(QEMU) is None, reason="QEMU is not installed")


def load(settings: str, *, preload: bool = True) -> str:
    """Let QEMU load the clock's library with settings, and return the library's error, or an empty text."""
    library = virtual_clock.built() / virtual_clock.LIBRARY
    argv = [QEMU, "-plugin", f"{library}{settings}", "-machine", "none", "-display", "none"]
    done = subprocess.run(
        ["env", *([f"LD_PRELOAD={library}"] if preload else []), *argv, "-monitor", "stdio"],
        input="quit\n",
        capture_output=True,
        text=True,
        timeout=60,
    )
    refused = [line for line in done.stderr.splitlines() if line.startswith("libsipvirtual")]
    assert bool(refused) == (done.returncode != 0), done.stderr
    return "\n".join(refused)


@needs_qemu
def test_this_qemu_is_known_and_can_be_patched(tmp_path: Path) -> None:
    assert (
        load(f",mips=7000,quantum_ns=1000,statistics={virtual_clock.statistics_file(tmp_path)}")
        == ""
    )
    counters = virtual_clock.read_statistics(tmp_path)
    assert counters is not None and counters.quanta == 0


@needs_qemu
@pytest.mark.parametrize(
    "setting",
    [
        "mips=0",
        "mips=x",
        "mips=",
        "quantum_ns=1",
        "kernel_weight=nan",
        "wake_ns=-1",
        "speed=1",
        "statistics=/no/x",
    ],
)
def test_wrong_settings_are_refused_in_one_line(setting: str) -> None:
    refused = load(f",{setting}")
    assert refused.endswith(f"found {setting}") and "\n" not in refused


@needs_qemu
def test_a_library_that_is_not_preloaded_is_refused() -> None:
    assert "preloaded" in load(",mips=7000", preload=False)


@pytest.mark.parametrize(
    ("change", "failed"),
    [
        ({}, ""),
        ({"loop_ns": 1_004_000}, ""),
        ({"loop_ns": 1_006_000}, "loop count: off by 0.600 %"),
        ({"speeds": [1000.0, 1000.0, 1011.0]}, "equal speed: off by 1.100 %"),
        ({"wait_ns": 340_000}, "wait of M/D/2: off by 6.593 %"),
        ({"lost": 250}, ""),
        ({"lost": 200}, "losses of M/M/2/13: off by 13.043 %"),
        # the self-test measured nothing
        ({"loop_ns": 0}, "loop count: off by 100.000 %"),
        ({"wait_ns": 0}, "wait of M/D/2: off by 100.000 %"),
        ({"wait_ns": math.nan}, "wait of M/D/2: off by nan %"),
        ({"lost": 0}, "losses of M/M/2/13: off by 100.000 %"),
        ({"theory_lost": 0}, "losses of M/M/2/13: off by nan %"),
    ],
)
def test_each_failed_test_has_one_line(change: dict[str, Any], failed: str) -> None:
    passed, lines = virtual_clock.judge(SelfTest(**{**EXACT, **change}), COUNTERS, CLOCK)
    assert [line.partition(",")[0] for line in lines] == ([failed] if failed else [])
    assert len(passed) + len(lines) == 4


@pytest.mark.parametrize(
    "counters",
    [
        None,
        dataclasses.replace(COUNTERS, quanta=0),
        dataclasses.replace(COUNTERS, given_up=1),
    ],
)
def test_a_virtual_clock_that_is_off_fails(counters: virtual_clock.Statistics | None) -> None:
    passed, failed = virtual_clock.judge(SelfTest(**EXACT), counters, CLOCK)
    assert len(passed) == 4 and len(failed) == 1


@pytest.mark.parametrize(
    ("settings", "wait_ns", "passes"),
    [
        # a delivery of 50 µs, and a wake-up of 10 µs
        ({"kernel_weight": 12.5, "wake_ns": 10_000}, 420_000, True),
        ({"kernel_weight": 12.5, "wake_ns": 10_000}, 360_000, False),
        ({"mips": 8000}, 361_000, True),
        # a delivery of 400 µs, which is uncertain by half
        ({"kernel_weight": 100}, 950_000, True),
        ({"kernel_weight": 100}, 970_000, False),
    ],
)
def test_the_expected_wait_includes_the_delivery_by_the_kernel(
    settings: dict[str, Any], wait_ns: float, passes: bool
) -> None:
    clock = dataclasses.replace(CLOCK, **settings)
    result = SelfTest(**{**EXACT, "wait_ns": wait_ns})
    assert (virtual_clock.judge(result, COUNTERS, clock)[1] == []) == passes


def test_the_command_tests_the_clock_of_its_options(monkeypatch: Any) -> None:
    monkeypatch.syspath_prepend(PROJECT_ROOT)
    import fabfile

    tested: list[tuple[VirtualClock, int]] = []

    def boot(clock: VirtualClock, cores: int, kernel: Path) -> Any:
        tested.append((clock, cores))
        return SelfTest(**EXACT), COUNTERS

    monkeypatch.setattr(fabfile, "self_test", boot)
    monkeypatch.setattr(fabfile, "find_kernel", Path)
    fabfile.virtual_check.body(None)
    fabfile.virtual_check.body(None, cores="8", kernel_weight="1.25", wake_ns="300")
    assert tested == [
        (CLOCK, virtual_clock.TEST_CORES),
        (dataclasses.replace(CLOCK, kernel_weight=1.25, wake_ns=300), 8),
    ]
    for wrong in ({"wake_ns": "-1"}, {"kernel_weight": "0"}, {"mips": "0"}):
        with pytest.raises(SystemExit, match="error: --"):
            fabfile.virtual_check.body(None, **wrong)


def test_a_clock_is_tested_once_per_version_and_setting(tmp_path: Path, monkeypatch: Any) -> None:
    """Replace QEMU, the library and the guest, and count the self-tests."""
    tested: list[tuple[VirtualClock, int]] = []
    lines: list[str] = []
    speeds = EXACT["speeds"]

    def boot(clock: VirtualClock, cores: int, kernel: Path) -> Any:
        tested.append((clock, cores))
        return SelfTest(**{**EXACT, "speeds": speeds}), COUNTERS

    monkeypatch.setattr(virtual_clock, "self_test", boot)
    monkeypatch.setattr(virtual_clock, "qemu_version", lambda: "7.2.1")
    monkeypatch.setattr(virtual_clock, "built", lambda: Path("/cache/virtual-1"))

    def ensure(clock: VirtualClock = CLOCK) -> None:
        virtual_clock.ensure_tested(clock, Path("/kernel"), tmp_path, lines.append)

    speeds = [1000.0, 1011.0]
    with pytest.raises(StableError, match=r"the self-test .* failed: equal speed: off by 1\.100 %"):
        ensure()
    speeds = EXACT["speeds"]
    for _ in range(2):
        ensure()
    # The failed self-test did not count as passed, and the passed self-test is not repeated.
    assert tested == [(CLOCK, virtual_clock.TEST_CORES)] * 2
    faster = dataclasses.replace(CLOCK, wake_ns=1)
    ensure(faster)
    monkeypatch.setattr(virtual_clock, "built", lambda: Path("/cache/virtual-2"))
    ensure(faster)
    monkeypatch.setattr(virtual_clock, "qemu_version", lambda: "7.2.2")
    ensure(faster)
    ensure(faster)
    assert len(tested) == len(lines) == 5
    assert str(CLOCK) in lines[0] and "13 s" in lines[0]


def test_output_without_a_result_is_an_error() -> None:
    with pytest.raises(StableError, match="no result of its self-test: no output"):
        virtual_clock.parse_result("")
    with pytest.raises(StableError, match="self-test: Kernel panic"):
        virtual_clock.parse_result("one\nKernel panic\n\n")
    with pytest.raises(StableError, match="self-test: libsipvirtual: needs QEMU"):
        virtual_clock.parse_result("libsipvirtual: needs QEMU 7.2\nqemu: could not load\n")
    with pytest.raises(StableError, match="its self-test failed: needs two CPUs"):
        virtual_clock.parse_result('virtualcheck: {"error": "needs two CPUs"}\n')


@needs_qemu
def test_files_that_cannot_be_written_are_an_error(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "missing"))
    with pytest.raises(StableError, match=r"virtual time: .*missing"):
        virtual_clock.self_test(CLOCK, 4, Path("/no/kernel"))


def test_another_qemu_is_refused(monkeypatch: Any) -> None:
    monkeypatch.setattr("shutil.which", lambda name: name)
    for text in ("QEMU emulator version 10.0.2 (Debian)", "QEMU emulator version 7.20.1", ""):
        monkeypatch.setattr(virtual_clock, "run_here", lambda argv, what, text=text: text)
        with pytest.raises(
            StableError, match=r"needs QEMU 7\.2, .* has version (10\.|7\.20|unknown)"
        ):
            virtual_clock.qemu_version()
    monkeypatch.setattr("shutil.which", lambda name: None)
    with pytest.raises(StableError, match=f"program {QEMU} is missing"):
        virtual_clock.qemu_version()


def test_a_clock_that_stands_still_is_an_error(tmp_path: Path, monkeypatch: Any) -> None:
    real_s = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: real_s[0])
    progress = virtual_clock.StandstillCheck(tmp_path)
    numbers = range(len(dataclasses.fields(virtual_clock.Statistics)))
    for quanta in (1, 2):
        content = virtual_clock.STATISTICS.pack(
            virtual_clock.STATISTICS_MAGIC, *(n + quanta for n in numbers)
        )
        virtual_clock.statistics_file(tmp_path).write_bytes(content)
        real_s[0] += virtual_clock.STANDSTILL_S + 1
        progress.check()
    real_s[0] += virtual_clock.STANDSTILL_S + 1
    with pytest.raises(TransientError, match="stood still"):
        progress.check()


def test_the_first_ram_disk_has_the_kernels_format() -> None:
    archive = virtual_clock.initial_ram_disk([("init", 0o100755, b"12345")])
    names, at = [], 0
    while at < len(archive):
        assert archive[at : at + 6] == b"070701" and at % 4 == 0
        fields = [int(archive[at + 6 + 8 * i : at + 14 + 8 * i], 16) for i in range(13)]
        mode, size, length = fields[1], fields[6], fields[11]
        names.append((archive[at + 110 : at + 110 + length - 1].decode(), mode, size))
        at += -(-(110 + length) // 4) * 4
        at += -(-size // 4) * 4
    assert names == [("init", 0o100755, 5), ("TRAILER!!!", 0, 0)]


def test_the_command_names_every_setting(tmp_path: Path) -> None:
    argv = virtual_clock.qemu_command(
        dataclasses.replace(CLOCK, kernel_weight=8.5, wake_ns=1200),
        Path("/lib"),
        tmp_path,
        idle_rate=0.5,
    )
    (plugin,) = (text for text in argv if text.startswith("/lib/libsipvirtual.so,"))
    for setting in (
        "mips=2000",
        "quantum_ns=5000",
        "kernel_weight=8.5",
        "wake_ns=1200",
        "idle_rate=0.5",
    ):
        assert setting in plugin.split(",")
    assert argv[:3] == ["chrt", "--idle", "0"]
