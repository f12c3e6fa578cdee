"""Functions for the virtual clock of a QEMU guest: its library, command-line options, counters and self-test."""

import hashlib
import math
import os
import re
import shutil
import struct
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from sipsched.errors import LostError, StableError
from sipsched.paths import PROJECT_ROOT
from sipsched.testbed import guest_image
from sipsched.testbed.guest import KERNEL_OPTIONS, PLAIN_MACHINE, QEMU
from sipsched.testbed.inventory import VirtualClock
from sipsched.testbed.namespaces import run_here
from sipsched.testbed.requirements import native_sources

QEMU_VERSION = "7.2"
NAME = "virtual time"
"""Words at the start of error messages about the virtual clock."""
PART = "virtual"
LIBRARY, CHECK = "libsipvirtual.so", "virtualcheck"
CLOCK_OPTIONS = (
    # The guest's time stamp counter has a rate of exactly 1 GHz, as tsc_early_khz states. With tsc=reliable, the kernel
    # does not compare the counter with other clocks. lpj and no_timer_check skip the calibration of delays and the
    # check of the timer.
    *("tsc=reliable", "tsc_early_khz=1000000", "lpj=4000000", "no_timer_check"),
    "random.trust_cpu=on",
)
CPU = "max,-erms,-fsrm"
"""QEMU's CPU model without fast string copies. The kernel then copies by instructions that the clock can count."""
# STATISTICS has the layout of struct statistics in hardware/virtual/virtual.h.
STATISTICS = struct.Struct("=8s8Q")
STATISTICS_MAGIC = b"sipvirt1"
MEMORY_MIB = 512
STANDSTILL_S = 300
"""Real seconds without progress of the virtual clock after which a guest is considered hung."""
LOOP_ERROR, SPEED_ERROR, WAIT_ERROR, LOSS_ERROR = 0.005, 0.01, 0.05, 0.1
"""Largest relative errors that the clock's self-test allows: a loop's time, CPU speeds, mean wait, dropped messages."""
DELIVERY_INSTRUCTIONS = 8000
"""Kernel instructions, roughly, for the delivery of a datagram to an idle worker (4 µs at 2000 MIPS with weight 1)."""
TEST_CORES = 4
"""Number of cores of the guest in which the clock's self-test runs."""
TESTED_FILE = "tested-clocks.txt"
"""Name of the file that has a line per virtual clock that has passed its self-test."""


@dataclass(frozen=True)
class Statistics:
    """The counters of a virtual clock, in the order of struct statistics in hardware/virtual/virtual.h."""

    virtual_ns: int
    quanta: int
    awaited: int
    given_up: int
    early: int
    halts: int
    parked: int
    idle_ns: int


class SelfTest(msgspec.Struct, frozen=True):
    """The result of the program `virtualcheck`, which tests the virtual clock inside a guest."""

    cpus: int
    loop_ns: float
    loop_exact_ns: float
    speeds: list[float]
    workers: int
    service_ns: float
    wait_ns: float
    theory_ns: float
    room: int
    lost: int
    theory_lost: int

    def errors(self, clock: VirtualClock) -> dict[str, tuple[float, float]]:
        """Return the relative error and the largest allowed error of each part of the virtual clock's self-test.

        The parts "loop count" and "equal speed" measure only user instructions of running CPUs, so they depend neither
        on the kernel weight nor on the wake-up time. The measured wait also includes the delivery of a datagram by the
        kernel and the wake-up of an idle worker. `theory_ns` excludes both, so this method adds both.
        """
        delivery_ns = DELIVERY_INSTRUCTIONS * 1000 * clock.kernel_weight / clock.mips
        delivery_ns += clock.wake_ns
        expected_ns = self.theory_ns + delivery_ns
        computed = self.theory_lost or math.nan
        return {
            "loop count": (abs(self.loop_ns / self.loop_exact_ns - 1), LOOP_ERROR),
            "equal speed": (max(self.speeds) / min(self.speeds) - 1, SPEED_ERROR),
            f"wait of M/D/{self.workers}": (
                abs(self.wait_ns / expected_ns - 1),
                # The number of instructions of a delivery is uncertain, which matters only for a long delivery.
                max(WAIT_ERROR, delivery_ns / expected_ns / 2),
            ),
            f"losses of M/M/{self.workers}/{self.workers + self.room}": (
                abs(self.lost / computed - 1),
                LOSS_ERROR,
            ),
        }


