"""Functions that install Debian packages and build C programs on the hosts of a testbed."""

import hashlib
import subprocess
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import PurePosixPath

from sipsched.errors import StableError
from sipsched.testbed import debian, local, places
from sipsched.testbed.host import Host
from sipsched.testbed.inventory import Testbed, native_folder, release_root
from sipsched.testbed.requirements import (
    CONTROLLER_PACKAGES,
    GUEST_BUILD_PACKAGES,
    NATIVE_PARTS,
    PACKAGES,
    PROXY_PACKAGES,
    RELEASE_PACKAGES,
    TEST_PACKAGES,
    native_sources,
)
from sipsched.testbed.session import Hosts, open_hosts

INSTALL_TIMEOUT_S = 900
BUILD_TIMEOUT_S = 300
# Debian starts a service when it installs the service's package. The script prevents the start for two reasons:
# the SIP port must stay free for the measured proxy, and the owner of the machine has not asked for an sshd.
INSTALL_SCRIPT = """\
set -eu
missing=
for package; do
    state=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
    [ "$state" = installed ] || missing="$missing $package"
done
[ -n "$missing" ] || exit 0
[ "$(id -u)" = 0 ] || { echo "needs root to install:$missing" >&2; exit 1; }
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
    trap 'rm -f "$policy"' EXIT
    printf '#!/bin/sh\\nexit 101\\n' > "$policy"
    chmod 755 "$policy"
fi
export DEBIAN_FRONTEND=noninteractive
apt-get update -q
apt-get install -q -y --no-install-recommends $missing
if command -v systemctl > /dev/null; then
    for package in $missing; do
        case "$package" in
            kamailio) systemctl disable kamailio ;;
            openssh-server) systemctl disable ssh ;;
            munge | slurmctld | slurmd) systemctl disable "$package" ;;
        esac
    done
fi
echo "installed:$missing"
"""


BUILD_ROOT = """\
set -eu
root=$1 release=$2 sources=$3
shift 3
rm -rf --one-file-system "$root.partial"
mkdir -p "$root.partial"
chmod 755 "$root.partial"
printf '%s\\n' "$sources" | unshare --mount mmdebstrap "$@" "$release" "$root.partial" - >&2
chroot "$root.partial" dpkg-query -W -f '${Package} ${Version}\\n' > "$root.partial/packages.txt"
mv "$root.partial" "$root"
"""
"""Shell script that builds the root file system of another Debian release in a folder on a host.

The arguments of the script are the folder, the release, the package sources, and the options of mmdebstrap.
"""


def provision(
    testbed: Testbed,
    *,
    tests: bool = False,
    release: str = "",
    say: Callable[[str], None] = print,
) -> None:
    """Install missing packages on the hosts of a testbed, and build the C programs of sipsched on these hosts.

    Parameters
    ----------
    testbed
        A testbed of any kind. If the testbed's hosts are namespaces of this machine, the packages are installed on this
        machine.
    tests
        Whether to install the packages for tests on this machine, too.
    release
        Another Debian release, such as `trixie`, whose proxy is installed on the hosts of the proxy and its front end,
        in a separate root file system.
        An empty text means no other release.
    say
        Function that shows a line after each step.

    Raises
    ------
    StableError
        A package is missing and the user is not root, a package cannot be installed, or a build fails.
    """
    if release and testbed.kind in ("vm", "virtual"):
        raise StableError(
            f"testbed {testbed.name}: release {release} cannot be installed, because the guest has no network; "
            f"use a testbed of kind local or ssh"
        )
    if testbed.is_on_this_machine:
        prepare_machine(testbed, tests=tests, say=say)
    elif tests:
        install_here(TEST_PACKAGES, say)
    with open_hosts(testbed, "fab provision") as hosts:
        if testbed.kind != "local":
            for host in hosts.all:
                _install_there(host, say)
        _build_native(hosts, say)
        if release:
            builds: list[tuple[Callable[..., str], str]] = [
                (partial(_shell_there, host), str(host.spec))
                for host in (hosts.sps, hosts.front)
                if host
            ]
            if testbed.kind == "local":
                # The namespaces of a local testbed cannot reach the Internet, so this machine downloads the packages.
                builds = [(_shell_here, "this machine")]
            for shell, where in builds:
                for line in _build_root(shell, where, hosts.sps.base, release):
                    say(line)


