"""A Slurm cluster of one node on this machine, for tests of the analysis on a cluster.

The cluster runs munged, slurmctld and slurmd of Debian's packages on its own ports of the loopback interface. Keys,
configuration, state and logs are in one folder, so services of the system are not affected. Daemons and jobs are in
one process-ID namespace and end together. In this namespace, the configuration is in /etc/slurm, where a job's srun
expects the configuration.
"""

import os
import platform
import secrets
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from sipsched.errors import StableError
from sipsched.testbed import places

STATE = Path("/run/sipsched-cluster")
"""Folder of the cluster, outside of `places.RUN_FOLDER`, because every user may open munged's socket."""
SLURM_CONF = STATE / "etc" / "slurm.conf"
"""Value of the environment variable SLURM_CONF, which Slurm's commands read."""
KEEPER = "sipsched-cluster"
"""Name of the keeper process. When the keeper process ends, all other processes of the cluster end, too."""
PATIENCE_S = 10.0
KEY_BYTES = 128

# See slurm.conf(5). By default, Slurm delays a job by 3 s, to schedule several jobs at once.
CONFIGURATION = """\
ClusterName=sipsched
SlurmctldHost={node}(127.0.0.1)
SlurmctldPort=16817
SlurmdPort=16818
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={state}/munge.socket
StateSaveLocation={state}/saved
SlurmdSpoolDir={state}/spool
SlurmctldPidFile={state}/slurmctld.pid
SlurmdPidFile={state}/slurmd.pid
SlurmctldLogFile={state}/slurmctld.log
SlurmdLogFile={state}/slurmd.log
MailProg=/bin/true
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SlurmdParameters=config_overrides
SchedulerParameters=batch_sched_delay=0
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MinJobAge=300
ReturnToService=1
NodeName={node} NodeAddr=127.0.0.1 CPUs={cpus} RealMemory={memory_mib}
PartitionName=analysis Nodes={node} Default=YES State=UP
"""
START = """\
cd "$1" || exit 1
mount --bind etc /etc/slurm || exit 1
munged --foreground --force --key-file="$1/munge.key" --socket="$1/munge.socket" \\
    --pid-file="$1/munged.pid" --seed-file="$1/munge.seed" --log-file="$1/munged.log" &
tries=0
until [ -S munge.socket ]; do
    tries=$((tries + 1))
    [ "$tries" -lt 500 ] || { echo "munged does not start"; exit 1; }
    sleep 0.01
done
slurmctld -D -c -f "$1/etc/slurm.conf" &
slurmd -D -f "$1/etc/slurm.conf" &
wait
"""
"""Script of the keeper process, which starts the three daemons in the folder "$1" and waits until they end."""


def bring_up() -> None:
    """Start the cluster unless it runs, and wait until its node accepts jobs.

    Raises
    ------
    StableError
        Slurm is not installed, or does not start. The error contains the last line of Slurm's log.
    """
    if _keeper() is not None:
        return
    take_down()
    places.claim_here([STATE])
    for name in ("etc", "saved", "spool"):
        (STATE / name).mkdir()
    (STATE / "munge.key").write_bytes(secrets.token_bytes(KEY_BYTES))
    (STATE / "munge.key").chmod(0o600)
    memory_mib = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") >> 20
    SLURM_CONF.write_text(
        CONFIGURATION.format(
            node=node(),
            state=STATE,
            cpus=len(os.sched_getaffinity(0)),
            memory_mib=memory_mib,
        )
    )
    # With --kill-child, all processes of the cluster end when the keeper process ends for any reason.
    apart = ["unshare", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child"]
    with (STATE / "log").open("w") as log:
        subprocess.Popen(
            [*apart, "sh", "-c", START, KEEPER, str(STATE)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd="/",
            start_new_session=True,
        )
    if not _comes_true(lambda: node_state() == "idle"):
        said = (STATE / "log").read_text().strip().splitlines() or ["no output"]
        take_down()
        raise StableError(f"cluster: its node takes no job after {PATIENCE_S:g} s: {said[-1]}")


def take_down() -> None:
    """Stop the cluster and its jobs, and remove the cluster's files. Without a cluster, do nothing.

    Raises
    ------
    StableError
        Processes of the cluster do not end.
    """
    keeper = _keeper()
    if keeper is not None:
        inside = _namespace(keeper / "ns" / "pid_for_children")
        with suppress(ProcessLookupError):
            os.kill(int(keeper.name), signal.SIGKILL)
        if not _comes_true(lambda: not _lives(inside)):
            raise StableError(f"cluster: processes of it do not end after {PATIENCE_S:g} s")
    shutil.rmtree(STATE, ignore_errors=True)


def node() -> str:
    """Return the name of the cluster's node: this machine's name, because Slurm accepts no other name."""
    return platform.node().partition(".")[0]


def node_state() -> str:
    """Return the state of the node, such as `idle` or `down`, or "" if Slurm does not answer."""
    done = subprocess.run(
        ["sinfo", "--noheader", "--format=%T"],
        check=False,
        capture_output=True,
        text=True,
        env=os.environ | {"SLURM_CONF": str(SLURM_CONF)},
    )
    return done.stdout.strip()


def _keeper() -> Path | None:
    """Return the folder of the keeper process in /proc."""
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            with suppress(OSError):
                words = (process / "cmdline").read_bytes().decode(errors="replace").split("\0")
                if words[0] == "unshare" and KEEPER in words:
                    return process
    return None


def _lives(namespace: str) -> bool:
    processes = (path for path in Path("/proc").iterdir() if path.name.isdigit())
    return any(_namespace(process / "ns" / "pid") == namespace for process in processes)


def _namespace(link: Path) -> str:
    with suppress(OSError):
        return str(link.readlink())
    return ""


def _comes_true(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True
