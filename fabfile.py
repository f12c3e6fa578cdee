"""Commands for testbeds and records. `fab -l` lists all commands. `--testbed` names a file in hardware/testbeds."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from functools import wraps
from pathlib import Path, PurePosixPath
from typing import Any

from fabric import task
from invoke import Collection

from sipsched import tune as tuning
from sipsched.analysis.headroom import Server
from sipsched.analysis.headroom import headroom as predict_headroom
from sipsched.errors import SipschedError, StableError
from sipsched.measure import doctor as look
from sipsched.measure.mode_tables import asked_table, modes_table
from sipsched.measure.replay import Replay
from sipsched.pages.headroom import sentences
from sipsched.plan.config import load_config
from sipsched.plan.run import Point
from sipsched.records.messages import open_messages
from sipsched.records.record import read_record
from sipsched.records.reduced import UNCOMPRESSED, recompress
from sipsched.records.reduced import reduce as reduce_record
from sipsched.records.verification import verify as verify_records
from sipsched.testbed import local, virtual, vm
from sipsched.testbed.bundle import make_bundle
from sipsched.testbed.inventory import VirtualClock, load_testbed, native_folder
from sipsched.testbed.links import check_links
from sipsched.testbed.provision import prepare_machine
from sipsched.testbed.provision import provision as install
from sipsched.testbed.session import open_hosts
from sipsched.testbed.virtual_clock import find_kernel, judge, self_test
from sipsched.watch import PROBE, WatchOptions, watch


def one_line_errors(action: Callable[..., None]) -> Callable[..., None]:
    """Report an error of sipsched as one line with exit code 1."""

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
    """Start the embedded testbed of network namespaces on this machine. The testbed runs until `fab down`."""
    bed = load_testbed("local")
    local.ensure_up(bed)
    with open_hosts(bed, "fab up") as hosts:
        check_links(hosts)
    print("testbed local is up")


@task
@one_line_errors
def down(_):
    """Stop the testbed `local`: stop its processes, and remove its namespaces, links and keys."""
    local.take_down()
    print("testbed local is down")


@task(name="up")
@one_line_errors
def vm_up(_, testbed="vm"):
    """Boot the guest of a testbed of kind vm, which runs until `fab vm.down`. Build the guest's image if necessary."""
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
    """Stop the guest of testbed vm, and remove the namespaces, links and keys. Keep the guest's image."""
    vm.take_down()
    print("testbed vm is down")


@task(name="up")
@one_line_errors
def virtual_up(_, testbed="virtual"):
    """Boot the guest of a testbed of kind virtual, which runs until `fab virtual.down`. Build its image if needed."""
    bed = load_testbed(testbed)
    prepare_machine(bed)
    virtual.bring_up(bed)
    with open_hosts(bed, "fab virtual.up") as hosts:
        check_links(hosts)
    print(f"testbed {bed.name} is up: {bed.fidelity}")


@task(name="down")
@one_line_errors
def virtual_down(_):
    """Stop the guest of testbed virtual, and remove the keys. Keep the guest's image."""
    virtual.take_down()
    print("testbed virtual is down")


@task(name="check")
@one_line_errors
def virtual_check(
    _, kernel="6.1", cores="4", mips="2000", quantum_ns="5000", kernel_weight="1", wake_ns="0"
):
    """Test whether the virtual clock of an emulated guest counts correctly. The exit code is 1 if a test fails."""
    clock = VirtualClock(
        mips=count("mips", mips),
        quantum_ns=count("quantum-ns", quantum_ns),
        kernel_weight=decimal("kernel-weight", kernel_weight),
        wake_ns=count("wake-ns", wake_ns, least=0),
    )
    passed, failed = judge(*self_test(clock, count("cores", cores), find_kernel(kernel)), clock)
    for line in passed:
        print(line)
    if failed:
        sys.exit("\n".join(f"error: {line}" for line in failed))
    print(f"virtual time is exact: {cores} cores, {clock}")


@task
@one_line_errors
def provision(_, testbed="local", tests=False, release=""):
    """Install packages and build the C programs on a testbed's hosts. --release adds the proxy of a Debian release."""
    install(load_testbed(testbed), tests=tests, release=release)


