"""Control of the program `switcher`, which switches the proxy between scheduler modes during a run."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath

from sipsched.errors import DISK_FULL, StableError, TransientError
from sipsched.files import parse_json
from sipsched.measure.probe import CONTROL_SOCKET, FULL_BYTES
from sipsched.measure.proxy import parse_instances
from sipsched.measure.scheduler import Step, records, same_settings, switch_lines
from sipsched.measure.tuning import Tuned
from sipsched.plan.crossover import Design, Instances
from sipsched.records.scheduler_report import CrossoverReport
from sipsched.records.switch_log import Competed, SwitchLog, WindowsDocument, parse_log
from sipsched.testbed.host import Host, Process
from sipsched.testbed.inventory import native_folder

SAMPLE_NS = 50_000_000
FIFO_PRIORITY = 12
"""Real-time priority of the switcher, above the probe and the generators. The switcher uses about 0.1 % of a CPU."""
READY_TIMEOUT_S = 10
TASKS = """\
pgrep --list-full --pgroup "$(cat "$1")" "$2" | while read -r pid command; do
    for task in $(ls "/proc/$pid/task" 2>/dev/null); do
        printf '%s %s\\n' "$task" "$command"
    done
done
"""
"""Shell command that prints the id and command line of each task of a program in the process group of a pid file."""


@dataclass(frozen=True)
class Playable:
    """The modes between which a run can switch: the kernel can apply these modes, and their settings differ.

    Attributes
    ----------
    modes
        The modes that differ from each other. The first mode is the reference.
    refused
        The modes whose settings the kernel refuses, with the reasons.
    same
        Groups of modes with equal settings on this kernel. The run uses only the first mode of each group.
    instances
        The proxy instances, and the instance of each mode in `modes`.
    """

    modes: tuple[Tuned, ...]
    refused: Mapping[str, str]
    same: tuple[tuple[str, ...], ...]
    instances: Instances

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the modes between which the run switches."""
        return tuple(state.mode.name for state in self.modes)

    @property
    def stills_probe(self) -> bool:
        """True if the probe does not record in some of the modes."""
        return not all(records(state.steps) for state in self.modes)

    def report(self, windows: WindowsDocument) -> CrossoverReport:
        """Return the modes and windows of the run as a value for `run.json`."""
        design, log = windows.design, windows.log
        several = len(self.instances.started) > 1
        return CrossoverReport(
            modes=tuple(state.report() for state in self.modes),
            unavailable=self.refused,
            same_settings=self.same,
            window_s=design.window_s,
            washout_s=design.washout_s,
            blocks=design.windows[-1].block + 1,
            windows=len(design.windows),
            failed_switches=sum(not switch.good for switch in log.windows),
            tasks=log.tasks,
            instances=self.instances.started if several else (),
            instance_of_mode=self.instances.of_mode if several else (),
        )


def playable(comparison: str, compiled: Sequence[Tuned], instances: Instances) -> Playable:
    """Select the modes of a run between which the kernel can switch: applicable modes with different settings.

    Parameters
    ----------
    compiled
        The modes, translated for this kernel. The first mode is the reference.
    instances
        The proxy instances of the run.

    Raises
    ------
    StableError
        The kernel refuses the reference mode, or all modes are equal on this kernel.
    """
    refused: dict[str, str] = {}
    steps: dict[str, Sequence[Step]] = {}
    for state in compiled:
        asked = [step for step in state.steps if step.asked is not None]
        if asked and all(step.unavailable for step in asked):
            reasons = dict.fromkeys(step.unavailable or "" for step in asked)
            refused[state.mode.name] = "; ".join(reasons)
        else:
            steps[state.mode.name] = state.steps
    of_mode = {
        state.mode.name: number for state, number in zip(compiled, instances.of_mode, strict=True)
    }
    same = tuple(
        names
        for number in dict.fromkeys(instances.of_mode)
        for names in same_settings(
            {name: steps[name] for name in steps if of_mode[name] == number}, compiled[0].kernel
        )
    )
    again = {name for names in same for name in names[1:]}
    modes = tuple(
        state for state in compiled if state.mode.name in steps and state.mode.name not in again
    )
    told = "; ".join(
        (
            *(f"{', '.join(names)} have the same settings on this kernel" for names in same),
            *(f"{name} cannot be set: {reason}" for name, reason in refused.items()),
        )
    )
    reference = compiled[0].mode.name
    if reference in refused:
        raise StableError(f"{comparison}: the reference {told}, so no mode can be compared with it")
    if len(modes) < 2:
        raise StableError(
            f"{comparison}: no two modes differ on this kernel, so the run would compare a mode with "
            f"itself: {told}; fab modes lists the available settings"
        )
    numbers = tuple(of_mode[state.mode.name] for state in modes)
    return Playable(modes, refused, same, replace(instances, of_mode=numbers))


