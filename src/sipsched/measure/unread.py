"""The search for SIP messages that wait in sockets, because a program reads no messages or a link is broken."""

import re
from collections import Counter
from collections.abc import Mapping

from sipsched.measure.proxy import instance_name
from sipsched.words import listed, plural

OPEN = ("ESTAB", "UNCONN")
"""States of sockets from which a program can still read: a TCP connection, and a UDP socket without a peer.

For other TCP connections, `ss` counts the end of the stream as an unread byte.
"""
NOTHING_WAITS = """\
from="( sport >= :$2 and sport <= :$3 )" to="( dport >= :$2 and dport <= :$3 )"
case $1 in
udp) ss "-Hlun$5" "$from" ;;
tcp) ss "-Hnto$5" "$from or $to or sport = :$4 or dport = :$4" ;;
esac | awk -v show="$5" '
    $1 ~ /ESTAB|UNCONN/ && $2 > 0 || $3 > 0 && /timer:\\(on,[^,]*,[1-9]/ { waits = 1; if (show) print }
    END { exit waits }'"""
"""Shell condition that is true if no SIP socket has unread data, or data that the peer did not acknowledge.

The kernel repeats data without an acknowledgement (timer `on` of `ss`). The command excludes data that wait for a slow
program at the peer, because the peer then acknowledges the kernel's probes.

Arguments: protocol, first and last port of the SPS, port of the UAS, and `p` to print the sockets with processes.
"""


def describe_waiting(sockets: str, roles: Mapping[str, str], instance_of: Mapping[int, int]) -> str:
    """Return a text that counts sockets with waiting data, by proxy instance and by the host at the other end.

    Parameters
    ----------
    sockets
        Output of NOTHING_WAITS with the processes of each socket.
    roles
        Role of each host, by IP address.
    instance_of
        Index of the instance of each process and thread, by its id; empty if the run has one instance.
    """
    counts: Counter[tuple[str, str]] = Counter()
    for line in sockets.splitlines():
        state, unread, _, _, peer, *users = line.split(maxsplit=5)
        pids = map(int, re.findall(r"pid=(\d+)", " ".join(users)))
        instances = sorted({instance_of[pid] for pid in pids if pid in instance_of})
        owner = f" of {listed([*map(instance_name, instances)])}" if instances else ""
        role = roles.get(peer.rpartition(":")[0], "").upper()
        if state in OPEN and int(unread):
            data = f"unread data from the {role}" if role else "unread data"
        else:
            data = f"data that did not reach the {role or 'peer'}"
        counts[owner, data] += 1
    return listed(
        [f"{plural(count, 'socket')}{owner} with {data}" for (owner, data), count in counts.items()]
    )
