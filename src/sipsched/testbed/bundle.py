"""Functions that make the offline bundle: an archive that installs sipsched on a machine without a network."""

import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterable, Sequence
from importlib.metadata import version as installed_version
from pathlib import Path

from sipsched.errors import StableError
from sipsched.files import sha256_of, whole
from sipsched.paths import PROJECT_ROOT
from sipsched.testbed.requirements import CONTROLLER_PACKAGES, PACKAGES
from sipsched.versions import code_version

PROGRAM = PROJECT_ROOT / "hardware" / "bundle" / "run"
"""Path of the bundle's start program, which installs sipsched on a machine and then runs a command of sipsched."""
CHECKSUMS = "SHA256SUMS"
START_PACKAGES = ("git", "make", "python3", "python3-venv")
"""Debian packages that the bundle's start program `run` needs to install sipsched."""
BUILD_PACKAGES = ("editables", "setuptools")
"""Python packages that pip needs to build this project, and to build dependencies without a binary package."""


def debian_packages() -> list[str]:
    """Return the names of the Debian packages that a machine without sipsched needs for measurements on one machine."""
    return sorted(
        {*START_PACKAGES, *CONTROLLER_PACKAGES, *(n for p in PACKAGES.values() for n in p)}
    )


def make_bundle(pages: Path, to: Path) -> Path:
    """Write the offline bundle of the current commit as a tar archive, and return the archive's path.

    Parameters
    ----------
    pages
        Folder with the pages of the recorded campaign.
    to
        Folder for the archive. A missing folder is created.

    Returns
    -------
    Path
        The archive `sipsched-VERSION-ARCHITECTURE.tar`, which contains one folder, `sipsched-VERSION-ARCHITECTURE`.

    Raises
    ------
    StableError
        A file differs from the commit, the system is not Debian, or a package cannot be downloaded.
    """
    version = code_version()
    if "-g" not in version or version.endswith("-dirty"):
        raise StableError(
            f"{PROJECT_ROOT}: the bundle contains a commit, and this folder has version {version}; "
            "commit or remove the changes of `git status`, then try again"
        )
    architecture = _run(["dpkg", "--print-architecture"]).strip()
    folder = to.resolve() / f"sipsched-{version}-{architecture}"
    if folder.exists():
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    try:
        print("downloading Debian packages")
        _debian(debian_packages(), folder / "packages")
        print("downloading Python packages")
        pythons = (_debian_python(folder / "packages"), platform.python_version())
        _python(folder / "wheels", pythons)
        print("adding sources and pages")
        _sources(folder / "sources.tar")
        shutil.copytree(pages, folder / "pages")
        shutil.copy(PROGRAM, folder / "run")
        (folder / "bundle.env").write_text(
            f"VERSION={version}\nDEBIAN={_debian_release()}\nARCHITECTURE={architecture}\n"
            f"PYTHON_VERSION={sys.version_info.major}.{sys.version_info.minor}\n"
        )
        write_checksums(folder)
        archive = folder.with_name(f"{folder.name}.tar")
        with whole(archive) as partial, tarfile.open(partial, "w") as tar:
            tar.add(folder, folder.name, filter=_as_root)
    finally:
        shutil.rmtree(folder)
    return archive


def write_checksums(folder: Path) -> None:
    """Write the file `SHA256SUMS` with the SHA-256 of every file in the folder, in the format of `sha256sum`."""
    lines = [
        f"{sha256_of(path)}  ./{path.relative_to(folder).as_posix()}\n"
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path != folder / CHECKSUMS
    ]
    (folder / CHECKSUMS).write_text("".join(lines))


def write_index(folder: Path) -> None:
    """Write the file `Packages` for a folder of Debian packages, so that apt can install from the folder.

    SEE https://wiki.debian.org/DebianRepository/Format for the format.
    """
    stanzas = [
        f"{_run(['dpkg-deb', '--field', str(path)]).strip()}\nFilename: ./{path.name}\n"
        f"Size: {path.stat().st_size}\nSHA256: {sha256_of(path)}\n"
        for path in sorted(folder.glob("*.deb"))
    ]
    (folder / "Packages").write_text("\n".join(stanzas))


