"""A check that the network links between hosts have a carrier, and that datagrams arrive in both directions."""

import secrets
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from sipsched.errors import TransientError
from sipsched.testbed.host import Host
from sipsched.testbed.session import Hosts

PATIENCE_S = 3
EMULATED_PATIENCE_S = 30
"""Time limit in seconds for the check on a guest without KVM, in which the first start of a program takes seconds."""
SPARE_S = 20

LOOK = """\
talk=$1 own=$2 port=$3 nonce=$4 patience=$5
shift 5
fault=
for peer; do
    link=$(ip -o route get "${peer%:*}" 2>/dev/null | sed -n 's/.* dev \\([^ ]*\\).*/\\1/p')
    echo "way ${peer%:*} $link"
    # If the link is switched off, reading the file `carrier` fails.
    [ "$(cat "/sys/class/net/$link/carrier" 2>/dev/null)" = 1 ] || { echo "down $link"; fault=1; }
done
[ "$fault" ] || exec perl -e "$talk" "$own" "$port" "$nonce" "$patience" "$@"
for path in /sys/class/net/*; do
    [ "$(cat "$path/carrier" 2>/dev/null)" = 1 ] || echo "down ${path##*/}"
done
"""
"""Shell script that prints `way PEER LINK` per peer and `down LINK` per link without carrier, then runs `TALK`.

"$1" is the script TALK, "$2" and "$3" are this host's SIP address and port, "$4" is a secret word, and "$5" is the time
limit in seconds. The remaining arguments are the peers as address:port.
"""

# The script is in Perl, because every Debian system has perl-base, but not every host has Python.
TALK = """\
use strict; use warnings; use Socket;
my ($own, $port, $nonce, $patience, @peers) = @ARGV;
socket(my $socket, PF_INET, SOCK_DGRAM, 0) or die "no socket: $!\\n";
bind($socket, pack_sockaddr_in($port, inet_aton($own))) or die "cannot use UDP $own:$port: $!\\n";
my %peer = map { my ($address, $port) = split /:/; ($address => pack_sockaddr_in($port, inet_aton($address))) } @peers;
my (%heard, %answer, %enough, %done);
my $end = time + $patience;
while (time < $end and keys %done < keys %peer) {
    # The two hosts of a link ask and answer each other. A host stops when both hosts have received an answer.
    for my $address (grep { !$answer{$_} } keys %peer) { send($socket, "$nonce ask", 0, $peer{$address}); }
    my $bits = '';
    vec($bits, fileno($socket), 1) = 1;
    while (select(my $ready = $bits, undef, undef, 0.02)) {
        my $from = recv($socket, my $text, 100, 0);
        next unless defined $from and $text =~ /^\\Q$nonce\\E (ask|answer|enough)$/;
        my $address = inet_ntoa((unpack_sockaddr_in($from))[1]);
        next unless $peer{$address};
        $heard{$address} = 1;
        send($socket, "$nonce answer", 0, $from) if $1 eq 'ask';
        if ($1 eq 'answer') { $answer{$address} = 1; send($socket, "$nonce enough", 0, $from); }
        $enough{$address} = 1 if $1 eq 'enough';
        $done{$address} = 1 if $answer{$address} and $enough{$address};
        last if keys %done == keys %peer;
    }
}
print map { "heard $_\\n" } keys %heard;
"""
"""Perl script that exchanges datagrams with peers on the SIP port, and prints `heard PEER` per answering peer."""


@dataclass(frozen=True)
class _Seen:
    """The result of the link check on one host: the link to each peer, links without carrier, and answering peers."""

    links: Mapping[str, str]
    down: Sequence[str]
    heard: Sequence[str]


def check_links(hosts: Hosts) -> None:
    """Check that all links between hosts have a carrier and pass datagrams in both directions.

    The SIP port must be free on all hosts.

    Raises
    ------
    TransientError
        The message names each faulty link and its host.
    StableError
        The SIP address or the SIP port of a host cannot be used.
    """
    nonce = secrets.token_hex(8)
    patience_s = EMULATED_PATIENCE_S if hosts.testbed.kind in ("vm", "virtual") else PATIENCE_S
    uac, sps, uas, *front = hosts.all
    ways: list[tuple[Host, list[Host]]] = [
        *((uac, [sps, *front]), (sps, [uac, uas, *front]), (uas, [sps])),
        *((host, [uac, sps]) for host in front),
    ]
    with ThreadPoolExecutor(len(ways)) as pool:
        seen = list(pool.map(lambda way: _look(way[0], way[1], nonce, patience_s), ways))
    looked = [
        (host, peers, found_seen) for (host, peers), found_seen in zip(ways, seen, strict=True)
    ]
    # A host with a faulty link sends no datagrams. So missing datagrams are a separate fault only if no link is faulty.
    faults = [fault for one in looked for fault in _link_faults(*one)]
    faults = faults or [fault for one in looked for fault in _datagram_faults(*one)]
    if faults:
        again = (
            "; fab down and then fab up create the testbed again"
            if hosts.testbed.kind == "local"
            else ""
        )
        raise TransientError(f"SIP messages do not arrive: {'; '.join(faults)}{again}")


def _look(host: Host, peers: Sequence[Host], nonce: str, patience_s: int) -> _Seen:
    spec = host.spec
    addresses = [f"{peer.spec.sip_address}:{peer.spec.sip_port}" for peer in peers]
    arguments = (spec.sip_address, spec.sip_port, nonce, patience_s, *addresses)
    said = host.shell(LOOK, TALK, *arguments, timeout_s=patience_s + SPARE_S).stdout
    words = [line.split() for line in said.splitlines()]
    return _Seen(
        links={word[1]: " ".join(word[2:]) for word in words if word[0] == "way"},
        down=sorted({word[1] for word in words if word[0] == "down" and len(word) > 1}),
        heard=[word[1] for word in words if word[0] == "heard"],
    )


def _link_faults(host: Host, peers: Sequence[Host], seen: _Seen) -> list[str]:
    faults = []
    for peer in peers:
        link = seen.links.get(peer.spec.sip_address, "")
        if not link:
            down = f"; links that are down: {', '.join(seen.down)}" if seen.down else ""
            faults.append(f"host {host.spec}: no route to {peer.spec.sip_address}{down}")
        elif link in seen.down:
            faults.append(
                f"host {host.spec}: link {link} to {peer.spec.role} is down or has no carrier"
            )
    return faults


def _datagram_faults(host: Host, peers: Sequence[Host], seen: _Seen) -> list[str]:
    return [
        f"host {host.spec}: no datagram from {peer.spec.role} ({peer.spec.sip_address}) on link "
        f"{seen.links[peer.spec.sip_address]}"
        for peer in peers
        if peer.spec.sip_address not in seen.heard
    ]
