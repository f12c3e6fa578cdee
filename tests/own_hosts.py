"""Three hosts on one kernel, each with its own root file system, host name and links.

UAC and UAS also have their own process tables, and the UAC has its own user and clock.
"""

import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath

from helpers import wait_for

from sipsched.paths import PROJECT_ROOT
from sipsched.testbed.inventory import HostSpec, Testbed, Tuning

NAMES = {"uac": "own-uac", "sps": "own-sps", "uas": "own-uas"}
"""Names of the hosts' network namespaces. A host's link ends on this machine in an interface of this name."""
USER = "caller"
"""The login user of the UAC, who exists only on the UAC, where root cannot log in."""
CLOCK_AHEAD_S = 60
MANAGEMENT = {"uac": "198.18.253", "sps": "198.18.254", "uas": "198.18.252"}
"""First three octets of the addresses of the link to a host's sshd. This machine has the address that ends in .1."""
AGENT_NETS = {"uac": "198.18.11", "uas": "198.18.12"}
SIP_ADDRESS = "198.18.10.1"
UNSHARE = ("unshare", "--mount", "--uts", "--ipc", "--cgroup", "--fork", "--kill-child")
OWN = {
    "uac": ("--pid", "--time", f"--monotonic={CLOCK_AHEAD_S}", f"--boottime={CLOCK_AHEAD_S}"),
    # The SPS has no PID namespace, because such a namespace hides the kernel's thread ids, which the probe needs.
    "sps": (),
    "uas": ("--pid",),
}
"""Further namespaces of each host, as options of unshare."""

# The root file system of a host is an overlay of this machine's root file system, which hides the project, home
# folders, built programs and run folders. `ip netns exec` mounts the /sys of the host's network.
HOST = """\
set -eu
here=$1 name=$2 address=$3 user=$4
shift 4
mount -t tmpfs -o mode=755 tmpfs "$here"
mkdir "$here/upper" "$here/work" "$here/root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$here/upper,workdir=$here/work" "$here/root"
root=$here/root
mount -t proc proc "$root/proc"
mount --rbind /sys "$root/sys"
mount -t tracefs tracefs "$root/sys/kernel/tracing"
mount --rbind /dev "$root/dev"
for folder in /run /tmp /home /var/lib/sipsched "$@"; do
    [ ! -d "$root$folder" ] || mount -t tmpfs -o mode=755 tmpfs "$root$folder"
done
chmod 1777 "$root/tmp"
mkdir "$root/run/sshd"
hostname "$name"
[ "$user" = root ] || chroot "$root" useradd --create-home --shell /bin/sh --password '*' "$user"
rm -f "$root"/etc/ssh/ssh_host_*
install -m 600 "$name" "$root/etc/ssh/host_key"
install -m 644 login.pub "$root/etc/ssh/authorized"
cat > "$root/etc/ssh/own_config" <<EOF
ListenAddress $address:22
HostKey /etc/ssh/host_key
AuthorizedKeysFile /etc/ssh/authorized
AllowUsers $user
PasswordAuthentication no
UsePAM no
UseDNS no
MaxSessions 64
ClientAliveInterval 30
ClientAliveCountMax 2
Subsystem sftp internal-sftp
EOF
exec chroot "$root" /usr/sbin/sshd -D -e -f /etc/ssh/own_config
"""


@contextmanager
def own_hosts(folder: Path) -> Iterator[Testbed]:
    """Start three hosts and their links, and stop them with all of their processes after the block.

    Parameters
    ----------
    folder
        Folder for keys and logs, which the hosts cannot see.
    """
    processes = []
    try:
        _make_keys(folder)
        _join()
        processes = [_start(role, folder) for role in NAMES]
        for role in NAMES:
            wait_for(lambda role=role: _answers(f"{MANAGEMENT[role]}.2"), 20)
        yield _testbed(folder)
    finally:
        for process in processes:
            process.kill()
            process.wait()
        for name in NAMES.values():
            left = subprocess.run(["ip", "netns", "pids", name], check=False, capture_output=True)
            for pid in left.stdout.split():
                # The process may end before the signal arrives. The hosts must vanish nevertheless, because their
                # addresses would hide those of other testbeds.
                with suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
            for what in ("netns", "link"):
                subprocess.run(["ip", what, "delete", name], check=False, capture_output=True)


