"""Testbeds by hand: `fab -l` lists the tasks, `--testbed NAME` picks a file of hardware/testbeds."""

import json
import sys
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

from fabric import task
from invoke import Collection

from sipsched.errors import SipschedError, StableError
from sipsched.measure import doctor as look
from sipsched.measure.tuning import asked_table, modes_table
from sipsched.plan.config import Run, load_config
from sipsched.records.reduced import reduce as reduce_record
from sipsched.records.verification import verify as verify_records
from sipsched.testbed import local, vm
from sipsched.testbed.inventory import load_testbed, native_folder
from sipsched.testbed.links import check_links
from sipsched.testbed.provision import prepare_machine
from sipsched.testbed.provision import provision as install
from sipsched.testbed.session import open_hosts


def one_line_errors(action: Callable[..., None]) -> Callable[..., None]:
    """Turn an error raised on purpose into one line and exit code 1."""

    @wraps(action)
    def wrapped(*args: Any, **kwargs: Any) -> None:
        try:
            action(*args, **kwargs)
        except SipschedError as error:
            sys.exit(f"error: {error}")

    return wrapped


@task
@one_line_errors
def up(_):
    """Bring the embedded testbed up and keep it until `fab down`."""
    bed = load_testbed("local")
    local.ensure_up(bed)
    with open_hosts(bed, "fab up") as hosts:
        check_links(hosts)
    print("testbed local is up")


@task
@one_line_errors
def down(_):
    """Take the embedded testbed down: end its processes, remove its namespaces, links and keys."""
    local.take_down()
    print("testbed local is down")


@task(name="up")
@one_line_errors
def vm_up(_, testbed="vm"):
    """Boot the guest of a testbed of kind vm, building its image if there is none, until `fab vm.down`."""
    bed = load_testbed(testbed)
    prepare_machine(bed)
    vm.bring_up(bed)
    booted = vm.as_booted(bed)
    with open_hosts(bed, "fab vm.up") as hosts:
        check_links(hosts)
    print(f"testbed {bed.name} is up, accelerator {booted.accelerator}: {booted.fidelity}")


@task(name="down")
@one_line_errors
def vm_down(_):
    """End the guest and remove its namespaces, links and keys; its image stays."""
    vm.take_down()
    print("testbed vm is down")


@task
@one_line_errors
def provision(_, testbed="local", tests=False):
    """Install the packages that a testbed's hosts need and build the native parts on its SPS."""
    install(load_testbed(testbed), tests=tests)


@task
@one_line_errors
def modes(_, testbed="local", cores=1, threads=8):
    """Print each mode's settings at a point, and where they go on the SPS of a testbed if it has such a point."""
    bed = load_testbed(testbed)
    try:
        bed.check_cores([Run(testbed, "any", "default", int(cores), int(threads), 1, 1)])
        with open_hosts(bed, "fab modes") as hosts:
            lines = modes_table(hosts.sps, int(cores), int(threads))
    except StableError as error:
        lines = [*asked_table(int(cores), int(threads)), f"where they go is not told: {error}"]
    for line in lines:
        print(line)


@task
@one_line_errors
def doctor(_, testbed="local"):
    """Say what this machine, or a testbed's hosts, can measure, what not and what to do; exit code 1 if nothing."""
    lines, possible = look.doctor(load_testbed(testbed), load_config(Path("config/config.yaml")))
    for line in lines:
        print(line)
    if not possible:
        sys.exit(1)


@task
@one_line_errors
def check(_, testbed="local"):
    """Reach every host of a testbed, pass a datagram each way, say what its kernel lets the probe see."""
    bed = load_testbed(testbed)
    with open_hosts(bed, "fab check") as hosts:
        for host in hosts.all:
            kernel = host.run(["uname", "-sr"]).stdout.strip()
            print(f"{host.spec}: {kernel}, SIP on {host.spec.sip_address}:{host.spec.sip_port}")
        check_links(hosts)
        print("SIP: every link has a carrier, a datagram passes each way")
        program = str(native_folder(hosts.sps.base, "probe") / "sipprobe")
        hosts.sps.require_built("probe", ["sipprobe"])
        answer = json.loads(hosts.sps.run([program, "check"], check=False).stdout)
    for name, mode in answer["modes"].items():
        print(f"probe, {name}: {'can run' if mode['can_run'] else mode['reason']}")
    print(f"probe used: {answer['best'] or 'preload (no BPF)'}")


@task
@one_line_errors
def verify(_, raw="raw"):
    """Compare every record under raw/ with the sizes and SHA-256 in its run.json; exit code 1 if one is damaged."""
    found = verify_records(Path(raw))
    for line in found.lines:
        print(line)
    if not found.intact:
        sys.exit(1)


@task
@one_line_errors
def reduce(_, raw="raw", results="results/runs", to="reduced/raw"):
    """Copy every record without its single messages, with summary.nc and windows.nc in their place."""
    for document in sorted(Path(raw).rglob("rep~*/run.json")):
        run = document.parent.relative_to(raw)
        if ".failed-" not in run.name:
            reduce_record(Path(raw) / run, Path(results) / run, Path(to) / run)
            print(f"reduced: {run}")


ns = Collection(up, down, provision, doctor, modes, check, verify, reduce)
ns.add_collection(Collection("vm", vm_up, vm_down))
