"""A test of the offline bundle on a bare Debian system without a network: `make offline`.

The test makes a root file system with only the packages that apt needs, and unpacks the bundle in it. The test runs
commands there in a namespace whose only network device is the loopback device:

- A damaged file ends `./run` with one error line that names the file.
- A user without root learns which packages are missing. After root has installed them, the user makes the pages.
- root installs the programs in C, and measures one run of a few seconds on the testbed `local`.

The test needs root, Debian 12, 8 GB of disk, and a network to make the root file system. The test holds the lock of the
testbed `local`. At its end, the test stops its processes and removes its control group and its files. After a SIGKILL,
the next test does so. The last line is the verdict. The exit code is 1 if a check fails.
"""

import argparse
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from sipsched import scripting
from sipsched.errors import SipschedError, StableError
from sipsched.records.run_document import read_run
from sipsched.testbed import debian, groups
from sipsched.testbed.guest_image import SUITE
from sipsched.testbed.inventory import load_testbed
from sipsched.testbed.lock import locked_here
from sipsched.testbed.provision import install_here
from sipsched.testbed.session import open_hosts

GROUP = "sipsched-offline"
"""Name of the control group of all processes of the test."""
WORK = Path("/var/lib/sipsched-offline")
"""Folder of the root file system. The folder is not below /tmp, because /tmp can be too small."""
LOCK = Path("/run/sipsched-offline.lock")
USER = 1000
RUN = "raw/local/kamailio-udp/default/cores~1/threads~4/cps~400/rep~1/run.json"
NAMESPACE = """\
set -eu
# The test has its own control group, so it cannot end processes of the testbed outside.
group=$(awk '$3 == "cgroup2" {print $2; exit}' /proc/mounts)/$1
shift
mkdir -p "$group"
echo $$ > "$group/cgroup.procs"
exec unshare --net --mount --cgroup sh -euc '
    ip link set lo up
    root=$1
    shift
    # ip needs a root that is a mount point.
    mount --bind "$root" "$root"
    mount -t proc proc "$root/proc"
    mount -t sysfs sysfs "$root/sys"
    mount --rbind /dev "$root/dev"
    mount -t tmpfs none "$root/sys/fs/cgroup"
    mkdir "$root/sys/fs/cgroup/unified"
    mount -t cgroup2 none "$root/sys/fs/cgroup/unified"
    mount -t debugfs none "$root/sys/kernel/debug"
    exec env -i HOME="$HOME" TERM=dumb PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \\
        chroot "$@"
' sh "$@"
"""
"""Shell script that runs `chroot` in the group "$1", for the root file system "$2".

The arguments of `chroot` begin at "$3".
"""


def stop_processes() -> None:
    """Stop all processes in the control group of the test, and remove the group."""
    command = ["sh", "-c", groups.END, "sh", GROUP, "", "", "0"]
    ended = subprocess.run(command, check=False, capture_output=True, text=True)
    if ended.returncode != 0:
        raise StableError(ended.stderr.strip())


@contextmanager
def clean_work() -> Iterator[Path]:
    """Yield an empty folder. Stop the test's processes and remove its files before and after the `with` block."""
    stop_processes()
    shutil.rmtree(WORK, ignore_errors=True)
    WORK.mkdir(mode=0o755)
    try:
        yield WORK
    finally:
        stop_processes()
        shutil.rmtree(WORK)


class Checks:
    """The checks in a root file system, and their results."""

    def __init__(self, root: Path, bundle: str) -> None:
        self.root = root
        self.bundle = bundle
        self.failed = 0

    def run(self, folder: str, *command: str, user: int = 0) -> subprocess.CompletedProcess[str]:
        """Run the program `run` of an unpacked bundle in the root file system, without a network."""
        argv = [f"--userspec={user}:{user}", str(self.root), f"/{folder}/{self.bundle}/run"]
        return subprocess.run(
            ["sh", "-c", NAMESPACE, "sh", GROUP, str(self.root), *argv, *command],
            check=False,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            env={**os.environ, "HOME": f"/{folder}"},
        )

    def check(
        self, name: str, action: Callable[[], subprocess.CompletedProcess[str]], expect: str = ""
    ) -> None:
        """Run a command as one check of the bundle, and print its result and duration.

        Parameters
        ----------
        name
            Words for the function of the bundle that the command checks.
        action
            Function that runs a command.
        expect
            Text of the error with which the command must end; empty if the command must succeed.
        """
        began = time.monotonic()
        done = action()
        lines = done.stderr.strip().splitlines()
        errors = [line for line in lines if line.startswith("error: ")]
        passed = done.returncode == int(bool(expect)) and (
            not expect or (len(errors) == 1 and expect in errors[0])
        )
        took = time.monotonic() - began
        print(f"{'passed' if passed else 'FAILED'}: {name} ({took:.0f} s)", flush=True)
        if not passed:
            self.failed += 1
            print(
                f"exit code {done.returncode}", done.stdout[-3000:], done.stderr[-3000:], sep="\n"
            )


