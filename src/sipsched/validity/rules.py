"""The declarations of all rules that decide whether a run is valid.

The words of a verdict and the default limits come from these declarations. The configuration may contain only rules
that are declared here. The declarations also mark the rules that other programs on the machine can break.
`sipsched.measure.findings.numbers` computes a number for each rule.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """The two limits of a rule. HTML pages name a run whose number is above `suspect`.

    The workflow repeats a run whose number is above `invalid`.
    """

    suspect: float
    invalid: float


@dataclass(frozen=True)
class Rule:
    """A rule that compares a number of a run, such as the share of stolen CPU time, with two limits.

    Attributes
    ----------
    name
        Name of the rule in the configuration and in run.json.
    words
        Text about a run that breaks the rule. `{value}` stands for the run's number.
    suspect, invalid
        Default limits. The configuration can change them (`validity.<name>`).
    why
        Reason for these default limits.
    shared_machine
        Whether other programs on a busy machine can break the rule. Tests and benchmarks that do not measure time
        ignore such rules.
    """

    name: str
    words: str
    suspect: float
    invalid: float
    why: str
    shared_machine: bool = False

    @property
    def limits(self) -> Limits:
        """Return the rule's two default limits: for suspect and for invalid runs."""
        return Limits(self.suspect, self.invalid)

    @property
    def in_general(self) -> str:
        """Return a sentence about runs that break the rule, with the letter N instead of the measured value."""
        return re.sub(r"\{value:[^}%]*(%?)\}", r"N\1", self.words)


