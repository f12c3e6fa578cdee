"""The measurement of noise on an idle host: how often and how long a program is interrupted on each CPU."""

import json
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from sipsched.errors import StableError
from sipsched.files import parse_json, seal, whole
from sipsched.measure.hoststate import read_files
from sipsched.measure.quiet import awake
from sipsched.measure.tuning import tuned
from sipsched.plan.modes import DEFAULT, find_mode, load_modes
from sipsched.records.noise_record import SCHEMA_VERSION
from sipsched.testbed.host import Host
from sipsched.testbed.inventory import Testbed, native_folder
from sipsched.testbed.session import open_hosts
from sipsched.validity.counters import parse_stat
from sipsched.words import utc

DURATION_S = 2.0
LIMIT_S = 30
STAT = "/proc/stat"


def measure_noise(testbed: Testbed, path: Path, duration_s: float = DURATION_S) -> None:
    """Measure how often and how long each idle CPU of the proxy's host is interrupted, and write `noise.json`.

    Parameters
    ----------
    testbed
        Three hosts that SSH reaches. Only the noise on the SPS is measured.
    path
        The `noise.json` to write. Missing folders are created, and the file is written atomically.

    Raises
    ------
    StableError
        The program `jitter` is not built on the SPS, or the kernel refuses a setting.
    TransientError
        A host is unreachable, or another process uses the testbed.
    """
    started = time.time()
    with open_hosts(testbed, f"the noise of {testbed.name}") as hosts:
        sps = hosts.sps
        sps.stop_strays()
        program = str(native_folder(sps.base, "scheduler") / "jitter")
        sps.require_built("scheduler", ["jitter"])
        mode = find_mode(DEFAULT, load_modes())
        with (
            tuned(sps, testbed, mode, cores=len(sps.spec.cpus), threads=1) as state,
            awake(sps, testbed, sps.spec.cpus, LIMIT_S * len(sps.spec.cpus)),
        ):
            cpus = [_look_at(sps, program, cpu, duration_s) for cpu in sps.spec.cpus]
        kernel = sps.run(["uname", "-r"]).stdout.strip()
    document = {
        "schema_version": SCHEMA_VERSION,
        "testbed": asdict(hosts.testbed.labels),
        "kernel": kernel,
        "started_at": utc(started),
        "quiet": state.quiet,
        "cpus": cpus,
    }
    with whole(path) as partial:
        partial.write_text(seal(json.dumps(document, allow_nan=False)))


def _look_at(sps: Host, program: str, cpu: int, duration_s: float) -> dict[str, Any]:
    before = _stolen(sps, cpu)
    done = sps.run_limited("jitter", [program, f"{duration_s:g}"], cpus=[cpu], limit_s=LIMIT_S)
    gaps = parse_jitter(done.stdout, cpu, f"host {sps.spec}")
    return gaps | {"steal_s": round(_stolen(sps, cpu) - before, 6)}


def parse_jitter(text: str, cpu: int, where: str) -> dict[str, Any]:
    """Parse the output of the program `jitter`, which measured the interruptions on one CPU.

    Raises
    ------
    StableError
        The text is not JSON or describes another CPU, or the program `jitter` moved to another CPU.
    """
    try:
        report = parse_json(text)
    except ValueError as error:
        raise StableError(f"{where}: jitter did not print JSON: {error}") from None
    if (
        not isinstance(report, dict)
        or report.get("cpu") != cpu
        or report.get("cpu_changes", True) != 0
    ):
        raise StableError(f"{where}: jitter did not stay on CPU {cpu}")
    return report


def _stolen(sps: Host, cpu: int) -> float:
    return float(parse_stat(read_files(sps, (STAT,))[STAT])[f"cpu{cpu}"]["steal"])
