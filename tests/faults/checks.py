"""Checks after each fault that a test injects: host and records are unchanged, and a run without a fault succeeds."""

import fcntl
import glob
import hashlib
import re
import subprocess
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml
from faults.table import FAULTY, processes_of
from helpers import change_config, copy_project, leftovers

from sipsched.measure.quiet import QUIET
from sipsched.testbed import namespaces
from sipsched.testbed.inventory import ROLES
from sipsched.validity.rules import RULES, SHARED_MACHINE

SETTLE_S = 30.0
"""Largest time from the end of a run's process until the host has restored its state.

After a link was down, TCP needs some seconds until it repeats the end of the connection.
"""
WIDER = 20
SETTINGS = (
    *(pattern for files in QUIET.values() for pattern, _ in files),
    "/sys/kernel/debug/sched/*",
    "/proc/sys/kernel/sched_*",
    "/proc/sys/net/core/*mem*",
    "/proc/sys/vm/swappiness",
    "/proc/irq/[0-9]*/smp_affinity_list",
    "/sys/devices/system/cpu/online",
)
"""Shell patterns of the files that a run may write on the SPS's host."""


def make_project(folder: Path, *, timing: bool = False, **load: Any) -> Path:
    """Make a scratch project whose campaign is one short study, and return the path of its configuration.

    Other programs may keep the test's machine busy, and most tests check only counts and the end of a run. The limits
    of rules on other programs are therefore WIDER times as wide. With `timing`, the limits are a campaign's limits.
    """
    copy_project(folder)

    def change(document: Any) -> None:
        document["load"] |= load
        document["only"] = ["load_sweep"]
        document["crossover"] |= {"mode_s": 3, "window_s": 0.5}
        if not timing:
            # Create a new mapping per rule, because YAML would write a shared mapping as an alias, which configurations
            # may not contain.
            document["validity"] = {
                rule: {
                    "suspect": WIDER * RULES[rule].suspect,
                    "invalid": WIDER * RULES[rule].invalid,
                }
                for rule in SHARED_MACHINE
            }

    return change_config(folder, change)


def declare_faulty(project: Path) -> Path:
    """Declare the faulty SUTs in a project's configuration, and return the path of the configuration."""
    suts = {}
    for name, text in FAULTY.items():
        program = project / name
        program.write_text(text)
        program.chmod(0o755)
        suts[name] = {"proxy": "kamailio", "program": str(program)}
    return change_config(project, lambda document: document["suts"].update(suts))


def with_real_limits(settings: Path, rules: Iterable[str]) -> Path:
    """Write a copy of a project's configuration in which some rules have their default limits, and return its path."""
    document = yaml.safe_load(settings.read_text())
    for rule in rules:
        del document["validity"][rule]
    path = settings.with_name("strict.yaml")
    path.write_text(yaml.safe_dump(document))
    return path


def host_state() -> dict[str, Any]:
    """Return the state of everything that sipsched makes or changes, on this machine and in the hosts' namespaces."""
    state: dict[str, Any] = {
        # Remove the ids of processes and BPF programs from the state, because such ids differ after each run.
        "ours": sorted(re.sub(r"^\d+:? ", "", line) for line in leftovers() if " tag " not in line),
        "programs": sorted(re.findall(r" name (on_\w+)", "\n".join(leftovers()))),
        "state": sorted(
            str(path)
            for path in namespaces.STATE_ROOT.rglob("*")
            if "cgroup" not in path.parts and path.suffix != ".pid"
        ),
        "undo": (namespaces.STATE_ROOT / "undo.sh").exists(),
        "lock": "held" if lock_is_held() else "free",
        "settings": read_all(SETTINGS),
        "machine's links": said("ip", "-br", "link"),
    }
    # The namespace of a front end exists only after a test on a testbed that names this host.
    for role in filter(exists, ROLES):
        inside = ("ip", "netns", "exec", f"sipsched-{role}")
        state[role] = {
            "processes": sorted(processes_of(role).values()),
            "links": said(*inside, "ip", "-br", "link"),
            "addresses": said(*inside, "ip", "-br", "address"),
            "routes": said(*inside, "ip", "route"),
            "queues": said(*inside, "tc", "qdisc"),
            "steering": said(*inside, "sh", "-c", "grep -H . /sys/class/net/*/queues/*/rps_cpus"),
            "forwarding": said(*inside, "cat", "/proc/sys/net/ipv4/ip_forward"),
        }
    return state


def exists(role: str) -> bool:
    """Return whether the network namespace of a host exists."""
    return Path("/run/netns", f"sipsched-{role}").exists()


def said(*argv: str) -> list[str]:
    """Return the lines of a command's output."""
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def read_all(patterns: Iterable[str]) -> dict[str, str]:
    """Return the contents of all files that match one of the patterns, by path."""
    result = {}
    for pattern in patterns:
        for path in map(Path, glob.glob(pattern)):  # noqa: PTH207 (absolute patterns)
            # Skip write-only files in /proc and /sys, which have no content.
            with suppress(OSError):
                if path.is_file():
                    result[str(path)] = path.read_text().strip()
    return result


def lock_is_held() -> bool:
    """Return whether a process holds the testbed's lock."""
    try:
        with namespaces.LOCK_FILE.open() as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


def differences(before: Mapping[str, Any], after: Mapping[str, Any], place: str = "") -> list[str]:
    """Return one line per difference between two states of the host."""
    result = []
    for name in before.keys() | after.keys():
        first, last = before.get(name), after.get(name)
        where = f"{place}{name}"
        if isinstance(first, Mapping) and isinstance(last, Mapping):
            result += differences(first, last, f"{where}: ")
        elif first != last:
            result.append(f"{where}: {first!r} became {last!r}")
    return sorted(result)


def unlike(before: Mapping[str, Any], settle_s: float = SETTLE_S) -> list[str]:
    """Wait until the host has its earlier state again. Return the differences that remain after `settle_s` seconds."""
    deadline = time.monotonic() + settle_s
    while (result := differences(before, host_state())) and time.monotonic() < deadline:
        time.sleep(0.1)
    return result


def digests(raw: Path) -> dict[str, str]:
    """Return the SHA-256 of each file in the records of all finished runs."""
    return {
        str(path.relative_to(raw)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in raw.rglob("*")
        if path.is_file() and not any(part.endswith(".partial") for part in path.parts)
    }


def changed(before: Mapping[str, str], raw: Path) -> list[str]:
    """Return the files of records that are missing or changed since `before`."""
    after = digests(raw)
    return sorted(name for name, digest in before.items() if after.get(name) != digest)
