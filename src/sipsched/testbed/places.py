"""The folders of sipsched on a host, and shell scripts that protect, check and lock these folders."""

import subprocess
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from sipsched.errors import StableError

DATA_FOLDER = PurePosixPath("/var/lib/sipsched")
"""Folder for files that a reboot must keep: C programs, files of runs, and disk images of virtual machines."""
RUN_FOLDER = PurePosixPath("/run/sipsched")
"""Folder for files that a reboot removes: the lock, the script that restores settings, pid files, and SSH keys."""
LOCK_FILE = "lock"
UNDO_FILE = RUN_FOLDER / "undo.sh"
"""Script that restores kernel settings of the proxy's host. The script exists while settings are changed."""
CGROUP_MOUNT = RUN_FOLDER / "cgroup"
"""Folder on which sipsched mounts control groups, if a host or namespace has not mounted them elsewhere."""

NOT_OURS = 77
"""Exit code of the script `CLAIM` for a folder that another user can change."""
CLAIM = """\
umask 077
inside=$1
shift
me=$(id -u)
refuse() {
    [ -z "$1" ] || { echo "$1"; exit 77; }
}
for folder; do
    set -- /
    above=${folder%/*}
    while [ "$above" ]; do
        [ ! -e "$above" ] || set -- "$@" "$above"
        above=${above%/*}
    done
    # Other users must not be able to rename a parent folder. A sticky folder protects its subfolders from renaming.
    for follow in -P -L; do
        refuse "$(find $follow "$@" -maxdepth 0 \\( ! -uid 0 ! -uid "$me" \\
            -o ! -type l -perm /022 ! -perm -1000 \\) -printf '%p is %M of %u' -quit)"
    done
    if [ -h "$folder" ] || [ -e "$folder" -a ! -d "$folder" ]; then
        refuse "$(find "$folder" -maxdepth 0 -printf '%p is %M of %u')"
    fi
    mkdir -p "$folder" || exit
    # Skip unfinished images and root file systems of Debian releases, because they contain files of other users.
    # Other users cannot reach these files, because the parent folder has mode 0700.
    refuse "$(find "$folder" -xdev \\( -name '*.partial' -o -path "$folder/roots/*" \\) -prune -o \\
        \\( -type l -o ! -uid "$me" -o -perm /022 \\) -printf '%p is %M of %u' -quit)"
    mkdir -p "$folder/$inside" && chmod 700 "$folder" "$folder/$inside" || exit
done
"""
"""Shell script that creates folders with mode 0700, and a subfolder "$1" in each of these folders.

If another user can change a folder, its files or its parent folders, the script prints the reason and exits with
code 77.
"""

RECORD_BUILD = """\
cd "$1" && find . -type f ! -name built.sha256 -exec sha256sum {} + | sort -k 2 > built.sha256
"""
"""Shell script that writes the SHA-256 of every file in the build folder "$1" to the file built.sha256."""

CHECK_BUILD = """\
cd "$1" 2>/dev/null && [ -s built.sha256 ] || { echo "missing $1"; exit; }
for program; do
    [ "$program" = "$1" ] || cut -c67- built.sha256 | grep -qxF "./$program" || echo "missing $1/$program"
done
sha256sum --check --quiet --strict built.sha256 2>/dev/null | sed -n "s|^\\./\\(.*\\): FAILED.*|changed \\1|p"
# The list of built files is printed twice, so that uniq -u prints only files that were not built.
{ cut -c67- built.sha256; cut -c67- built.sha256; find . -type f ! -name built.sha256; } |
    sort | uniq -u | sed 's|^\\./|changed |'
"""
"""Shell script that prints `missing NAME` per program that is not built, and `changed NAME` per changed file."""

LOCK = """\
umask 077
case "$3" in 0) wait=--nonblock ;; *) wait="--timeout=$3" ;; esac
while :; do
    [ ! -e "$1" ] || [ -f "$1" ] || { echo "odd $1"; exit 1; }
    exec 9<>"$1"
    if ! flock --nonblock 9; then
        echo "busy $(cat "$1")"
        flock "$wait" 9 || { echo "late $(cat "$1")"; exit 1; }
    fi
    # The process that removes the testbed deletes the lock file. A lock on a deleted file is useless, so try again.
    [ "$1" -ef "/proc/$$/fd/9" ] && break
done
echo "$2" > "$1"
echo held
cat > /dev/null
[ ! "$1" -ef "/proc/$$/fd/9" ] || : > "$1"
"""
"""Shell script that holds the lock "$1" until its standard input ends. "$2" describes the holder.

The script waits up to "$3" seconds for the lock. If another process holds the lock, the script prints `busy HOLDER`.
The script then prints `held` when it has the lock, or `late HOLDER` when the time is over.
"""


def not_ours(where: str, user: str, path: str) -> str:
    """Return the error message for a folder that another user can change."""
    return (
        f"{where}: {path.strip()}: it must belong to {user}, and must not be a link, so that no other user can change "
        f"the programs and files there; find out who created it, then remove it"
    )


def claim_here(folders: Sequence[Path | PurePosixPath]) -> None:
    """Create folders with mode 0700 on this machine. Raise an error for a folder that another user can change.

    Raises
    ------
    StableError
        The message names the folder.
    """
    argv = ["sh", "-c", CLAIM, "sh", "", *map(str, folders)]
    done = subprocess.run(
        argv, check=False, capture_output=True, text=True, stdin=subprocess.DEVNULL
    )
    if done.returncode == NOT_OURS:
        raise StableError(not_ours("this machine", "root", done.stdout))
    if done.returncode != 0:
        raise StableError(f"this machine: {done.stderr.strip() or 'cannot create a folder'}")


def build_problem(folder: PurePosixPath, findings: Sequence[str]) -> str | None:
    """Return an error message about missing or changed programs that `CHECK_BUILD` printed; None if it printed none."""
    words = {"missing": "missing program", "changed": "changed since the build"}
    parts = [
        f"{text}: {', '.join(names)}"
        for word, text in words.items()
        if (names := [line.partition(" ")[2] for line in findings if line.startswith(word)])
    ]
    return f"{folder}: {'; '.join(parts)}" if parts else None