@task
@one_line_errors
def modes(_, testbed="local", cores="1", threads="8"):
    """Print the settings of each mode for a number of cores and threads, with the path of each setting on the SPS."""
    bed = load_testbed(testbed)
    point = Point(testbed, "any", "default", count("cores", cores), count("threads", threads))
    try:
        bed.check_cores([point])
        with open_hosts(bed, "fab modes") as hosts:
            lines = modes_table(hosts.sps, point.cores, point.threads)
    except StableError as error:
        lines = asked_table(point.cores, point.threads)
        lines.append(f"The paths of these settings on the SPS are unknown: {error}")
    for line in lines:
        print(line)


def count(option, text, least=1):
    """Convert the text of an option to a whole number. Raise an error if the text is no whole number from `least`."""
    if not re.fullmatch("0|[1-9][0-9]*", text) or int(text) < least:
        raise StableError(f"--{option}: expected a whole number from {least}, found '{text}'")
    return int(text)


def decimal(option, text):
    """Convert the text of an option, such as 8.5, to a number. Raise an error if the text is no positive number."""
    if not re.fullmatch(r"[0-9]+(\.[0-9]+)?", text) or not float(text):
        raise StableError(f"--{option}: expected a positive number, found '{text}'")
    return float(text)


@task
@one_line_errors
def doctor(_, testbed="local"):
    """List the measurements that a testbed allows, and how to enable others. Without any, the exit code is 1."""
    lines, possible = look.doctor(load_testbed(testbed), load_config(Path("config/config.yaml")))
    for line in lines:
        print(line)
    if not possible:
        sys.exit(1)


@task
@one_line_errors
def check(_, testbed="local"):
    """Connect to every host of a testbed, send a datagram in each direction, and list the usable probe modes."""
    bed = load_testbed(testbed)
    with open_hosts(bed, "fab check") as hosts:
        for host in hosts.all:
            kernel = host.run(["uname", "-sr"]).stdout.strip()
            print(f"{host.spec}: {kernel}, SIP on {host.spec.sip_address}:{host.spec.sip_port}")
        check_links(hosts)
        print("SIP: every link has a carrier, and datagrams pass in both directions")
        program = str(native_folder(hosts.sps.base, "probe") / "sipprobe")
        hosts.sps.require_built("probe", ["sipprobe"])
        answer = json.loads(hosts.sps.run([program, "check"], check=False).stdout)
    for name, mode in answer["modes"].items():
        print(f"probe, {name}: {'can run' if mode['can_run'] else mode['reason']}")
    print(f"probe used: {answer['best'] or 'preload (no BPF)'}")


# Fabric makes an option of the command from each parameter of the function, so the function has many parameters.
@task(
    name="watch",
    help={
        "host": "host to which ssh connects, such as root@proxy.example.org; default: this machine",
        "pid": "id of a process of the proxy; default: a process of kamailio or opensips",
        "port": "a port of the proxy; default: 5060 or the lowest port",
        "seconds": "length of the watch in seconds; default: until Ctrl-C",
        "output": "new folder for the record",
        "one-in": "record only the messages of one call in this number of calls",
        "histograms": "let the kernel count times in histograms, and record no single message",
        "cpu": "largest share of CPU time for the probe, such as 1%; the probe then records only part of the time",
        "metrics": "port of an HTTP server for Prometheus",
        "probe": "path of sipprobe on the host",
        "dry-run": "only describe the watch: the proxy, its sockets, and the commands of the probe",
    },
)
@one_line_errors
def watch_proxy(
    _,
    host=None,
    pid=None,
    port=None,
    seconds=None,
    output="watched",
    one_in="1",
    histograms=False,
    cpu=None,
    metrics=None,
    probe=str(PROBE),
    dry_run=False,
):
    """Watch a SIP proxy in production. Change nothing on its host, and write a record and a page."""
    options = WatchOptions(
        host=host,
        pid=count("pid", pid) if pid else None,
        port=count("port", port) if port else None,
        seconds=count("seconds", seconds) if seconds else None,
        output=Path(output),
        one_in=count("one-in", one_in),
        histograms=histograms,
        cpu=share("cpu", cpu) if cpu else None,
        metrics=count("metrics", metrics) if metrics else None,
        dry_run=dry_run,
        probe=PurePosixPath(probe),
    )
    watch(options, say=print_now)


