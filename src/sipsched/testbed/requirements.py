"""What a testbed's hosts need: Debian packages, and the sources of the native parts."""

from pathlib import Path

from sipsched.paths import PROJECT_ROOT

EVERY_HOST = ("iproute2", "procps", "util-linux", "zstd")
COMPILER = ("gcc", "libc6-dev", "make")
PACKAGES = {
    "uac": (*EVERY_HOST, *COMPILER, "sip-tester"),
    "sps": (
        *EVERY_HOST,
        *COMPILER,
        *("kamailio", "bpftool", "clang", "libbpf-dev", "libelf-dev", "llvm", "zlib1g-dev"),
    ),
    "uas": (*EVERY_HOST, *COMPILER, "sip-tester"),
}
CONTROLLER_PACKAGES = ("iproute2", "openssh-client", "openssh-server")
GUEST_BUILD_PACKAGES = (
    *("debian-archive-keyring", "e2fsprogs", "lz4", "mmdebstrap", "qemu-system-x86"),
    *("xz-utils", "zstd"),
)
"""For the machine that makes and runs the guest of a testbed of kind `vm`."""
CLUSTER_PACKAGES = ("munge", "slurm-client", "slurmctld", "slurmd")
"""For the machine that is a cluster of one node (`fab cluster.up`)."""
TEST_PACKAGES = (
    *CLUSTER_PACKAGES,
    "chromium",
    "chromium-driver",
    "clang-format",
    "libclang-rt-14-dev",
    "strace",
)
NATIVE_PARTS = {
    "uac": ("generator",),
    "sps": ("scheduler", "dispatcher", "probe"),
    "uas": ("generator",),
}
"""Folders of hardware/ that are built on a host, in this order: the probe takes the framing of the dispatcher."""


def native_sources(part: str) -> list[Path]:
    """List the files from which a host builds a native part."""
    folder = PROJECT_ROOT / "hardware" / part
    return sorted(
        path for path in folder.iterdir() if path.suffix in {".c", ".h"} or path.name == "Makefile"
    )