def bare_system(root: Path) -> None:
    """Make a root file system with Debian's essential packages and apt."""
    targets = subprocess.run(
        ["apt-get", "indextargets"], check=True, capture_output=True, text=True
    )
    sources = root.with_name("sources.list")
    sources.write_text("\n".join(debian.sources(targets.stdout, SUITE)) + "\n")
    made = subprocess.run(
        ["mmdebstrap", "--quiet", "--variant=apt", SUITE, str(root), str(sources)],
        check=False,
        capture_output=True,
        text=True,
    )
    if made.returncode != 0:
        raise StableError(f"mmdebstrap: {made.stderr.strip().splitlines()[-1]}")
    # Remove all package sources, so that no package can come from a network by mistake.
    shutil.rmtree(root / "etc" / "apt" / "sources.list.d", ignore_errors=True)
    (root / "etc" / "apt" / "sources.list").write_text("")
    with (root / "etc" / "passwd").open("a") as users:
        users.write(f"user:x:{USER}:{USER}::/user:/bin/sh\n")


def unpack(archive: Path, folder: Path, user: int) -> None:
    """Unpack the bundle into a folder as a user does."""
    folder.mkdir()
    shutil.chown(folder, user, user)
    command = ["tar", "--extract", "--no-same-owner", "--file", "-", "--directory", str(folder)]
    with archive.open("rb") as data:
        subprocess.run(command, check=True, stdin=data, user=user, group=user)


def whole_test(archive: Path, work: Path) -> int:
    """Run all checks, and return the number of failed checks."""
    root = work / "root"
    bare_system(root)
    checks = Checks(root, archive.stem)
    unpack(archive, root / "user", USER)
    unpack(archive, root / "root-user", 0)
    of_root = root / "root-user" / archive.stem
    name = min(path.name for path in (of_root / "packages").glob("*.deb"))
    damaged, kept = of_root / "packages" / name, work / name
    shutil.copy(damaged, kept)
    damaged.write_bytes(kept.read_bytes()[:-1] + b"?")
    checks.check("a damaged file is named", lambda: checks.run("root-user", "true"), name)
    damaged.unlink()
    checks.check("a missing file is named", lambda: checks.run("root-user", "true"), name)
    shutil.copy(kept, damaged)
    pages = ("make", "reports")
    checks.check(
        "missing packages are named without root",
        lambda: checks.run("user", *pages, user=USER),
        "git make python3 gcc",
    )
    checks.check("root installs the packages", lambda: checks.run("user", "packages"))
    checks.check("a user makes the pages", lambda: checks.run("user", *pages, user=USER))
    made = of_root.parents[1] / "user" / archive.stem / "sipsched" / "reports" / "recorded"
    if not (made / "index.html").exists():
        checks.failed += 1
        print(f"FAILED: {made}/index.html does not exist")
    with open_hosts(load_testbed("local"), "the test of the offline bundle"):
        # Use one command, because the testbed's links belong to the network namespace of the command that makes them.
        all_of_it = f"fab provision && snakemake {RUN} && fab down"
        checks.check(
            "root builds the programs, measures a real proxy, and removes the testbed",
            lambda: checks.run("root-user", "sh", "-c", all_of_it),
        )
    # `fab down` has ended the guardian of the testbed, which was the last process.
    for events in Path("/sys/fs/cgroup").rglob(f"{GROUP}/cgroup.events"):
        if "populated 1" in events.read_text():
            checks.failed += 1
            print(f"FAILED: processes of the test are left in {events.parent}")
    record = of_root / "sipsched" / Path(RUN).parent
    if record.exists():
        document = read_run(record)
        print(f"the run: verdict {document.verdict.grade}, {document.run.cps} calls per second")
    return checks.failed


def main() -> int:
    """Test a bundle, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("archive", type=Path, help="the archive that `fab bundle` made")
    archive = parser.parse_args().archive
    began = time.monotonic()
    scripting.end_in_order(signal.SIGHUP, signal.SIGINT, signal.SIGTERM)
    try:
        install_here(["mmdebstrap"])
        if not archive.is_file():
            raise StableError(f"{archive}: no such file; make the bundle by `fab bundle`")
        with locked_here(LOCK, "the test of the bundle", "make offline", 0), clean_work() as work:
            failed = whole_test(archive, work)
    except KeyboardInterrupt:
        print("interrupted: the processes and files of the test are removed", file=sys.stderr)
        return 1
    except SipschedError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    took = time.monotonic() - began
    size = archive.stat().st_size / 1e6
    result = f"{failed} CHECKS FAILED" if failed else "the bundle works without a network"
    print(f"verdict: {result}; {size:.0f} MB, tested in {took / 60:.1f} minutes")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
