"""Where a host keeps what is ours, and that it is nobody else's: folders, programs built there, the lock."""

import subprocess
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from sipsched.errors import StableError

DATA_FOLDER = PurePosixPath("/var/lib/sipsched")
"""Native parts, files of runs and guest images: what outlives a boot."""
RUN_FOLDER = PurePosixPath("/run/sipsched")
"""Lock, undo file, pid files, keys of the testbeds on this machine: what a reboot forgets."""
LOCK_FILE = "lock"
UNDO_FILE = RUN_FOLDER / "undo.sh"
"""On the SPS while its settings are changed: brings them back."""
CGROUP_MOUNT = RUN_FOLDER / "cgroup"
"""Where control groups are mounted on a host, or in a namespace, that shows none."""

NOT_OURS = 77
"""Exit code of `CLAIM` where something is not its user's alone."""
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
    # who may rename a folder above ours can put another one in its place; in a sticky one only its owner can
    for follow in -P -L; do
        refuse "$(find $follow "$@" -maxdepth 0 \\( ! -uid 0 ! -uid "$me" \\
            -o ! -type l -perm /022 ! -perm -1000 \\) -printf '%p is %M of %u' -quit)"
    done
    if [ -h "$folder" ] || [ -e "$folder" -a ! -d "$folder" ]; then
        refuse "$(find "$folder" -maxdepth 0 -printf '%p is %M of %u')"
    fi
    mkdir -p "$folder" || exit
    # an image that is being built holds a whole system; nothing is run from it
    refuse "$(find "$folder" -xdev -name '*.partial' -prune -o \\
        \\( -type l -o ! -uid "$me" -o -perm /022 \\) -printf '%p is %M of %u' -quit)"
    mkdir -p "$folder/$inside" && chmod 700 "$folder" "$folder/$inside" || exit
done
"""
"""Makes folders with mode 0700, and a folder "$1" in each of them.

Exit code 77 and a line if anything there, or above, is not its user's alone.
"""

RECORD_BUILD = """\
cd "$1" && find . -type f ! -name built.sha256 -exec sha256sum {} + | sort -k 2 > built.sha256
"""
"""Notes what every file of a native part is, once it is built."""

CHECK_BUILD = """\
cd "$1" 2>/dev/null && [ -s built.sha256 ] || { echo "missing $1"; exit; }
for program; do
    [ "$program" = "$1" ] || cut -c67- built.sha256 | grep -qxF "./$program" || echo "missing $1/$program"
done
sha256sum --check --quiet --strict built.sha256 2>/dev/null | sed -n "s|^\\./\\(.*\\): FAILED.*|changed \\1|p"
# listed twice what was built: only what was not is there once
{ cut -c67- built.sha256; cut -c67- built.sha256; find . -type f ! -name built.sha256; } |
    sort | uniq -u | sed 's|^\\./|changed |'
"""
"""Prints `missing NAME` for programs that were not built, `changed NAME` for files unlike what was built."""

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
    # who takes a testbed down removes the file: a lock on it is then worth nothing
    [ "$1" -ef "/proc/$$/fd/9" ] && break
done
echo "$2" > "$1"
echo held
cat > /dev/null
[ ! "$1" -ef "/proc/$$/fd/9" ] || : > "$1"
"""
"""Holds the lock "$1" for the one whom "$2" names until standard input ends; waits "$3" seconds for it.

Lines on standard output: `busy HOLDER` while it waits, then `held`, or `late HOLDER`.
"""


def not_ours(where: str, user: str, found: str) -> str:
    """Say what `CLAIM` refused."""
    return (
        f"{where}: {found.strip()}: what is run or written there must be {user}'s alone, and no link; "
        f"find out who made it, then remove it"
    )


def claim_here(folders: Sequence[Path | PurePosixPath]) -> None:
    """Make folders of this machine, with mode 0700, and refuse what is not this user's alone.

    Raises
    ------
    StableError
        Names what is not.
    """
    argv = ["sh", "-c", CLAIM, "sh", "", *map(str, folders)]
    done = subprocess.run(
        argv, check=False, capture_output=True, text=True, stdin=subprocess.DEVNULL
    )
    if done.returncode == NOT_OURS:
        raise StableError(not_ours("this machine", "root", done.stdout))
    if done.returncode != 0:
        raise StableError(f"this machine: {done.stderr.strip() or 'a folder cannot be made'}")


def build_problem(folder: PurePosixPath, found: Sequence[str]) -> str | None:
    """Say in a line what `CHECK_BUILD` found; None if nothing."""
    words = {"missing": "missing program", "changed": "not what was built"}
    parts = [
        f"{text}: {', '.join(names)}"
        for word, text in words.items()
        if (names := [line.partition(" ")[2] for line in found if line.startswith(word)])
    ]
    return f"{folder}: {'; '.join(parts)}" if parts else None
