"""Compare the decisions of the simulated scheduler CFS with decisions by the kernel's own functions.

The simulator and the kernel's functions decide in the same random states of a run queue. The benchmark downloads
Debian's package linux-source-6.1
(139 MB), extracts functions of kernel/sched/fair.c, and compiles these functions unchanged for user space. A single
rule differs between Linux 5.10 and 6.1: in 6.1, a slice is at least the minimal granularity (BASE_SLICE). The kernel's
functions run without this feature for the comparison with 5.10, and with this feature for the comparison with 6.1.
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
    *("update_load_add", "__update_inv_weight", "__calc_delta", "calc_delta_fair"),
    *("max_vruntime", "min_vruntime", "entity_before", "update_min_vruntime"),
    *("__sched_period", "sched_slice", "entity_is_long_sleeper", "place_entity"),
    *("clear_buddies", "check_preempt_tick", "wakeup_gran", "wakeup_preempt_entity"),
    *("pick_next_entity", "set_next_buddy", "set_last_buddy", "check_preempt_wakeup"),
    *("task_hot", "wake_wide"),
)
"""Functions to extract from fair.c. Each function follows the functions that it calls, as C requires."""
SIMULATOR = (
    *("agents.c", "competitors.c", "cpu.c", "eevdf.c", "events.c", "model.c", "output.c", "plan.c"),
    *("rt.c", "sched.c", "sim.c", "socket.c", "switches.c", "trace.c", "workers.c"),
)


def extract(source: str, name: str) -> str:
    """Return the definition of a function from a kernel source text."""
    head = rf"^(?:static |inline )*[A-Za-z_][\w *\n]*?\b{name}\([^;{{]*\)\n"
    found = re.search(rf"{head}\{{\n.*?^\}}\n", source, re.MULTILINE | re.DOTALL)
    if found is None:
        raise SystemExit(f"error: {PACKAGE}: fair.c has no function {name}")
    return found.group(0)


def fetch(folder: Path) -> str:
    """Download the kernel's source and return the text of kernel/sched/fair.c."""
    subprocess.run(["apt-get", "download", PACKAGE], cwd=folder, check=True, capture_output=True)
    (package,) = folder.glob("*.deb")
    unpack = (
        'dpkg-deb --fsys-tarfile "$1" | tar --extract --to-stdout ./usr/src/linux-source-6.1.tar.xz '
        "| tar --extract --xz --to-stdout linux-source-6.1/kernel/sched/fair.c"
    )
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", unpack, "bash", str(package)],
        check=True,
        capture_output=True,
        text=True,
    )
    return done.stdout


def build(source: str, folder: Path) -> Path:
    """Compile the kernel's functions and the simulator, and return the path of the program."""
    folder.joinpath("fair.h").write_text("\n".join(extract(source, name) for name in FUNCTIONS))
    simulator = HARDWARE / "simulator"
    program = folder / "kernel_rules"
    sources = [
        *HERE.glob("*.c"),
        *(simulator / name for name in SIMULATOR),
        *(HARDWARE / "common" / name for name in ("schedule.c", "sample.c")),
    ]
    flags = ("-std=gnu11", "-D_XOPEN_SOURCE=700", "-O1", "-w", "-fsanitize=undefined")
    folders = (f"-I{folder}", f"-I{simulator}", f"-I{HERE}")
    subprocess.run(["gcc", *flags, *folders, *sources, "-o", program, "-lm"], check=True)
    return program


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--states", type=int, default=10_000)
    parser.add_argument(
        "--fair", type=Path, help="an existing file fair.c of Linux 6.1, to download nothing"
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        source = options.fair.read_text() if options.fair else fetch(folder)
        program = build(source, folder)
        for title, with_base_slice in (("Linux 5.10", []), ("Linux 6.1", ["base"])):
            print(f"simulator compared with the kernel's functions, {title}:", flush=True)
            subprocess.run([program, str(options.states), *with_base_slice], check=True)