def _make_keys(folder: Path) -> None:
    known = []
    for name in ("login", *NAMES.values()):
        make = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", str(folder / name)]
        subprocess.run(make, check=True)
    for role, name in NAMES.items():
        known.append(f"{MANAGEMENT[role]}.2 {(folder / f'{name}.pub').read_text()}")
    (folder / "known_hosts").write_text("".join(known))


def _join() -> None:
    """Create the hosts' namespaces, a link from this machine to each host, and links from UAC and UAS to the SPS."""
    for role, name in NAMES.items():
        _ip(f"netns add {name}")
        _ip(f"link add {name} type veth peer name ssh0 netns {name}")
        _ip(f"address add {MANAGEMENT[role]}.1/30 dev {name}")
        _ip(f"link set {name} up")
        _ip(f"address add {MANAGEMENT[role]}.2/30 dev ssh0", role)
        for link in ("lo", "ssh0"):
            _ip(f"link set {link} up", role)
    _ip(f"address add {SIP_ADDRESS}/32 dev lo", "sps")
    for role, net in AGENT_NETS.items():
        _ip(f"link add {role}0 netns {NAMES['sps']} type veth peer name sip0 netns {NAMES[role]}")
        _ip(f"address add {net}.1/30 dev {role}0", "sps")
        _ip(f"link set {role}0 up", "sps")
        _ip(f"address add {net}.2/30 dev sip0", role)
        _ip("link set sip0 up", role)
        _ip(f"route add {SIP_ADDRESS}/32 via {net}.1", role)


def _ip(arguments: str, role: str | None = None) -> None:
    inside = ["-n", NAMES[role]] if role else []
    subprocess.run(["ip", *inside, *arguments.split()], check=True)


def _start(role: str, folder: Path) -> subprocess.Popen[bytes]:
    place = folder / role
    place.mkdir()
    hidden = [str(PROJECT_ROOT), str(Path.home()), str(folder)]
    user = USER if role == "uac" else "root"
    command = ["sh", "-c", HOST, "sh", str(place), NAMES[role], f"{MANAGEMENT[role]}.2", user]
    with (folder / f"{role}.log").open("w") as log:
        return subprocess.Popen(
            ["ip", "netns", "exec", NAMES[role], *UNSHARE, *OWN[role], *command, *hidden],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )


def _answers(address: str) -> bool:
    with suppress(OSError), socket.create_connection((address, 22), timeout=1):
        return True
    return False


def _testbed(folder: Path) -> Testbed:
    def host(role: str, sip_address: str, cpu: int) -> HostSpec:
        return HostSpec(
            role=role,
            address=f"{MANAGEMENT[role]}.2",
            user=USER if role == "uac" else "root",
            identity_file=str(folder / "login"),
            known_hosts=str(folder / "known_hosts"),
            sip_address=sip_address,
            sip_port=5060,
            cpus=(cpu,),
            helper_cpus=(0,),
        )

    return Testbed(
        name="own-hosts",
        kind="ssh",
        fidelity="Real proxy, kernel and timings; three hosts on one machine",
        workdir=PurePosixPath(f"/home/{USER}/sipsched"),
        uac=host("uac", f"{AGENT_NETS['uac']}.2", 0),
        sps=host("sps", SIP_ADDRESS, 1),
        uas=host("uas", f"{AGENT_NETS['uas']}.2", 0),
        tuning=Tuning(quiet=("autogroup",), receive_interfaces=("uac0", "uas0"), receive_cpus=(1,)),
    )