def _debian(packages: Iterable[str], folder: Path) -> None:
    """Download Debian packages and all their dependencies to a folder, even packages installed on this machine."""
    partial = folder / "partial"
    partial.mkdir(parents=True)
    # Pass an empty list of installed packages. With the actual list, apt would skip dependencies that this machine has.
    status = folder / "status"
    status.touch()
    options = {
        "Dir::State::status": status,
        "Dir::Cache::Archives": folder,
        "Dir::Cache::pkgcache": "",
        "Dir::Cache::srcpkgcache": "",
        "Debug::NoLocking": "1",
        "APT::Sandbox::User": "",
    }
    given = [word for name, value in options.items() for word in ("-o", f"{name}={value}")]
    download = ["install", "--download-only", "--yes", "--quiet", "--no-install-recommends"]
    try:
        _run(["apt-get", *given, *download, *packages])
    except StableError as error:
        raise StableError(f"{error}; as root, run `apt-get update`, then try again") from None
    status.unlink()
    (folder / "lock").unlink(missing_ok=True)
    partial.rmdir()
    write_index(folder)


def locked_for(lock: str, python: str) -> str:
    """Return the requirements in a lock file that apply to a given Python version, as text without version conditions.

    Parameters
    ----------
    lock
        The text of requirements.lock. A condition such as `python_full_version < '3.11.5'` can exclude a requirement.
    python
        The version of Python, such as `3.11.2`. The bundle can be made with another version.
    """
    # Import packaging only here, because no other command needs the library.
    from packaging.requirements import Requirement

    environment = {"python_full_version": python, "python_version": python.rpartition(".")[0]}
    wanted = []
    for entry in re.split(r"\n(?=\S)", lock.strip()):
        first, *hashes = entry.split(" \\\n")
        requirement = Requirement(first)
        if requirement.marker is None or requirement.marker.evaluate(environment):
            wanted.append(" \\\n".join((first.partition(" ;")[0], *hashes)))
    return "\n".join(wanted) + "\n"


def _python(folder: Path, pythons: Iterable[str]) -> None:
    """Download the packages in requirements.lock for each Python version, and the packages that a build needs."""
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--dest", str(folder)]
    lock = (PROJECT_ROOT / "requirements.lock").read_text()
    folder.mkdir()
    for python in dict.fromkeys(pythons):
        file = folder / "requirements.txt"
        file.write_text(locked_for(lock, python))
        _run([*pip, "--no-deps", "--require-hashes", "--requirement", str(file)])
        file.unlink()
    backend = re.findall(
        r'^requires = \["(.+)"\]$', (PROJECT_ROOT / "pyproject.toml").read_text(), re.M
    )
    _run([*pip, *backend, *BUILD_PACKAGES, f"uv=={installed_version('uv')}"])


def _debian_python(packages: Path) -> str:
    """Return the version of Python, such as `3.11.2`, from the Debian package python3 in a folder."""
    (package,) = packages.glob("python3_*.deb")
    return _run(["dpkg-deb", "--field", str(package), "Version"]).partition("-")[0]


def _sources(archive: Path) -> None:
    """Write a tar archive with a clone of this project's git repository that contains only the current commit."""
    clone = archive.with_suffix("")
    source = f"file://{PROJECT_ROOT}"
    quiet = ["-c", "core.logAllRefUpdates=false", "-c", "advice.detachedHead=false"]
    _run(["git", *quiet, "clone", "--quiet", "--depth=1", source, str(clone)])
    # Remove the remote `origin`, because its address is a folder that exists only on this machine.
    _run(["git", "-C", str(clone), "remote", "remove", "origin"])
    with tarfile.open(archive, "w") as tar:
        tar.add(clone, ".", filter=_as_root)
    shutil.rmtree(clone)


def _as_root(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    """Return an archive entry with root as its owner, so that the archive does not contain the user's name."""
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = "root"
    return entry


def _debian_release() -> str:
    release = dict(re.findall(r'^(\w+)="?([^"\n]*)', Path("/etc/os-release").read_text(), re.M))
    if release.get("ID") != "debian":
        raise StableError(
            f"this machine has the system {release.get('ID')}; make the bundle on Debian, because the bundle contains "
            "packages of this machine's distribution"
        )
    return str(release["VERSION_ID"])


def _run(argv: Sequence[str]) -> str:
    """Run a command, and return its output. If the command fails, raise an error with the last line of stderr."""
    try:
        done = subprocess.run(
            argv,
            check=False,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            env={**os.environ, "LC_ALL": "C.UTF-8"},
        )
    except FileNotFoundError:
        raise StableError(
            f"this machine: no program {argv[0]}; make the bundle on Debian"
        ) from None
    if done.returncode != 0:
        said = (done.stderr.strip() or done.stdout.strip() or "no output").splitlines()[-1]
        raise StableError(f"{argv[0]}: exit code {done.returncode}: {said}")
    return done.stdout
