"""The Debian packages and the C programs that the hosts of a testbed need."""

from pathlib import Path

from sipsched.paths import PROJECT_ROOT

EVERY_HOST = ("iproute2", "procps", "util-linux", "zstd")
COMPILER = ("gcc", "libc6-dev", "make")
PROXY_PACKAGES = ("kamailio",)
"""The SIP proxies that exist as Debian packages. No Debian release contains OpenSIPS."""
SPS_PACKAGES = (
    *EVERY_HOST,
    *COMPILER,
    *PROXY_PACKAGES,
    *("bpftool", "clang", "libbpf-dev", "libelf-dev", "llvm", "zlib1g-dev"),
)
PACKAGES = {
    "uac": (*EVERY_HOST, *COMPILER),
    "sps": SPS_PACKAGES,
    "uas": (*EVERY_HOST, *COMPILER),
    "front": SPS_PACKAGES,
}
CONTROLLER_PACKAGES = ("iproute2", "openssh-client", "openssh-server")
RELEASE_PACKAGES = ("debian-archive-keyring", "mmdebstrap")
"""Debian packages for a host that builds root file systems of other Debian releases."""
GUEST_BUILD_PACKAGES = (
    *RELEASE_PACKAGES,
    *("e2fsprogs", "lz4", "qemu-system-x86", "xz-utils", "zstd"),
)
"""Packages for a machine that builds and runs the virtual machine of a testbed of kind `vm` or `virtual`."""
CLUSTER_PACKAGES = ("munge", "slurm-client", "slurmctld", "slurmd")
"""Debian packages of a Slurm cluster with one node, on which tests run the analysis."""
TEST_PACKAGES = (
    *CLUSTER_PACKAGES,
    "chromium",
    "chromium-driver",
    "clang-format",
    "libclang-rt-14-dev",
    "sip-tester",
    "strace",
)
NATIVE_PARTS = {
    "uac": ("common", "generator"),
    "sps": ("common", "scheduler", "dispatcher", "probe"),
    "uas": ("common", "generator"),
    "front": ("common", "dispatcher"),
}
"""Folders of hardware/ with C programs, which `fab provision` builds on each host in this order.

The folder `common` is necessary on every host, because C files in the other folders include its files.
"""


def native_sources(part: str) -> list[Path]:
    """Return the paths of the source files in a folder of hardware/, such as `probe`."""
    folder = PROJECT_ROOT / "hardware" / part
    return sorted(
        path
        for path in folder.iterdir()
        if path.suffix in {".c", ".h", ".mk"} or path.name == "Makefile"
    )
