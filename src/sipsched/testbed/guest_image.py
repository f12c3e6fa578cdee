"""The disk image of a testbed's virtual machine: a kernel, a root file system, and the programs of sipsched."""

import fcntl
import hashlib
import json
import os
import re
import shutil
import struct
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sipsched.errors import StableError
from sipsched.paths import PROJECT_ROOT
from sipsched.testbed import debian, places
from sipsched.testbed.inventory import native_folder
from sipsched.testbed.requirements import NATIVE_PARTS, PACKAGES, native_sources

IMAGES = Path(places.DATA_FOLDER / "vm")
RECIPE_VERSION = 3
"""Version of the steps that build a disk image. After a change of the version, every image is built again."""
SUITE = "bookworm"
KERNEL_SUITES = {"6.12": "trixie", "6.1": "bookworm", "5.10": "bullseye"}
KERNEL_PACKAGE = "linux-image-cloud-amd64"
"""Debian kernel package with built-in disk drivers, so that the guest boots without an initial RAM disk."""
PARTS = tuple(dict.fromkeys((*NATIVE_PARTS["sps"], *NATIVE_PARTS["uac"])))
"""Folders of C programs for the UAC, the proxy and the UAS, because some guests contain all three hosts."""
GUEST_PACKAGES = ("kmod", "openssh-server")
INIT = PROJECT_ROOT / "hardware" / "guest" / "init"
SPARE_MIB = 1024
"""Free disk space in MiB in the image, for the files that measurement runs write."""
KEEP_IMAGES = 3
BUILD_LOG = "build.log"

# SEE Documentation/arch/x86/boot.rst for the header of a bzImage.
SETUP_SECTORS = 0x1F1
MAGIC = 0x202
VERSION_STRING = 0x20E
PAYLOAD = 0x248
DECOMPRESSORS: Mapping[bytes, tuple[str, ...]] = {
    b"\xfd7zXZ\x00": ("xz", "-dc", "--single-stream"),
    b"\x28\xb5\x2f\xfd": ("zstd", "-dc"),
    b"\x1f\x8b": ("gzip", "-dc"),
    b"\x02\x21\x4c\x18": ("lz4", "-dc"),
}


@dataclass(frozen=True)
class GuestImage:
    """The disk image of a guest. When a guest ends, all changes to its disk are lost.

    Attributes
    ----------
    folder
        Folder that contains `vmlinuz`, `root.ext4`, and `packages.txt`, which lists every package with its version.
    """

    folder: Path

    @property
    def kernel(self) -> Path:
        """The path of the kernel file in the folder of the disk image."""
        return self.folder / "vmlinuz"

    @property
    def root(self) -> Path:
        """The path of the root file system in the folder of the disk image."""
        return self.folder / "root.ext4"


def ensure_image(
    kernel: str,
    say: Callable[[str], None] = print,
    folder: Path = IMAGES,
    copies: Sequence[str] = (),
) -> GuestImage:
    """Return the guest's disk image for a kernel, and build the image if necessary.

    Parameters
    ----------
    kernel
        `6.12`, `6.1`, `5.10`, or the path of a bzImage file.
    say
        Function that shows a line before each long step.
    folder
        Folder that contains all images.
    copies
        Absolute paths of files and folders of this machine that the image also contains, at the same paths.

    Raises
    ------
    StableError
        The kernel or a path in `copies` does not exist, or the build failed. The message then contains the last line of
        the log, and the log's path.
    """
    name = image_name(kernel, copies)
    image = GuestImage(folder / name)
    places.claim_here([folder])
    if image.folder.is_dir():
        return image
    with _build_lock(folder):
        if not image.folder.is_dir():
            say(f"building the guest image {image.folder} (once; about two minutes)")
            _build(kernel, copies, image, folder)
            _forget_old(image, folder)
    return image