class _Refusal(msgspec.Struct, frozen=True):
    """The output of the virtual clock's test program `virtualcheck` if the tests cannot run."""

    error: str


def built() -> Path:
    """Build the library of the virtual clock and the self-test if necessary, and return their folder.

    Building needs make and a C compiler with a static C library, but not root.

    Raises
    ------
    StableError
        The build fails.
    """
    sources = [*native_sources("common"), *native_sources(PART)]
    digest = hashlib.sha256(b"".join(path.name.encode() + path.read_bytes() for path in sources))
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "sipsched"
    folder = cache / f"{PART}-{digest.hexdigest()[:16]}"
    if not folder.exists():
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache) as partial:
            source = PROJECT_ROOT / "hardware" / PART
            run_here(["make", "--silent", "-C", str(source), f"OUT={partial}"], NAME)
            # The folder may already exist, because another process may have built the same files meanwhile.
            shutil.copytree(partial, folder, dirs_exist_ok=True)
    return folder


def qemu_version() -> str:
    """Return the version of QEMU on this machine, and check that the virtual clock supports this version.

    Raises
    ------
    StableError
        QEMU is missing, or the library of the virtual clock does not support this version of QEMU.
    """
    if shutil.which(QEMU) is None:
        raise StableError(f"{NAME}: program {QEMU} is missing on this machine; run: fab virtual.up")
    match = re.search(r"version (\S+)", run_here([QEMU, "--version"], NAME))
    version = match[1] if match else "unknown"
    if not version.startswith(f"{QEMU_VERSION}."):
        raise StableError(
            f"{NAME}: needs QEMU {QEMU_VERSION}, the version of Debian 12; this machine has version {version}"
        )
    return version


def find_kernel(kernel: str) -> Path:
    """Return the path of the bzImage file of a guest kernel.

    Parameters
    ----------
    kernel
        `6.12`, `6.1`, `5.10`, or the path of a bzImage file.

    Raises
    ------
    StableError
        The file does not exist or is not a kernel, or this machine has no guest image with this kernel.
    """
    name = guest_image.image_name(kernel)
    if kernel not in guest_image.KERNEL_SUITES:
        return Path(kernel)
    image = guest_image.GuestImage(guest_image.IMAGES / name)
    if not image.kernel.is_file():
        raise StableError(
            f"{NAME}: this machine has no guest image of kernel {kernel}; run: fab virtual.up, "
            "or give the path of a bzImage"
        )
    return image.kernel


def qemu_command(clock: VirtualClock, folder: Path, state: Path, idle_rate: float) -> list[str]:
    """Return the first arguments of the QEMU command line for a guest with a virtual clock.

    Parameters
    ----------
    folder
        Folder of the library.
    state
        Folder of the guest. The library writes its counters to this folder.
    idle_rate
        Seconds of virtual time per real second while all cores are halted. With 0, virtual time jumps to the next timer
        as soon as all cores are halted.
    """
    library = folder / LIBRARY
    settings = (
        f"mips={clock.mips},quantum_ns={clock.quantum_ns},kernel_weight={clock.kernel_weight},"
        f"wake_ns={clock.wake_ns},idle_rate={idle_rate},statistics={statistics_file(state)}"
    )
    return [
        # QEMU runs with the lowest priority, to leave the CPUs to other work. Virtual time does not depend on the
        # priority.
        *("chrt", "--idle", "0", "env", f"LD_PRELOAD={library}", QEMU),
        *("-plugin", f"{library},{settings}"),
        *("-accel", "tcg,thread=multi", "-cpu", CPU),
    ]


