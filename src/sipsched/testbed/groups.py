"""Shell scripts that use control groups (cgroup v2) to find every process that sipsched started on a host.

A new process joins the group of its parent, so the group of a program contains all descendants of the program. Each
started program has a group `sipsched-<role>/<name>` below the group of the SSH session. The groups do not use the
cgroup controller `cpu`. With this controller, the scheduler would treat all workers of the measured proxy as one
entity, and would schedule the measured proxy in another way than a user's proxy.
"""

FIND = """\
own=$(sed -n 's/^0:://p' /proc/self/cgroup)
[ -n "$own" ] || exit 0
own=${own%/}
root=
while read -r _ place kind _; do
    [ "$kind" = cgroup2 ] && [ -w "$place$own/cgroup.procs" ] && root=$place && break
done < /proc/mounts
if [ -z "$root" ]; then
    mkdir -p "$2" 2>/dev/null && mount -t cgroup2 none "$2" 2>/dev/null || exit 0
    root=$2
fi
group=$root$own/$1
[ -d "$group" ] && there=1 || there=
mkdir -p "$group" 2>/dev/null || exit 0
# Do not use a group with the controller cpu, because the scheduler would treat its processes as one entity.
if [ -w "$group/cgroup.procs" ] && ! grep -qw cpu "$group/cgroup.controllers"; then
    echo "$group"
fi
[ "$there" ] || rmdir "$group"
"""
"""Shell script that prints the folder of the control group "$1", or nothing on a host without control groups.

If control groups are not mounted in this host or namespace, the script mounts them on the folder "$2".
"""

START = """\
group=$1 log=$2
shift 2
[ -z "$log" ] || rm -f "$log"
if [ "$group" ]; then
    mkdir -p "$group" && echo $$ > "$group/cgroup.procs" || exit 1
fi
exec "$@"
"""
"""Shell script that removes the log "$2" and runs a command in the control group "$1". An empty "$1" means no group."""

END = """\
if [ "$3" ]; then
    start-stop-daemon --stop --quiet --oknodo --pidfile "$2/$3.pid" --exec /usr/bin/timeout --retry "TERM/$4"
fi
late() {
    tries=$((tries + 1))
    [ "$tries" -lt 500 ] || { echo "processes of $1 do not end" >&2; exit 1; }
    sleep 0.01
}
root=
while read -r _ place kind _; do
    [ "$kind" = cgroup2 ] && root=$place && break
done < /proc/mounts
if [ "$root" ]; then
    find "$root" -type d -path "*/$1${3:+/$3}" 2>/dev/null | while IFS= read -r group; do
        [ "$3" ] || ls -p "$group" | sed -n 's|/$||p'
        tries=0
        while grep -qs '^populated 1' "$group/cgroup.events"; do
            # Linux before 5.14 has no file cgroup.kill, so kill each process of the group.
            echo 1 2>/dev/null > "$group/cgroup.kill" ||
                find "$group" -name cgroup.procs -exec cat {} + | xargs -r kill -KILL 2>/dev/null
            late "$group"
        done
        until find "$group" -depth -type d -exec rmdir {} + 2>/dev/null || [ ! -d "$group" ]; do
            late "$group"
        done
        [ -z "$3" ] || rmdir "${group%/*}" 2>/dev/null || true
    done || exit 1
fi
[ "$2" ] || exit 0
for file in "$2"/${3:-*}.pid; do
    [ -e "$file" ] || continue
    pid=$(cat "$file")
    # Without control groups, kill the process group. Its leader is the program `timeout`, which may already have ended.
    case "$(cat "/proc/$pid/comm" 2>/dev/null)" in
    '' | timeout)
        tries=0
        # Do not wait for zombies: they have ended, and only their parent can remove them.
        while [ "$pid" ] && pgrep --pgroup "$pid" --runstates D,R,S,T > /dev/null; do
            kill -s KILL -- "-$pid" 2>/dev/null
            late "$pid"
        done
        ;;
    esac
    rm -f "$file"
    [ "$3" ] || basename "$file" .pid
done
"""
"""Shell script that stops the program "$3", or all programs if "$3" is empty, in the control group "$1".

"$2" is the folder of the pid files. "$4" is the number of seconds between SIGTERM and SIGKILL. If the script stops all
programs, it prints the names of the programs.
"""

WATCH = """\
echo watching
cat > /dev/null
exec > /dev/null 2>&1
sh -c "$1" sh "$2" "$3" '' 0
[ "$4" ] && [ -e "$4" ] || exit 0
# If another process still holds the lock after 5 s, the other process restores the settings.
exec flock --timeout 5 "$5" sh -c '[ ! -e "$1" ] || { sh "$1" && rm "$1"; }' sh "$4"
"""
"""Shell script that waits until the SSH connection is closed, and then stops sipsched's programs by the script "$1".

After stopping the programs, it holds the lock "$5" and runs the script "$4", which restores changed settings. The file
"$4" exists only while settings are changed. An empty "$4" means that no script has to run.
"""
