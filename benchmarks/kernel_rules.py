"""Compare the decisions of the simulated scheduler CFS with decisions by the kernel's own functions.

The simulator and the kernel's functions decide in the same random states of a run queue, and of a machine with two to
six CPUs. The benchmark downloads Debian's package linux-source-6.1 (139 MB), extracts the functions in FUNCTIONS, and
compiles these functions unchanged for user space. The file kernel_rules/kernel.c supplies the rest:

- **Types and macros.** A sorted array replaces the tree of tasks, and the bits of an integer replace a CPU mask.
- **Functions that do nothing or return a constant**: locks, statistics, task groups, bandwidth control, NUMA,
  hyper-threads, unequal CPUs, energy and core scheduling.
- **Loads.** The load of a task is its weight. The kernel averages loads over time (PELT).
- **load_balance().** The kernel's function finds the busiest group of CPUs by average loads. The benchmark's function
  uses the simulator's rule, which compares numbers of tasks. If no task there may run on the newly idle CPU, the
  function tries the next CPU, as in the kernel. The kernel's detach_tasks() and can_migrate_task() choose the tasks.
- **Callers.** The benchmark calls dequeue_entity() and enqueue_entity() in the order of __sched_setscheduler().
- **Scheduling domains.** The benchmark builds the domains, and sums their costs for max_idle_balance_cost.
- **Features.** The feature NI_RANDOM, which skips searches at random, is off.

The benchmark has only the source of Linux 6.1, but some rules of Linux 5.10 differ. For the comparison with 5.10, the
kernel's functions run without the feature BASE_SLICE, and with SIS_PROP instead of SIS_UTIL. No task that wakes up has
the policy SCHED_IDLE, whose sleep credit is smaller in 6.1. The benchmark adds the condition of 5.10 that a CPU with an
average idle time below the migration cost takes no task. The rules of Linux 3.2 are not compared.
"""

import argparse
import re
import subprocess
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent / "kernel_rules"
HARDWARE = HERE.parents[1] / "hardware"
PACKAGE = "linux-source-6.1"
FUNCTIONS = (
    *(
        "update_load_add",
        "update_load_sub",
        "__update_inv_weight",
        "__calc_delta",
        "calc_delta_fair",
    ),
    *("max_vruntime", "min_vruntime", "entity_before", "update_min_vruntime"),
    *("__sched_period", "sched_slice", "update_curr", "entity_is_long_sleeper", "place_entity"),
    *("__clear_buddies_last", "__clear_buddies_next", "__clear_buddies_skip", "clear_buddies"),
    *("account_entity_enqueue", "account_entity_dequeue", "enqueue_entity", "dequeue_entity"),
    *("set_next_entity", "put_prev_entity", "set_next_task_fair"),
    *("check_preempt_tick", "wakeup_gran", "wakeup_preempt_entity"),
    *("pick_next_entity", "set_next_buddy", "set_last_buddy", "check_preempt_wakeup"),
    *("task_hot", "record_wakee", "wake_wide", "update_avg", "ttwu_do_wakeup"),
    *("sched_idle_rq", "sched_idle_cpu", "idle_cpu", "available_idle_cpu"),
    *("wake_affine_idle", "wake_affine_weight", "wake_affine", "__select_idle_cpu"),
    *("select_idle_cpu", "select_idle_sibling", "select_task_rq_fair"),
    *("can_migrate_task", "detach_tasks", "sched_balance_newidle"),
)
"""Functions to extract. Each function follows the functions that it calls, as C requires."""
FILES = ("fair.c", "core.c", "sched.h")
SIMULATOR = (
    *("agents.c", "competitors.c", "cpu.c", "eevdf.c", "events.c", "model.c", "output.c", "plan.c"),
    *("rt.c", "sched.c", "sim.c", "socket.c", "switches.c", "trace.c", "workers.c"),
)


def extract(source: str, name: str) -> str:
    """Return the definition of a function from a kernel source text. If the text has several, return the longest."""
    head = rf"^(?:static |inline )*[A-Za-z_][\w *\n]*?\b{name}\([^;{{]*\)\n"
    found = re.findall(rf"{head}\{{\n.*?^\}}\n", source, re.MULTILINE | re.DOTALL)
    if not found:
        raise SystemExit(f"error: {PACKAGE}: {', '.join(FILES)} have no function {name}")
    return str(max(found, key=len))


def fetch(folder: Path) -> str:
    """Download the kernel's source and return the texts of FILES."""
    subprocess.run(["apt-get", "download", PACKAGE], cwd=folder, check=True, capture_output=True)
    (package,) = folder.glob("*.deb")
    unpack = (
        'dpkg-deb --fsys-tarfile "$1" | tar --extract --to-stdout ./usr/src/linux-source-6.1.tar.xz '
        f"| tar --extract --xz --to-stdout linux-source-6.1/kernel/sched/{{{','.join(FILES)}}}"
    )
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", unpack, "bash", str(package)],
        check=True,
        capture_output=True,
        text=True,
    )
    return done.stdout


def build(source: str, folder: Path, *options: str) -> Path:
    """Compile the kernel's functions and the simulator, and return the path of the program.

    Parameters
    ----------
    options
        Further options of the compiler.
    """
    folder.joinpath("fair.h").write_text("\n".join(extract(source, name) for name in FUNCTIONS))
    simulator = HARDWARE / "simulator"
    program = folder / "kernel_rules"
    sources = [
        *HERE.glob("*.c"),
        *(simulator / name for name in SIMULATOR),
        *(HARDWARE / "common" / name for name in ("schedule.c", "sample.c")),
    ]
    flags = ("-std=gnu11", "-D_XOPEN_SOURCE=700", "-O1", "-w", "-fsanitize=undefined", *options)
    folders = (f"-I{folder}", f"-I{simulator}", f"-I{HERE}")
    subprocess.run(["gcc", *flags, *folders, *sources, "-o", program, "-lm"], check=True)
    return program


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--states", type=int, default=10_000)
    parser.add_argument(
        "--source", type=Path, help="the folder kernel/sched of Linux 6.1, to download nothing"
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if options.source:
            source = "".join(options.source.joinpath(file).read_text() for file in FILES)
        else:
            source = fetch(folder)
        # Debian's Linux 6.1 has CONFIG_PREEMPTION, and Debian's Linux 5.10 has not.
        for title, flags, with_base_slice in (
            ("Linux 5.10", [], []),
            ("Linux 6.1", ["-DCONFIG_PREEMPTION"], ["base"]),
        ):
            print(f"simulator compared with the kernel's functions, {title}:", flush=True)
            program = build(source, folder, *flags)
            subprocess.run([program, str(options.states), *with_base_slice], check=True)