def image_name(kernel: str, copies: Sequence[str] = ()) -> str:
    """Return the name of a disk image: the kernel's release, and a hash of all files that sipsched adds to Debian.

    New versions of Debian's packages do not change the name, so an image keeps its package versions until somebody
    removes the image.
    """
    if kernel in KERNEL_SUITES:
        label, identity = kernel, f"{KERNEL_SUITES[kernel]} {KERNEL_PACKAGE}"
    else:
        path = Path(kernel)
        if not path.is_file():
            known = ", ".join(KERNEL_SUITES)
            raise StableError(f"guest kernel '{kernel}': no such file; known kernels: {known}")
        content = path.read_bytes()
        label, identity = kernel_release(content, kernel), hashlib.sha256(content).hexdigest()
    parts = {
        "recipe": RECIPE_VERSION,
        "kernel": identity,
        "suite": SUITE,
        "packages": _packages(),
        "files": [
            (path.name, hashlib.sha256(path.read_bytes()).hexdigest())
            for path in (INIT, *(file for part in PARTS for file in native_sources(part)))
        ],
    }
    if copies:
        parts["copies"] = [
            (str(path), path.stat().st_mode, hashlib.sha256(path.read_bytes()).hexdigest())
            for path in _copied_files(copies)
        ]
    digest = hashlib.sha256(json.dumps(parts).encode()).hexdigest()
    return f"{label}-{digest[:12]}"


def _copied_files(copies: Sequence[str]) -> list[Path]:
    """Return all files of this machine that the image also contains."""
    files: list[Path] = []
    for copied in map(Path, copies):
        inside = [copied] if copied.is_file() else copied.rglob("*")
        found = sorted(path for path in inside if path.is_file())
        if not found:
            raise StableError(
                f"guest: {copied} does not exist on this machine or has no file; the testbed's file names it under "
                f"virtual.copies"
            )
        files += found
    return files


def kernel_release(content: bytes, name: str) -> str:
    """Return the release of the kernel in a bzImage file, such as `6.1.0-18-cloud-amd64`, as `uname -r` prints it.

    Raises
    ------
    StableError
        The content is not a bzImage.
    """
    if content[MAGIC : MAGIC + 4] != b"HdrS":
        raise StableError(f"guest kernel {name}: not a bzImage (no boot header at byte {MAGIC})")
    (offset,) = struct.unpack_from("<H", content, VERSION_STRING)
    start = offset + 0x200
    return content[start : content.index(b"\0", start)].split()[0].decode("ascii", "replace")


def unpack_kernel(content: bytes) -> bytes | None:
    """Return the decompressed kernel (vmlinux) from a bzImage file, or None if the compression is unknown."""
    start, length = struct.unpack_from("<II", content, PAYLOAD)
    start += (content[SETUP_SECTORS] + 1) * 512
    payload = content[start : start + length]
    for magic, argv in DECOMPRESSORS.items():
        if payload.startswith(magic):
            # After the compressed data, the payload contains its length. Some programs report the length as an error.
            # So ignore the exit code of the program, and check the output of the program instead.
            done = subprocess.run(argv, input=payload, capture_output=True, check=False)
            return done.stdout if done.stdout.startswith(b"\x7fELF") else None
    return None


def _packages() -> list[str]:
    return sorted({*PACKAGES["sps"], *GUEST_PACKAGES})


