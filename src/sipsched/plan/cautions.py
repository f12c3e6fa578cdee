"""The risk of each kind of setting for the machine, and the command that reverts the setting."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from sipsched.plan.modes import Policy, Setting


@dataclass(frozen=True)
class Caution:
    """The risk of a setting for the rest of the machine, and the command that reverts the setting.

    Attributes
    ----------
    undo
        A clause that names the command, and anything else that the user has to remove.
    grave
        The sentence about the risk that a user must know before using the setting; empty if other programs keep
        running.
    """

    risk: str
    undo: str
    grave: str = ""


# SEE sched(7) and Documentation/scheduler/sched-rt-group.rst. Since Linux 6.12, the fair server replaces the throttling
# of real-time tasks.
_LOOPS = "If a worker loops, it takes its CPU from every other task on this CPU, including SSH and logging."
_REAL_TIME = (
    f"{_LOOPS} By default, "
    "the kernel leaves only 5 % of the CPU's time to these tasks (50 ms of each second). Before Linux 6.12, "
    "real-time throttling sets this limit (kernel.sched_rt_runtime_us = 950000). With kernel.sched_rt_runtime_us = "
    "-1, throttling is off, and the other tasks get no CPU time at all. From Linux 6.12 on, the kernel's fair server "
    "reserves the 50 ms. A worker that is busy for more than 950 ms of a second may be stopped for the rest of this "
    "second."
)
_TO_OTHER = (
    "chrt --other --pid 0 PID for each of the proxy's processes; remove CPUSchedulingPolicy= "
    "from the systemd unit"
)
OF_POLICIES: Mapping[Policy, Caution] = MappingProxyType(
    {
        Policy.FIFO: Caution(
            f"A worker runs until it waits for a message. {_REAL_TIME}",
            f"{_TO_OTHER}, with CPUSchedulingPriority=",
            _LOOPS,
        ),
        Policy.RR: Caution(
            f"A worker runs until it waits for a message. Only other workers take turns with it. {_REAL_TIME}",
            f"{_TO_OTHER}, with CPUSchedulingPriority=",
            _LOOPS,
        ),
        Policy.BATCH: Caution(
            "A woken worker does not preempt the running task. If another program shares the CPU, messages wait "
            "until the slice of this program ends.",
            _TO_OTHER,
        ),
        Policy.OTHER: Caution("None: this is the kernel's default policy.", "nothing to undo"),
    }
)
OF_SETTINGS: Mapping[Setting, Caution] = MappingProxyType(
    {
        Setting.NICE: Caution(
            "Each step of the nice value changes a task's share of a busy CPU by a factor of 1.25. With a negative "
            "value, other programs on the proxy's CPUs get less CPU time, and a worker that loops slows these "
            "programs down.",
            "renice -n 0 -p PID for each of the proxy's processes; remove Nice= from the systemd unit",
        ),
        Setting.SLICE: Caution(
            "A shorter slice interrupts the workers more often, and each context switch costs CPU time. A longer "
            "slice makes other programs on the proxy's CPUs wait longer for their turn.",
            "restart the proxy: new processes have the kernel's slice",
        ),
    }
)
OF_FILES = Caution(
    "The file changes the scheduler for every program of the machine.",
    "write the earlier value to the file, or restart the machine",
)
"""The caution for settings that are files of the kernel, such as the settings of CFS."""
OF_INSTANCES: Mapping[str, Caution] = MappingProxyType(
    {
        "threads": Caution(
            "Calls in progress may fail during the restart. With fewer workers, a slow operation such as a database "
            "query blocks a larger share of the proxy. More workers need more memory, and switch contexts more often.",
            "restart the proxy with the earlier number of workers",
        ),
        "sut": Caution(
            "Calls in progress may fail during the restart. Another version or another build of the proxy may read the "
            "configuration in another way, or may lack a module. If its deployment differs, its workers may share "
            "no registrations, dialogs or limits.",
            "keep the earlier program and its configuration, and restart the proxy with them",
        ),
        "cores": Caution(
            "Calls in progress may fail during the restart. Other programs on the added CPUs get less CPU time, and "
            "fewer CPUs handle less load.",
            "restart the proxy with the earlier CPU list",
        ),
        "receive_buffer_bytes": Caution(
            "Calls in progress may fail during the restart. A larger buffer drops fewer messages, but messages wait "
            "longer. A smaller buffer drops messages earlier. net.core.rmem_default applies to every new socket of the "
            "machine.",
            "write the earlier values of net.core.rmem_default and net.core.rmem_max, and restart the proxy with the "
            "earlier configuration",
        ),
    }
)
"""The cautions for settings that need a restart of the proxy. The keys are fields of `OtherInstance`."""