def print_now(line):
    """Print a line without a buffer. Python prints lines in a buffer again at the end, and would fail there, too."""
    if sys.stdout:
        os.write(sys.stdout.fileno(), f"{line}\n".encode())


def share(option, text):
    """Convert the text of an option, such as 1%, to a share such as 0.01. Raise an error if the text is no share."""
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?) ?%", text)
    if not match or not 0 < float(match[1]) <= 100:
        raise StableError(f"--{option}: expected a share such as 1%, found '{text}'")
    return float(match[1]) / 100


@task
@one_line_errors
def verify(_, raw="raw"):
    """Compare all files of records with their sizes and SHA-256 in run.json. If a file differs, the exit code is 1."""
    verification = verify_records(Path(raw))
    for line in verification.lines:
        print(line)
    if not verification.intact:
        sys.exit(1)


@task(
    help={
        "archive": "hardly compress the summaries, because a compressed archive of all records is then smaller"
    }
)
@one_line_errors
def reduce(_, raw="raw", results="results/runs", to="reduced/raw", archive=False):
    """Copy every record and its summaries to a smaller record, which lacks the single messages."""
    for document in sorted(Path(raw).rglob("rep~*/run.json")):
        run = document.parent.relative_to(raw)
        if ".failed-" not in run.name:
            reduce_record(Path(raw) / run, Path(results) / run, Path(to) / run)
            if archive:
                recompress(Path(to) / run, UNCOMPRESSED)
            print(f"reduced: {run}")


@task(
    help={
        "messages": "path of a file messages.nc",
        "cores": "CPUs that the proxy may use; default: as in the file",
        "workers": "processes that receive messages; default: as in the file",
        "buffer": "receive buffer of a socket in bytes (rb in `ss -uam`); default: as in the file or the record",
    }
)
@one_line_errors
def headroom(_, messages, cores=None, workers=None, buffer=None):
    """Predict the capacity of a proxy, and the times at higher loads, from messages recorded at today's load."""
    ds = open_messages(Path(messages))
    if buffer is None and "receive_buffer_bytes" not in ds.attrs:
        source = Path(ds.attrs["source"])
        if (source / "run.json").is_file():
            found = read_record(source).settings.so_rcvbuf_bytes
            buffer = None if found is None else str(found)
    named = {"cores": cores, "workers": workers, "buffer": buffer}
    server = Server.of(ds, *(text and count(name, text) for name, text in named.items()))
    replay = Replay.on(server.cores, server.workers, str(ds.attrs["kernel"]))
    for line in sentences(predict_headroom(ds, server, replay)):
        print(line)


@task(
    help={
        "sut": "system under test: a name from the key suts in config/config.yaml",
        "cores": "number of CPUs of the SPS",
        "threads": "number of workers of the proxy",
        "runs": "number of runs per load and comparison",
        "settings": "a configuration file with other keys, such as the length of runs",
    }
)
@one_line_errors
def tune(_, testbed="local", sut="kamailio-udp", cores="1", threads="8", runs="3", settings=None):
    """Find good scheduler settings for a proxy: derive the papers' enhanced mode, and compare it with variants."""
    numbers = {"cores": cores, "threads": threads, "runs": runs}
    options = tuning.TuneOptions(
        testbed,
        sut,
        **{name: count(name, text) for name, text in numbers.items()},
        settings=Path(settings) if settings else None,
    )
    tuning.tune(options, say=lambda line: print(line, flush=True))


@task
@one_line_errors
def bundle(_, to="bundle"):
    """Make one archive from which a machine without a network installs sipsched and measures (docs/offline.md)."""
    if subprocess.run(["make", "reports"], check=False).returncode != 0:
        sys.exit(
            "error: making the pages of the recorded campaign failed; the lines above state the reason"
        )
    archive = make_bundle(Path("reports/recorded"), Path(to))
    print(f"{archive.resolve()}: {archive.stat().st_size / 1e6:.0f} MB")


ns = Collection(
    up, down, provision, doctor, modes, check, verify, reduce, headroom, tune, watch_proxy, bundle
)
ns.add_collection(Collection("vm", vm_up, vm_down))
ns.add_collection(Collection("virtual", virtual_up, virtual_down, virtual_check))