def prepare_machine(
    testbed: Testbed, *, tests: bool = False, say: Callable[[str], None] = print
) -> None:
    """Install the Debian packages that this machine needs to create a testbed (hosts for measurements)."""
    roles = ("uac", "uas", *(("sps",) if testbed.kind == "local" else ()))
    packages = {name for role in roles for name in PACKAGES[role]} | set(CONTROLLER_PACKAGES)
    packages |= set(GUEST_BUILD_PACKAGES if testbed.kind in ("vm", "virtual") else ())
    install_here(packages | set(TEST_PACKAGES if tests else ()), say)


def install_here(packages: Iterable[str], say: Callable[[str], None] = print) -> None:
    """Install missing Debian packages on this machine, without starting or enabling their services.

    Raises
    ------
    StableError
        The system is not Linux, the user is not root, or a package cannot be installed.
    """
    local.check_platform()
    _say_installed("this machine", _shell_here(INSTALL_SCRIPT, *sorted(packages)), say)


def _shell_there(host: Host, script: str, *arguments: object) -> str:
    return host.shell(script, *arguments, timeout_s=INSTALL_TIMEOUT_S).stdout


def _install_there(host: Host, say: Callable[[str], None]) -> None:
    packages = PACKAGES[host.spec.role]
    _say_installed(str(host.spec), _shell_there(host, INSTALL_SCRIPT, *packages), say)


def _build_root(
    shell: Callable[..., str], where: str, base: PurePosixPath, release: str
) -> Iterator[str]:
    """Build a root file system of a Debian release with SIP proxies, and yield a line of text per step.

    Parameters
    ----------
    shell
        Function that runs a shell script with arguments on the host, and returns its output.
    where, base
        Name of the host for messages, and the folder on this host that contains the C programs of sipsched.
    """
    root = release_root(base, release)
    if shell('[ ! -d "$1" ] || echo exists', root):
        yield f"{where}: the root file system {root} exists; remove it to build it again"
        return
    shell(INSTALL_SCRIPT, *RELEASE_PACKAGES)
    lines = debian.sources(shell("apt-get indextargets"), release)
    if not lines:
        raise StableError(f"{where}: apt knows no Debian package source; run there: apt-get update")
    options = debian.mmdebstrap_options(shell("apt-config dump"))
    yield f"{where}: building the root file system {root} (once; about a minute)"
    include = f"--include={','.join(PROXY_PACKAGES)}"
    shell(BUILD_ROOT, root, release, "\n".join(lines), include, *options)


def _shell_here(script: str, *arguments: object) -> str:
    """Run a shell script on this machine, outside of the namespaces of testbeds, and return the script's output.

    Raises
    ------
    StableError
        The script failed. The message contains the last line of the output.
    """
    done = subprocess.run(
        ["sh", "-c", script, "sh", *map(str, arguments)],
        check=False,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
    )
    if done.returncode != 0:
        said = (done.stderr.strip() or done.stdout.strip() or "no output").splitlines()[-1]
        raise StableError(f"this machine: installing Debian packages failed: {said}")
    return done.stdout


def _say_installed(where: str, output: str, say: Callable[[str], None]) -> None:
    for line in output.splitlines():
        if line.startswith("installed:"):
            say(f"{where}: {line}")


def _build_native(hosts: Hosts, say: Callable[[str], None]) -> None:
    """Build the C programs that each host needs, such as the measuring probe on the proxy's host."""
    wanted = [(host, part) for host in hosts.all for part in NATIVE_PARTS[host.spec.role]]
    for host, part in wanted:
        folder = native_folder(host.base, part)
        # If a program was changed after the build, remove all programs, because make would keep a program that is newer
        # than its source.
        if host.shell(places.CHECK_BUILD, folder).stdout:
            host.run(["rm", "-rf", str(folder)])
        host.run(["mkdir", "-p", str(folder)])
        there = host.shell('sha256sum "$1"/* 2>/dev/null', folder, check=False).stdout
        for source in native_sources(part):
            digest = hashlib.sha256(source.read_bytes()).hexdigest()
            # Copy only changed sources, because make rebuilds every program whose source has a newer date.
            if f"{digest}  {folder / source.name}\n" not in there:
                host.put_file(source, folder / source.name)
        # Without the option --file, make would prefer a file with the name GNUmakefile.
        make = ["make", "--file=Makefile", "--silent", "--directory", str(folder)]
        host.run(make, timeout_s=BUILD_TIMEOUT_S)
        host.shell(places.RECORD_BUILD, folder)
        say(f"{host.spec}: {part} is built in {folder}")
