"""A test of the offline bundle on a bare Debian system without a network: `make offline`.

The test makes a root file system with only the packages that apt needs, and unpacks the bundle in it. It runs commands
there in a namespace whose only network device is the loopback device:

- A damaged file ends `./run` with one error line that names the file.
- A user without root learns which packages are missing. After root has installed them, the user makes the pages.
- root installs the programs in C, and measures one run of a few seconds on the testbed `local`.

The test needs root, Debian 12, 8 GB of disk, and a network to make the root file system. It holds the lock of the
testbed `local`. The last line is the verdict. The exit code is 1 if a check fails.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from sipsched.errors import SipschedError, StableError
from sipsched.records.run_document import read_run
from sipsched.testbed import debian
from sipsched.testbed.guest_image import SUITE
from sipsched.testbed.inventory import load_testbed
from sipsched.testbed.provision import install_here
from sipsched.testbed.session import open_hosts

USER = 1000
RUN = "raw/local/kamailio-udp/default/cores~1/threads~4/cps~400/rep~1/run.json"
NAMESPACE = """\
set -eu
# The test has its own control groups, so it cannot end processes of the testbed outside.
group=$(awk '$3 == "cgroup2" {print $2; exit}' /proc/mounts)/sipsched-offline
mkdir -p "$group"
# The guardian of the testbed stays in the group until the testbed is removed.
trap 'rmdir "$group" 2> /dev/null || true' EXIT
(
    echo "$(exec sh -c 'echo $PPID')" > "$group/cgroup.procs"
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
)
"""
"""Shell script that runs `chroot` with the arguments "$2" and so on, for the root file system "$1"."""


class Checks:
    """The root file system, and the results of the checks."""

    def __init__(self, root: Path, bundle: str) -> None:
        self.root = root
        self.bundle = bundle
        self.failed = 0

    def run(self, folder: str, *command: str, user: int = 0) -> subprocess.CompletedProcess[str]:
        """Run the program `run` of an unpacked bundle in the root file system, without a network."""
        argv = [f"--userspec={user}:{user}", str(self.root), f"/{folder}/{self.bundle}/run"]
        return subprocess.run(
            ["sh", "-c", NAMESPACE, "sh", str(self.root), *argv, *command],
            check=False,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            env={**os.environ, "HOME": f"/{folder}"},
        )

    def check(
        self, name: str, action: Callable[[], subprocess.CompletedProcess[str]], expect: str = ""
    ) -> None:
        """Run a check, and print its result and duration.

        Parameters
        ----------
        name
            The thing that works if the check passes.
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
    # Without package sources, nothing can come from a network by mistake.
    shutil.rmtree(root / "etc" / "apt" / "sources.list.d", ignore_errors=True)
    (root / "etc" / "apt" / "sources.list").write_text("")
    with (root / "etc" / "passwd").open("a") as users:
        users.write(f"user:x:{USER}:{USER}::/user:/bin/sh\n")


def unpack(archive: Path, folder: Path, user: int) -> None:
    """Unpack the bundle as a user would."""
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
        # One command, because the testbed's links belong to the network namespace of the command that makes them.
        all_of_it = f"fab provision && snakemake {RUN} && fab down"
        checks.check(
            "root builds the programs, measures a real proxy, and removes the testbed",
            lambda: checks.run("root-user", "sh", "-c", all_of_it),
        )
    left = [*Path("/sys/fs/cgroup").rglob("sipsched-offline")]
    if left:
        checks.failed += 1
        print(f"FAILED: processes of the test are left in {left[0]}")
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
    try:
        install_here(["mmdebstrap"])
        if not archive.is_file():
            raise StableError(f"{archive}: no such file; make the bundle by `fab bundle`")
        # Not below /tmp, which can be too small.
        with tempfile.TemporaryDirectory(prefix="sipsched-offline-", dir="/var/tmp") as work:
            Path(work).chmod(0o755)
            failed = whole_test(archive, Path(work))
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