@contextmanager
def _build_lock(folder: Path) -> Iterator[None]:
    with (folder / "build.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _build(kernel: str, copies: Sequence[str], image: GuestImage, folder: Path) -> None:
    """Build the guest's disk image in a temporary folder, and rename the folder when the image is complete."""
    partial = image.folder.with_name(f"{image.folder.name}.partial")
    _discard(partial)
    partial.mkdir()
    builder = _Builder(partial, folder / BUILD_LOG)
    try:
        builder.build(kernel, copies)
        partial.rename(image.folder)
    finally:
        _discard(partial)


def _discard(partial: Path) -> None:
    """Remove the folder of an incomplete image build, unless a file system is mounted in the folder.

    Raises
    ------
    StableError
        Something is mounted in the folder.
    """
    mounts = Path("/proc/self/mountinfo").read_text().splitlines()
    inside = [place for place in (line.split()[4] for line in mounts) if f"{partial}/" in place]
    if inside:
        raise StableError(
            f"image build failed: {inside[0]} is still mounted by a build that still runs or was killed; "
            f"stop this build or unmount the folder, then try again"
        )
    shutil.rmtree(partial, ignore_errors=True)


def _forget_old(image: GuestImage, folder: Path) -> None:
    label = image.folder.name.rpartition("-")[0]
    others = [
        path
        for path in folder.glob(f"{label}-*")
        if path != image.folder
        and path.name.rpartition("-")[0] == label
        and path.suffix != ".partial"
    ]
    others.sort(key=lambda path: path.stat().st_mtime)
    for path in others[: max(0, len(others) - KEEP_IMAGES + 1)]:
        shutil.rmtree(path)


class _Builder:
    """The steps that build one disk image for a guest, with a kernel and a root file system from Debian packages."""

    def __init__(self, partial: Path, log: Path) -> None:
        self.image = GuestImage(partial)
        self.scratch = partial / "scratch"
        self.root = self.scratch / "root"
        self.log = log
        self.scratch.mkdir()
        self.log.write_text("")

    def build(self, kernel: str, copies: Sequence[str]) -> None:
        if kernel in KERNEL_SUITES:
            self._download_kernel(KERNEL_SUITES[kernel])
        else:
            shutil.copyfile(kernel, self.image.kernel)
        self._install_root()
        content = self.image.kernel.read_bytes()
        self._add_modules(kernel_release(content, kernel))
        for copied in copies:
            inside = self.root / copied.lstrip("/")
            if not inside.parent.resolve().is_relative_to(self.root.resolve()):
                raise StableError(
                    f"image build failed: a link in the guest's file system leads {copied} out of the guest"
                )
            self._run(["mkdir", "-p", str(inside.parent)])
            # A copied link would lead to a place that the guest does not have.
            copy = [
                "cp",
                "--recursive",
                "--dereference",
                "--preserve=mode",
                "--no-target-directory",
            ]
            self._run([*copy, copied, str(inside)])
        self._build_native(content)
        self._write_packages()
        self._make_file_system()
        shutil.rmtree(self.scratch)

    def _download_kernel(self, suite: str) -> None:
        """Download and unpack a Debian kernel package, without changing the package lists of this machine."""
        apt = self.scratch / "apt"
        for name in ("lists/partial", "cache/archives/partial"):
            (apt / name).mkdir(parents=True)
        (apt / "status").touch()
        (apt / "sources.list").write_text(self._sources(suite))
        (apt / "apt.conf").write_text(
            f'Dir::State "{apt}";\nDir::State::status "{apt}/status";\nDir::Cache "{apt}/cache";\n'
            f'Dir::Etc::sourcelist "{apt}/sources.list";\nDir::Etc::sourceparts "-";\n'
            'Acquire::Languages "none";\nAPT::Sandbox::User "root";\n'
        )
        environment = {"APT_CONFIG": str(apt / "apt.conf")}
        self._run(["apt-get", "-q", "update"], environment=environment)
        depends = self._run(["apt-cache", "depends", KERNEL_PACKAGE], environment=environment)
        names = re.findall(r"Depends: (linux-image-\S+)", depends)
        if not names:
            raise StableError(
                f"image build failed: {KERNEL_PACKAGE} of {suite} names no kernel package; "
                f"its log is {self.log}"
            )
        self._run(["apt-get", "-q", "download", names[0]], cwd=apt, environment=environment)
        (package,) = apt.glob("*.deb")
        unpacked = self.scratch / "kernel"
        self._run(["dpkg-deb", "-x", str(package), str(unpacked)])
        (vmlinuz,) = (unpacked / "boot").glob("vmlinuz-*")
        shutil.move(vmlinuz, self.image.kernel)

    def _install_root(self) -> None:
        sources = self.scratch / "sources.list"
        sources.write_text(self._sources(SUITE))
        self._run(
            [
                # mmdebstrap mounts /proc, /sys and /dev. In a separate mount namespace, the mounts vanish when
                # mmdebstrap ends.
                *("unshare", "--mount"),
                "mmdebstrap",
                f"--include={','.join(_packages())}",
                *debian.mmdebstrap_options(self._run(["apt-config", "dump"])),
                *(SUITE, str(self.root), str(sources)),
            ]
        )
        # The guest has no network, so it needs no package sources.
        (self.root / "etc/apt/sources.list").unlink(missing_ok=True)
        (self.root / "etc/apt/apt.conf.d/99mmdebstrap").unlink(missing_ok=True)
        shutil.copy(INIT, self.root / "sbin/sipsched-init")
        (self.root / "sbin/sipsched-init").chmod(0o755)

    def _sources(self, suite: str) -> str:
        lines = debian.sources(self._run(["apt-get", "indextargets"]), suite)
        if not lines:
            raise StableError(
                "image build failed: apt on this machine knows no Debian package source; "
                "run: apt-get update"
            )
        return "".join(f"{line}\n" for line in lines)

    def _add_modules(self, release: str) -> None:
        target = self.root / "usr/lib/modules"
        # The kernel packages of Debian 13 have their modules below /usr.
        for modules in ("lib/modules", "usr/lib/modules"):
            if (self.scratch / "kernel" / modules).is_dir():
                target.mkdir(exist_ok=True)
                self._run(["cp", "-r", f"{self.scratch}/kernel/{modules}/.", str(target)])
                self._run(["chroot", str(self.root), "depmod", release])

    def _build_native(self, kernel: bytes) -> None:
        """Build sipsched's C programs for the guest with the guest's compiler, for the guest's kernel."""
        vmlinux = unpack_kernel(kernel)
        targets = {part: ["all"] for part in PARTS}
        if vmlinux is not None and b"\0.BTF\0" in vmlinux:
            (self.root / "vmlinux").write_bytes(vmlinux)
            release = kernel_release(kernel, "of the guest")
            targets["probe"] = ["BTF=/vmlinux", f"BUILD=build/{release}", "all"]
        else:
            targets["probe"] = ["libsipstamp.so"]
        for part, target in targets.items():
            # ASSUME the testbed uses the work folder from hardware/testbeds/vm.yaml.
            # If the testbed has another work folder, `fab provision` builds the programs again in the running guest.
            folder = native_folder(places.DATA_FOLDER, part)
            inside = self.root / str(folder).lstrip("/")
            inside.mkdir(parents=True)
            for source in native_sources(part):
                shutil.copy(source, inside)
            inside_root = ["chroot", str(self.root)]
            make = ["make", "--file=Makefile", "--silent", "--directory", str(folder)]
            self._run([*inside_root, *make, *target])
            self._run([*inside_root, "sh", "-c", places.RECORD_BUILD, "sh", str(folder)])
        (self.root / "vmlinux").unlink(missing_ok=True)

    def _write_packages(self) -> None:
        query = ["dpkg-query", "-W", "-f", "${Package} ${Version}\\n"]
        listing = self._run(["chroot", str(self.root), *query])
        release = kernel_release(self.image.kernel.read_bytes(), "of the guest")
        (self.image.folder / "packages.txt").write_text(f"kernel {release}\n{listing}")

    def _make_file_system(self) -> None:
        used = int(self._run(["du", "-sm", str(self.root)]).split()[0])
        size = f"{used + used // 10 + SPARE_MIB}M"
        self._run(["truncate", "-s", size, str(self.image.root)])
        # The file system needs no journal, because all changes of a guest are lost when the guest ends. Linux 3.2 can
        # only write to a file system without metadata_csum.
        options = ["-q", "-F", "-t", "ext4", "-O", "^has_journal,^metadata_csum", "-m", "0"]
        self._run(["mke2fs", *options, "-d", str(self.root), str(self.image.root)])

    def _run(
        self,
        argv: Sequence[str],
        *,
        cwd: Path | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> str:
        with self.log.open("a") as log:
            log.write(f"$ {' '.join(argv)}\n")
            log.flush()
            done = subprocess.run(
                argv,
                check=False,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                cwd=cwd,
                env={**os.environ, "LC_ALL": "C", **(environment or {})},
            )
            log.write(done.stdout if done.returncode else "")
        if done.returncode != 0:
            raise StableError(
                f"image build failed: {argv[0]}: {_last_line(self.log.read_text().splitlines())}; "
                f"its log is {self.log}"
            )
        return done.stdout


def _last_line(lines: Iterable[str]) -> str:
    said = [line.strip() for line in lines if line.strip() and not line.startswith("$ ")]
    return said[-1] if said else "no output"