def _self_test_command(clock: VirtualClock, cores: int, state: Path, kernel: Path) -> list[str]:
    """Return the QEMU command line of a guest that runs only the virtual clock's self-test, from the file `initrd`."""
    return [
        # The option --pdeathsig stops the guest when this process ends, even if this process is killed.
        *("setpriv", "--pdeathsig", "KILL", *qemu_command(clock, built(), state, idle_rate=0)),
        *(*PLAIN_MACHINE, "-m", str(MEMORY_MIB), "-smp", str(cores)),
        *("-display", "none", "-serial", "stdio"),
        *("-kernel", str(kernel), "-initrd", str(state / "initrd")),
        *("-append", " ".join((*KERNEL_OPTIONS, *CLOCK_OPTIONS, f"mips={clock.mips}"))),
    ]


def statistics_file(state: Path) -> Path:
    """Return the path of the file to which a guest's virtual clock writes its counters."""
    return state / "clock.statistics"


def read_statistics(state: Path) -> Statistics | None:
    """Return the counters of a guest's virtual clock, or None if QEMU has not started the clock yet."""
    try:
        content = statistics_file(state).read_bytes()
    except FileNotFoundError:
        return None
    if len(content) != STATISTICS.size or not content.startswith(STATISTICS_MAGIC):
        return None
    return Statistics(*STATISTICS.unpack(content)[1:])


class StandstillCheck:
    """A check that the virtual clock of a guest still advances."""

    def __init__(self, state: Path) -> None:
        self.state = state
        self._seen: Statistics | None = None
        self._since = time.monotonic()

    def check(self) -> None:
        """Raise an error if the virtual clock has not advanced for a long real time.

        Raises
        ------
        LostError
            The virtual clock has not advanced for `STANDSTILL_S` seconds.
        """
        now = read_statistics(self.state)
        if now != self._seen:
            self._seen, self._since = now, time.monotonic()
        if time.monotonic() - self._since > STANDSTILL_S:
            raise LostError(
                f"{NAME}: the guest's clock has stood still for {STANDSTILL_S} s: {now}"
            )

    def now(self) -> float:
        """Return the virtual time of the guest in seconds.

        Raises
        ------
        LostError
            The virtual clock has not advanced for `STANDSTILL_S` seconds.
        """
        self.check()
        return self._seen.virtual_ns / 1e9 if self._seen else 0.0


def initial_ram_disk(files: Sequence[tuple[str, int, bytes]]) -> bytes:
    """Return the bytes of an initramfs (a cpio archive that the kernel unpacks at boot) with the given files.

    Parameters
    ----------
    files
        Name, mode and content of each file.
    """
    # SEE Documentation/driver-api/early-userspace/buffer-format.rst in Linux for the format of the archive.
    parts = []
    for number, (name, mode, content) in enumerate([*files, ("TRAILER!!!", 0, b"")], 1):
        fields = (number, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(name) + 1, 0)
        header = "".join(["070701", *(f"{field:08X}" for field in fields), name, "\0"])
        parts += [part + bytes(-len(part) % 4) for part in (header.encode(), content)]
    return b"".join(parts)


def self_test(clock: VirtualClock, cores: int, kernel: Path) -> tuple[SelfTest, Statistics | None]:
    """Boot a guest with a virtual clock that runs only the clock's self-test, and return the result and counters.

    Returns
    -------
    SelfTest, Statistics
        The result of the self-test, and the counters of the virtual clock at the end of the self-test.

    Raises
    ------
    StableError
        QEMU refuses the settings of the clock, the disk is full, or the guest ends without a result. The message
        contains the last line of the guest's output.
    LostError
        The virtual clock of the guest stands still.
    """
    qemu_version()
    try:
        return _boot(clock, cores, kernel)
    except OSError as error:
        raise StableError(f"{NAME}: {error}") from error