_DECLARED = (
    Rule(
        "rate_error",
        "the achieved rate differs by {value:.2%} from the scheduled rate",
        suspect=0.005,
        invalid=0.01,
        why="The papers' loads are 200 cps apart. At 2000 cps, 1 % is a tenth of that step.",
        shared_machine=True,
    ),
    Rule(
        "ks_excess",
        "the distance of the inter-arrival times from their distribution is {value:.3f} larger than chance explains",
        suspect=0.01,
        invalid=0.05,
        why="This is the Kolmogorov-Smirnov distance beyond its 1 % point, 1.63 / sqrt(n). "
        "Bursts on a 4 ms tick have a distance of 0.4 and more.",
        shared_machine=True,
    ),
    Rule(
        "cv_error",
        "the coefficient of variation of the inter-arrival times differs by {value:.2f} from the schedule's "
        "distribution",
        suspect=0.05,
        invalid=0.15,
        why="This is the difference beyond 3 / sqrt(n). In queueing theory, the waiting time grows with the "
        "square of the coefficient of variation.",
        shared_machine=True,
    ),
    Rule(
        "lateness_p99_us",
        "one call in a hundred started more than {value:,.0f} µs late",
        suspect=500,
        invalid=2000,
        why="A late call meets a different queue. At loads below the knee, messages wait about 100 µs.",
        shared_machine=True,
    ),
    Rule(
        "uas_lateness_p99_us",
        "at one instant in a hundred, a message would have waited more than {value:,.0f} µs for the UAS",
        suspect=1000,
        invalid=5000,
        why="A late UAS sends its answers in bursts, and a burst waits at the SPS. In benchmarks/late_uas.py, the mean "
        "of K_rcv was 5 to 29 % longer for a lateness of 2.7 ms, and about twice as long for 9.7 ms.",
        shared_machine=True,
    ),
    Rule(
        "generator_cpu_share",
        "the generator used {value:.0%} of a CPU",
        suspect=0.7,
        invalid=0.95,
        why="Above this share, calls queue in the generator.",
        shared_machine=True,
    ),
    Rule(
        "generator_drops",
        "sockets of UAC and UAS refused {value:,.0f} datagrams",
        suspect=0,
        invalid=0,
        why="A message that an agent loses would be counted as lost although the SPS did not lose it.",
    ),
    Rule(
        "calls_not_started",
        "the generator did not start {value:,.0f} of its calls",
        suspect=0,
        invalid=0,
        why="The load was not offered as planned.",
    ),
    Rule(
        "calls_failed_unexplained",
        "{value:.2%} of the calls did not complete, and no drop at the SPS explains this",
        suspect=0,
        invalid=0.001,
        why="If a call fails without a drop at the SPS, the cause is elsewhere. One call in a thousand may fail "
        "by chance.",
    ),
    Rule(
        "unexpected_messages",
        "{value:.3f} messages per call did not fit the state of their call",
        suspect=0,
        invalid=0.01,
        why="The UAC received messages that belong to another load or to an overload.",
    ),
    Rule(
        "datagrams_without_port",
        "{value:,.0f} datagrams were sent to closed ports while UAC, SPS and UAS were running",
        suspect=0,
        invalid=10,
        why="Either an agent has ended, or another program sends datagrams.",
    ),
    Rule(
        "foreign_datagrams",
        "{value:,.0f} datagrams that belong to no call reached the SPS",
        suspect=0,
        invalid=10,
        why="Such datagrams take time of the workers and room in the queue. A UAS that no longer knows a call "
        "also sends such a datagram.",
    ),
    Rule(
        "link_drops",
        "interfaces dropped {value:,.0f} packets",
        suspect=0,
        invalid=0,
        why="A packet that a link drops would be missing although the SPS did not drop it.",
    ),
    Rule(
        "ledger_residual",
        "{value:,.0f} sent messages are missing in all other counts",
        suspect=0,
        invalid=0,
        why="Every sent message must be received, dropped or refused. Otherwise a counter is wrong.",
    ),
    Rule(
        "segments_again",
        "TCP retransmitted {value:,.0f} segments",
        suspect=0,
        invalid=100,
        why="Packets were lost between the hosts, and each loss costs a call tenths of a second. "
        "The kernel may retransmit a few segments without a loss.",
    ),
    Rule(
        "connections_lost",
        "{value:.2%} of the TCP connections of UAC and UAS were lost during the load",
        suspect=0,
        invalid=0.001,
        why="The messages of a lost connection are lost, and the calls of these messages never complete. If each "
        "call has its own connection, one lost connection is one lost call.",
    ),
    Rule(
        "foreign_connections",
        "{value:,.0f} TCP connections that do not come from the UAC reached the SPS",
        suspect=0,
        invalid=10,
        why="Such connections take time of the SPS.",
    ),
    Rule(
        "broken_streams",
        "the dispatcher could not follow {value:,.0f} streams and closed their connections",
        suspect=0,
        invalid=10,
        why="UAC and proxy send whole messages, so another program sent these streams. "
        "If the dispatcher closes a stream of the load, the run also breaks the rule about lost connections.",
    ),
    Rule(
        "calls_split",
        "{value:,.0f} calls had messages at more than one of the SPS's sockets",
        suspect=0,
        invalid=0,
        why="If each worker has its own calls, a worker cannot answer a message of another worker's call.",
    ),
    Rule(
        "share_excess",
        "a worker's share of the calls differs by {value:.0%} from an equal share, beyond chance",
        suspect=0,
        invalid=0.1,
        why="The busiest worker limits the speed-up. The number is the difference beyond 4 standard errors.",
    ),
    Rule(
        "retransmission_disagreement",
        "UAC and SPS disagree for {value:,.0f} requests whether they are retransmissions",
        suspect=0,
        invalid=0,
        why="The requests that the UAC retransmitted must be the requests that reached the SPS twice. Otherwise "
        "one of the two counts is wrong.",
    ),
    Rule(
        "probe_lost",
        "the probe lost {value:,.0f} records",
        suspect=0,
        invalid=0,
        why="A message without a record may be the slowest message.",
    ),
    Rule(
        "probe_skipped",
        "the kernel did not run the probe for {value:,.0f} messages, whose timestamps may be missing",
        suspect=0,
        invalid=100,
        why="A run of minutes typically has one or two skipped programs, although no record is missing. Messages "
        "with an unknown arrival are counted as well.",
    ),
    Rule(
        "settings_unlike_asked",
        "{value:,.0f} scheduler settings differ from the written values when read back",
        suspect=0,
        invalid=0,
        why="If the settings of a mode are not in force, the run measures another mode.",
    ),
    Rule(
        "receive_buffer_shortfall",
        "the kernel granted {value:.0%} less receive buffer than the SUT requests",
        suspect=0,
        invalid=1,
        why="With a smaller buffer, drops begin at a lower load. Such runs can only be compared with each other.",
    ),
    Rule(
        "clock_step_s",
        "the wall clock of a host stepped by {value:.2f} s",
        suspect=0.05,
        invalid=0.5,
        why="The proxies' timers use the wall clock. An NTP daemon slews the wall clock by at most 0.5 ms per second.",
    ),
    Rule(
        "steal_share",
        "the hypervisor took {value:.1%} of the SPS's CPU time",
        suspect=0.01,
        invalid=0.05,
        why="During this time, the hypervisor ran another guest on the SPS's CPUs.",
        shared_machine=True,
    ),
    Rule(
        "competitor_share",
        "other programs used {value:.1%} of the SPS's CPU time",
        suspect=0.02,
        invalid=0.05,
        why="Up to 5 % in bursts of 1 ms, the means of K_rcv and T_sip change by less than their interval; at 10 % "
        "they change by more (docs/methodology/competitors.md). Programs of class SCHED_IDLE are excluded.",
        shared_machine=True,
    ),
    Rule(
        "competitor_wait_us",
        "the longest wait for another program raises the mean waiting time by {value:,.0f} µs",
        suspect=10,
        invalid=40,
        why="The mean of K_rcv in 5 s at 800 cps has an interval of ± 40 µs. A wait w in a load of T seconds raises "
        "the mean by w² / 2T, as benchmarks/competitors.py shows (docs/methodology/competitors.md).",
        shared_machine=True,
    ),
    Rule(
        "frozen_us",
        "the longest time in which messages waited and no task of the proxy could run raises the mean waiting time "
        "by {value:,.0f} µs",
        suspect=10,
        invalid=40,
        why="The reason is the same as for `competitor_wait_us`.",
        shared_machine=True,
    ),
    Rule(
        "workers_moved",
        "{value:,.0f} tasks of the proxy were given other CPUs during the load",
        suspect=0,
        invalid=0,
        why="Results of a proxy on other CPUs are not comparable.",
    ),
    Rule(
        "trace_stops",
        "a debugger or strace stopped tasks of the proxy {value:,.0f} times",
        suspect=0,
        invalid=0,
        why="A traced program stops at each system call.",
    ),
    Rule(
        "blocks_left_out",
        "{value:.0%} of the blocks of windows are excluded",
        suspect=0.25,
        invalid=0.5,
        why="In a crossover run, excluded blocks cost time, but cause no bias.",
    ),
    Rule(
        "allocation_failures",
        "the proxy's log contains {value:,.0f} failed allocations",
        suspect=0,
        invalid=0,
        why="Like a drop, a failed allocation ends a call, but no counter shows it.",
    ),
)

RULES: Mapping[str, Rule] = {rule.name: rule for rule in _DECLARED}
"""All rules by name, in the order in which a verdict lists them."""

SHARED_MACHINE = tuple(rule.name for rule in _DECLARED if rule.shared_machine)
"""Names of the rules that other programs on a busy machine can break."""