@dataclass
class Switcher:
    """One execution of the program `switcher` on the proxy's host.

    Attributes
    ----------
    proxy, program
        The process group of the proxy, and the name of the proxy's programs. The switcher switches every task of these
        programs.
    first_ns
        Time in ns from the beginning of the schedule to its first call.
    control_s
        Longest time in s, on the clock of the proxy's host, that the commands of the run may take.
    log
        The log of the switches, after `running`.
    """

    sps: Host
    proxy: Process
    program: str
    playable: Playable
    design: Design
    first_ns: int
    control_s: float
    over_tcp: bool = False
    log: SwitchLog = field(init=False)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Switch between the modes during the `with` block, at times relative to the load's first datagram.

        Raises
        ------
        StableError
            The program `switcher` refuses the plan, or the disk of the SPS is full.
        TransientError
            The program `switcher` wrote no log, or a task of the proxy belongs to no instance.
        """
        sps, folder = self.sps, self.sps.workdir
        plan, log_file = folder / "windows.plan", folder / "windows.json"
        sps.put_text(self._plan(), plan)
        sps.run(["rm", "-f", str(log_file)])
        argv = self._command(plan, log_file)
        limit_s = self.design.end_ns / 1e9 + self.control_s
        process = sps.start("switcher", argv, cpus=sps.spec.helper_cpus, limit_s=limit_s)
        ready = sps.wait_while_running(
            process,
            'grep -qs ready "$1"',
            process.log_file,
            what="switcher does not report 'ready'",
            timeout_s=READY_TIMEOUT_S,
        )
        if not ready:
            raise StableError(f"host {sps.spec}: switcher: {self._said(process)}")
        try:
            yield
        finally:
            sps.stop(process)
        text = sps.run(["cat", str(log_file)], check=False).stdout
        if not text:
            if sps.free_bytes(folder) < FULL_BYTES:
                raise StableError(
                    f"host {sps.spec}: {DISK_FULL} at {folder}: No space left on device for the switcher's log"
                )
            raise TransientError(
                f"host {sps.spec}: switcher left no log: {self._said(process) or 'no message'}"
            )
        if '"t0_ns":null' in text.replace(" ", ""):
            raise TransientError(f"host {sps.spec}: switcher saw no datagram, so it never switched")
        self.log = parse_log(text, f"host {sps.spec}: {log_file.name}")

    def _command(self, plan: PurePosixPath, log_file: PurePosixPath) -> list[str]:
        """Return the command line of the program `switcher`, with the ids of all current tasks of the proxy.

        Raises
        ------
        TransientError
            A task belongs to no instance.
        """
        sps, ports = self.sps, len(self.playable.instances.started)
        listing = sps.shell(TASKS, self.proxy.pid_file, self.program).stdout
        control = ("--probe-control", str(sps.workdir / CONTROL_SOCKET))
        return [
            *(str(native_folder(sps.base, "scheduler") / "switcher"), "run"),
            *("--plan", str(plan), "--log", str(log_file), "--fifo", str(FIFO_PRIORITY)),
            *("--port", str(sps.spec.sip_port), "--ports", str(ports)),
            *("--cpus", ",".join(map(str, self._cpus))),
            *(("--tcp",) if self.over_tcp else ()),
            *(control if self.playable.stills_probe else ()),
            *_by_instance(listing, ports, f"host {sps.spec}"),
        ]

    def record(self, steal_share: float, competed: Competed | None) -> WindowsDocument:
        """Return the windows of each mode, and the log of the switches between modes. Call this method after `running`.

        Parameters
        ----------
        steal_share
            Share of stolen CPU time above which a window is excluded.
        competed
            The competitors' CPU time on the SPS's CPUs; None if this time was not counted.
        """
        return WindowsDocument(self.design, self._cpus, steal_share, self.log, competed)

    @property
    def _cpus(self) -> tuple[int, ...]:
        return tuple(cpu.number for cpu in self.playable.modes[0].layout.cpus)

    def _plan(self) -> str:
        lines = [
            *switch_lines(
                [state.steps for state in self.playable.modes], self.playable.modes[0].kernel
            ),
            f"first {self.first_ns}",
            f"sample {SAMPLE_NS}",
            *(f"window {window.start_ns} {window.mode}" for window in self.design.windows),
            f"end {self.design.end_ns}",
        ]
        return "\n".join(lines) + "\n"

    def _said(self, process: Process) -> str:
        return self.sps.run(["cat", str(process.log_file)], check=False).stdout.strip()


def _by_instance(listing: str, instances: int, where: str) -> list[str]:
    """Return the ids of the proxy's tasks for the command line of `switcher`, with a + between two instances.

    Parameters
    ----------
    listing
        The output of `TASKS`.
    instances
        The number of instances.
    where
        Name of the host, for error messages.

    Raises
    ------
    TransientError
        The run has several instances, and the command line of a task names none of them.
    """
    if instances == 1:
        return [line.split()[0] for line in listing.splitlines()]
    instance_of = parse_instances(listing)
    groups: list[list[str]] = [[] for _ in range(instances)]
    for line in listing.splitlines():
        task = line.split()[0]
        number = instance_of.get(int(task), instances)
        if number >= instances:
            raise TransientError(
                f"{where}: this task belongs to no instance of the proxy: {line:.200}"
            )
        groups[number].append(task)
    return " + ".join(map(" ".join, groups)).split()


def speed_index(sps: Host) -> float:
    """Measure the speed of the first CPU of the proxy's host, as an amount of work per µs of CPU time."""
    program = str(native_folder(sps.base, "scheduler") / "switcher")
    done = sps.run(["taskset", "-c", str(sps.spec.cpus[0]), program, "speed"])
    return float(parse_json(done.stdout)["index"])