def _boot(clock: VirtualClock, cores: int, kernel: Path) -> tuple[SelfTest, Statistics | None]:
    with tempfile.TemporaryDirectory() as scratch:
        state = Path(scratch)
        program = (built() / CHECK).read_bytes()
        (state / "initrd").write_bytes(initial_ram_disk([("init", 0o100755, program)]))
        with (state / "output").open("w") as output:
            qemu = subprocess.Popen(
                _self_test_command(clock, cores, state, kernel),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
            try:
                clock_check = StandstillCheck(state)
                while qemu.poll() is None:
                    clock_check.check()
                    time.sleep(0.1)
            finally:
                qemu.kill()
                qemu.wait()
        said = (state / "output").read_text(errors="replace")
        return parse_result(said), read_statistics(state)


def ensure_tested(
    clock: VirtualClock, kernel: Path, folder: Path, say: Callable[[str], None]
) -> None:
    """Run the self-test of a virtual clock, unless this machine has passed the self-test with the same settings.

    A file in `folder` lists each version of QEMU, each version of the library and each clock that have passed together.

    Parameters
    ----------
    kernel
        The bzImage file of the guest's kernel.
    say
        Function that shows a line before the self-test.

    Raises
    ------
    StableError
        A part of the self-test failed, or the self-test could not run.
    LostError
        The virtual clock of the guest stands still.
    """
    passes = folder / TESTED_FILE
    line = f"QEMU {qemu_version()}, library {built().name}, {clock!r}"
    if passes.exists() and line in passes.read_text().splitlines():
        return
    say(
        f"testing the virtual clock with {clock} (once per version of QEMU, library and clock; about 13 s of CPU time "
        "at 2000 MIPS, longer with more MIPS)"
    )
    failed = judge(*self_test(clock, TEST_CORES, kernel), clock)[1]
    if failed:
        raise StableError(f"{NAME}: the self-test of the clock failed: {'; '.join(failed)}")
    with passes.open("a") as file:
        file.write(f"{line}\n")


def parse_result(said: str) -> SelfTest:
    """Return the result of the virtual clock's self-test, read from a guest's console output.

    Raises
    ------
    StableError
        The output contains no result, or the result is an error.
    """
    match = re.search(rf"^{CHECK}: (.*)$", said, re.MULTILINE)
    if not match:
        lines = [line.strip() for line in said.splitlines() if line.strip()]
        refused = [line for line in lines if line.startswith("libsipvirtual:")]
        raise StableError(
            f"{NAME}: no result of its self-test: {(refused or lines or ['no output'])[-1]}"
        )
    try:
        return msgspec.json.decode(match[1], type=SelfTest)
    except msgspec.ValidationError:
        refusal = msgspec.json.decode(match[1], type=_Refusal)
        raise StableError(f"{NAME}: its self-test failed: {refusal.error}") from None


def judge(
    result: SelfTest, counters: Statistics | None, clock: VirtualClock
) -> tuple[list[str], list[str]]:
    """Return a line of text per passed part of the virtual clock's self-test, and a line per failed part.

    Parameters
    ----------
    counters
        The counters of the virtual clock when the guest ended. With None, the test fails, because QEMU did not use the
        virtual clock.
    clock
        The settings of the clock during the self-test.
    """
    passed: list[str] = []
    failed: list[str] = []
    for name, (error, limit) in result.errors(clock).items():
        # A comparison with NaN is false, so a part whose error is NaN fails.
        lines = passed if error <= limit else failed
        lines.append(f"{name}: off by {100 * error:.3f} %, at most {100 * limit:g} % are allowed")
    if counters is None or not counters.quanta:
        failed.append("counters: the virtual clock has counted no quantum")
    elif counters.given_up:
        failed.append(f"counters: {counters.given_up} waits for QEMU's main loop reached the limit")
    return passed, failed
