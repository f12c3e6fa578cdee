"""Functions that compute one number per validity rule from the results of a run."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

from sipsched.errors import StableError
from sipsched.measure.account import name_competitors
from sipsched.measure.generator import Served, Starts
from sipsched.measure.observed import Observed
from sipsched.measure.proxy import count_by_instance, instance_name
from sipsched.plan.crossover import Design, Instances
from sipsched.plan.sut import Sut
from sipsched.records.cpu_report import AccountReport
from sipsched.records.load_report import Connections, Requests, Sends
from sipsched.records.probe_report import ProbeReport
from sipsched.records.retransmissions import arrived, disagreement
from sipsched.records.run_document import Settings
from sipsched.records.switch_log import WindowsDocument
from sipsched.records.trace import MessageKind, ProbeMode, Trace
from sipsched.records.window_time import usable
from sipsched.validity.certificate import Certificate
from sipsched.validity.counters import parse_stat
from sipsched.validity.ledger import Ledger

ACCOUNT_RULES = (
    *("competitor_share", "competitor_wait_us", "frozen_us", "workers_moved", "trace_stops"),
)
MESSAGES_A_CALL = 7
"""Largest number of messages per call and direction: the six messages of a call, and the SPS's own 100 response."""


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """The results of a run from which the numbers of the validity rules are computed.

    Attributes
    ----------
    observed
        The counts during the load.
    sut
        The SUT of the run.
    proxies
        SUT and number of workers of each instance that the run compares; one entry for all other runs.
    requests
        First sends and retransmissions of requests at the UAC and at the SPS.
    trace
        The probe's trace; None without timestamps.
    probe
        The probe's report.
    recording_off
        Whether the probe did not record during a part of the run.
    windows
        The windows of a run that compares modes; None for other runs.
    settings
        The receive buffer that the kernel granted, and the SPS's CPUs.
    unlike_asked
        Number of scheduler settings for which the kernel later reported another value than the written value.
    allocation_failures
        Failed allocations that the proxy's log reports; None without a log.
    account
        The account of the SPS's CPU time; None for a simulated run, which has no competitors.
    silent_calls
        Number of calls that were sent to proxy instances which completed no call at all; 0 if the run has one instance.
    """

    observed: Observed
    sut: Sut
    proxies: Sequence[tuple[Sut, int]]
    certificate: Certificate
    requests: Requests
    trace: Trace | None
    probe: ProbeReport
    recording_off: bool
    windows: WindowsDocument | None
    settings: Settings
    unlike_asked: int
    allocation_failures: int | None
    account: AccountReport | None
    silent_calls: int = 0


def numbers(evidence: Evidence) -> dict[str, float | None]:
    """Return the number that each validity rule compares with its limits; None if a number is unknown."""
    observed, cpus = evidence.observed, evidence.settings.sps_cpus
    return {
        **arrival_numbers(evidence.certificate),
        **load_numbers(observed, cpus, evidence.silent_calls),
        **window_numbers(evidence.windows),
        **spread_by_instance(evidence),
        **probe_numbers(evidence.probe, observed.ledger, evidence.recording_off),
        **account_numbers(evidence.account, len(cpus)),
        "foreign_datagrams": foreign_datagrams(evidence.trace),
        "allocation_failures": evidence.allocation_failures,
        "retransmission_disagreement": evidence.requests.disagreement,
        "settings_unlike_asked": evidence.unlike_asked,
        "receive_buffer_shortfall": buffer_shortfall(evidence.settings, evidence.sut),
    }


def causes(
    report: AccountReport | None, instance_of: Mapping[int, int] = MappingProxyType({})
) -> dict[str, str]:
    """Return, per validity rule, a text that names the programs or times behind the number from `account_numbers`.

    The result is empty without an account of the CPU time.

    Parameters
    ----------
    instance_of
        Index of the instance of each process and thread, by its id; empty if the run has one instance.
    """
    account = report.account if report else None
    if account is None:
        return {}
    wait = f"{account.wait_ns / 1e9:.3f} s in one wait"
    if account.wait_by:
        wait += f"; {name_competitors([account.wait_by])}"
    frozen = f"frozen for {account.frozen_ns / 1e9:.3f} s"
    if account.frozen_ns == account.stopped_ns and account.stopped_pid in instance_of:
        frozen += f"; a process of {instance_name(instance_of[account.stopped_pid])} was stopped"
    return {
        "competitor_share": name_competitors(account.competitors),
        "competitor_wait_us": wait,
        "frozen_us": frozen,
    }


def instances_of_calls(
    starts: Starts, design: Design, instances: Instances
) -> npt.NDArray[np.int64]:
    """Return the index of the proxy instance of each call: the instance of the window in which the call starts."""
    edges = [window.start_ns for window in design.windows]
    places = np.searchsorted(edges, starts.scheduled_ns, side="right") - 1
    of_window = np.array([instances.of_window(window) for window in design.windows])
    return of_window[places]


def failed_calls(starts: Starts, of_call: npt.NDArray[np.int64]) -> str:
    """Return a text with the number of failed calls per proxy instance; empty if no call failed."""
    failed = count_by_instance(map(int, of_call[~starts.completed]))
    return failed and f"failed calls: {failed}"


def silent_calls(starts: Starts, of_call: npt.NDArray[np.int64]) -> int:
    """Return the number of calls that were sent to proxy instances which completed no call at all."""
    return int(np.count_nonzero(~np.isin(of_call, of_call[starts.completed])))


def mean_rise_us(wait_ns: float, load_ns: float) -> float:
    """Return the increase in µs of the mean waiting time per message that one interruption of the proxy causes.

    If messages arrive evenly, as the calculation assumes, the fraction `wait_ns / load_ns` of all messages arrives
    during the interruption. On average, these messages wait for half of the interruption.
    """
    return wait_ns**2 / (2 * load_ns) / 1e3


def account_numbers(report: AccountReport | None, cpus: int) -> dict[str, float | None]:
    """Return the numbers for the validity rules about other programs on the proxy's CPUs.

    Parameters
    ----------
    report
        The account of the SPS's CPU time. None for a simulated run, which has no competitors and never stops a worker.
    """
    if report is None:
        return dict.fromkeys(ACCOUNT_RULES, 0)
    account = report.account
    load_ns = account.parts.total / cpus if account else 0
    values: dict[str, float | None] = dict.fromkeys(ACCOUNT_RULES)
    if account:
        values |= {
            "competitor_share": account.parts.competitor_share,
            "competitor_wait_us": mean_rise_us(account.wait_ns, load_ns),
            "frozen_us": mean_rise_us(account.frozen_ns, load_ns),
        }
    stops = account.trace_stops if account else 0
    return values | {"workers_moved": report.moved, "trace_stops": max(report.tracers, stops)}


def compare_requests(
    sent: Mapping[str, Sends], trace: Trace | None, probe: ProbeReport
) -> Requests:
    """Compare the requests that the UAC sent with the requests that reached the proxy, by method.

    First sends and retransmissions are counted separately. The numbers at the proxy are None without a trace, and with
    the preload library, which cannot observe a dropped datagram.
    """
    # ASSUME no message is lost between UAC and proxy, which the ledger and the link counters of the run check.
    reached = None if trace is None or trace.mode is ProbeMode.PRELOAD else arrived(trace.records)
    return Requests(
        uac=sent,
        sps=reached,
        disagreement=disagreement(sent, reached, probe.refused_unseen)
        if reached is not None
        else None,
    )


def foreign_datagrams(trace: Trace | None) -> float | None:
    """Return the number of datagrams at the proxy that belong to no call; None without a trace."""
    if trace is None:
        return None
    # ASSUME the load generators send only the six messages of a call, so all other datagrams come from other programs.
    records = trace.records
    return float(np.count_nonzero(records["kind"] == MessageKind.OTHER))


def arrival_numbers(certificate: Certificate) -> dict[str, float | None]:
    """Return the numbers for the validity rules about the arrivals' rate, distribution and lateness.

    A deviation of the distribution that chance explains counts as 0. A call that several windows repeat is counted
    once.
    """
    gaps = certificate.distinct_gaps
    law_cv = 1.0 if certificate.law == "exponential" else 0.0
    return {
        "rate_error": certificate.rate_error,
        # SEE Stephens (1974): the critical value at 1 % of a Kolmogorov-Smirnov distance is 1.63 / sqrt(n).
        "ks_excess": _beyond(certificate.ks_distance, 1.63 / math.sqrt(gaps)),
        # The coefficient of variation of n exponentially distributed gaps has the standard error 1 / sqrt(n).
        "cv_error": _beyond(abs(certificate.cv - law_cv), 3 * law_cv / math.sqrt(gaps)),
        "lateness_p99_us": certificate.lateness_p99_us,
    }


def load_numbers(
    observed: Observed, cpus: Sequence[int], silent: int = 0
) -> dict[str, float | None]:
    """Return the numbers for the validity rules about stolen CPU time, and about lost messages.

    Parameters
    ----------
    silent
        Number of calls that were sent to proxy instances which completed no call at all.
    """
    statistics, balanced = observed.statistics, observed.ledger
    agents, created = balanced.from_sps, statistics.calls_created
    stat = {phase: files["/proc/stat"] for phase, files in observed.counters["sps"].items()}
    failed, residual = created - statistics.calls_completed, balanced.residual
    if balanced.unit == "datagrams":
        # ASSUME each datagram that the proxy's full socket refuses makes at most one call fail
        unexplained = failed - balanced.to_sps.refused
    else:
        # TCP drops no message. In an overload, a call can fail because its messages still wait in buffers.
        # If a connection broke, its messages are lost, so waiting does not explain the failed calls. Waiting also does
        # not explain an instance without any completed call, because even a slow proxy completes some calls.
        lost = any(report.lost for report in _connections(observed))
        waiting = 0 if lost else max(0, (statistics.calls_waiting or 0) - silent)
        unexplained = failed - waiting if failed < created else created
        residual = max(0, residual - MESSAGES_A_CALL * waiting)
    return {
        "calls_failed_unexplained": max(0, unexplained) / created if created else 1.0,
        "unexpected_messages": statistics.unexpected / created if created else None,
        "datagrams_without_port": observed.no_ports,
        "clock_step_s": observed.clock_step_s,
        "generator_cpu_share": statistics.cpu_share,
        "generator_drops": agents.refused + agents.other_errors,
        "calls_not_started": statistics.calls_offered - statistics.calls_created,
        "link_drops": balanced.link_drops,
        "ledger_residual": residual,
        "segments_again": balanced.segments_again,
        "steal_share": _steal_share(stat, cpus),
        "uas_lateness_p99_us": observed.served.lateness_p99_us if observed.served else None,
        **stream_numbers(observed),
    }


def _connections(observed: Observed) -> list[Connections]:
    """Return the counts of TCP connections from the reports of UAC and UAS; an empty list over UDP."""
    server = observed.served.connections if observed.served else None
    return [report for report in (observed.statistics.connections, server) if report is not None]


def stream_numbers(observed: Observed) -> dict[str, float | None]:
    """Return the numbers for the validity rules about broken TCP connections, and about unknown TCP clients.

    The numbers are None over UDP. In a run without the front end sipdispatch, the number of broken streams is None, and
    the proxy counts its clients. The number of clients is None if the proxy does not count them.
    """
    told = _connections(observed)
    opened = sum(report.opened for report in told)
    front = observed.proxy.front
    dispatched = front.dispatched if front else None
    client, accepted = observed.statistics.connections, observed.connections_accepted
    strangers = None
    if dispatched is not None:
        own = observed.connections_made + (dispatched.answering or 0)
        strangers = max(0, dispatched.clients - own)
    elif client is not None and accepted is not None:
        strangers = max(0, accepted - client.opened)
    return {
        "connections_lost": sum(report.lost for report in told) / opened if opened else None,
        "foreign_connections": strangers,
        "broken_streams": dispatched.broken if dispatched else None,
    }


def probe_numbers(
    probe: ProbeReport, balanced: Ledger, recording_off: bool
) -> dict[str, float | None]:
    """Return the numbers for the validity rules about messages that the probe missed.

    The kernel skips a BPF program that would interrupt itself. After a skip, a timestamp or a record can be missing.
    The number of missing records is the kernel's count of datagrams minus the number of records. Over TCP, the proxy's
    count of messages replaces the kernel's count. The kernel does not count every skipped program. So messages without
    an arrival time also count as missed.

    Parameters
    ----------
    recording_off
        Whether the probe did not record during a part of the run. The trace of such a run lacks the messages of this
        part on purpose, so these messages do not count as missed.
    """
    seen = probe.mode in ("exact", "tracepoint", "stream") and not recording_off
    without = max(0, balanced.to_sps.received - probe.records) if seen else 0
    return {
        "probe_lost": max(probe.lost, without) + probe.threads_untraced,
        "probe_skipped": None
        if probe.recursion_misses is None
        else probe.recursion_misses + (probe.unmatched or 0),
    }


def check_one_thread(
    trace: Trace | None, completed: Sequence[int], program: str, instance_of: Mapping[int, int]
) -> None:
    """Raise an error if an instance passes all messages between threads, so that the trace has no service times.

    The probe follows a message within one thread only. If a proxy receives in one thread and sends in another thread,
    the trace has no service times.

    Parameters
    ----------
    completed
        Number of completed calls of each instance that the run compares; one entry for all other runs.
    instance_of
        Index of the instance of each process and thread, by its id; empty if the run has one instance.

    Raises
    ------
    StableError
        The proxy passes messages to other threads. The message names the instance, and the setting to change.
    """
    for number, calls in enumerate(completed):
        own = _of_instance(trace, instance_of, number)
        if own is None or not calls:
            continue
        records = own.records
        taken = records[(records["kind"] != MessageKind.OTHER) & (records["t_sip_in"] != 0)]
        if taken.size and not taken["t_sip_out"].any():
            who = f"{program} in {instance_name(number)}" if instance_of else program
            raise StableError(
                f"the probe saw {taken.size} messages that {who} received, and none that the same thread then sent, "
                f"but {calls} calls completed; so {who} passes messages to other threads, as Kamailio 6 does with "
                "udp_receiver_mode=1 or 2; set udp_receiver_mode=0 in its configuration, or probe: off in its SUT"
            )


def spread_by_instance(evidence: Evidence) -> dict[str, float | None]:
    """Return the validity numbers about the spread of calls over workers, for all instances of the proxy together.

    The number of split calls is the sum over the instances. The excess of a worker's share is the largest excess in any
    instance.
    """
    trace, observed = evidence.trace, evidence.observed
    spreads = [
        spread_numbers(
            _of_instance(trace, observed.instance_of, number), observed.served, sut, threads
        )
        for number, (sut, threads) in enumerate(evidence.proxies)
    ]
    split = [number for spread in spreads if (number := spread["calls_split"]) is not None]
    excess = [number for spread in spreads if (number := spread["share_excess"]) is not None]
    return {"calls_split": sum(split) if split else None, "share_excess": max(excess, default=None)}


def _of_instance(trace: Trace | None, instance_of: Mapping[int, int], number: int) -> Trace | None:
    """Return the records of one of the instances that a run compares. If the run has one instance, return all records.

    Parameters
    ----------
    instance_of
        Index of the instance of each process and thread, by its id.
    """
    if trace is None or not instance_of:
        return trace
    own = [pid for pid, instance in instance_of.items() if instance == number]
    return Trace(trace.mode, trace.records[np.isin(trace.records["tid"], own)])


def spread_numbers(
    trace: Trace | None, served: Served | None, sut: Sut, threads: int
) -> dict[str, float | None]:
    """Return the numbers for the validity rules about the spread of calls over workers; None for a shared socket.

    If the kernel distributes a few connections by a hash of their addresses, the workers' shares of the calls are
    random. No rule limits these random shares, but the record contains the calls per worker.

    Parameters
    ----------
    trace
        The probe's trace. If each worker has its own socket, only the trace shows which worker received a message.
    served
        The counts of the UAS. The UAS distinguishes proxy instances by their addresses.
    """
    if sut.sharded and trace is not None:
        taken = trace.records[(trace.records["tid"] != 0) & (trace.records["call_id_hash"] != 0)]
        pairs = np.unique(taken[["call_id_hash", "tid"]])
        calls = np.unique(pairs["call_id_hash"]).size
        _, of_worker = np.unique(pairs["tid"], return_counts=True)
        return {
            "calls_split": pairs.size - calls,
            "share_excess": _share_excess(of_worker.tolist(), calls, threads),
        }
    if sut.told_apart and served is not None:
        evenly = sut.arrangement.choice == "call"
        return {
            "calls_split": served.split,
            "share_excess": _share_excess(served.calls, sum(served.calls), threads)
            if evenly
            else None,
        }
    return dict.fromkeys(("calls_split", "share_excess"))


def _share_excess(of_worker: Sequence[int], calls: int, threads: int) -> float | None:
    """Return the largest deviation of a worker's number of calls from an equal share, minus the part due to chance.

    The result is the relative deviation minus four of its standard deviations, and at least 0; None without calls.
    """
    if not calls:
        return None
    # The list lacks workers without calls. So if the list is shorter than `threads`, some worker had 0 calls.
    fewest = min(of_worker) if len(of_worker) >= threads else 0
    off = max(max(of_worker) * threads - calls, calls - fewest * threads)
    # ASSUME the hash distributes calls randomly, so the number of calls per worker has a binomial distribution.
    # Deviations up to four standard deviations count as chance.
    chance = 4 * math.sqrt((threads - 1) * calls)
    return max(0.0, off - chance) / calls


def window_numbers(windows: WindowsDocument | None) -> dict[str, float | None]:
    """Return the numbers for the validity rules about windows, in which a run compares modes; None for other runs.

    CPU time that was stolen in excluded windows is not counted.
    """
    if windows is None:
        return {"blocks_left_out": None}
    kept = usable(windows)
    return {"blocks_left_out": kept.blocks_left_out, "steal_share": kept.steal_share}


def _beyond(value: float | None, chance: float) -> float | None:
    return None if value is None else max(0.0, value - chance)


def _steal_share(stat: Mapping[str, str], cpus: Sequence[int]) -> float:
    """Return the share of some CPUs' time that was stolen between two snapshots of /proc/stat."""
    before, after = (parse_stat(stat[phase]) for phase in ("before", "after"))
    names = [f"cpu{cpu}" for cpu in cpus]
    # The kernel's counter of one state, such as iowait, can decrease. The sum over all states always increases.
    total = sum(sum(after[name].values()) - sum(before[name].values()) for name in names)
    stolen = sum(after[name]["steal"] - before[name]["steal"] for name in names)
    return stolen / total if total > 0 else 0.0


def buffer_shortfall(settings: Settings, sut: Sut) -> float | None:
    """Return the share of the requested receive buffer that the kernel did not grant; None if unknown."""
    if settings.so_rcvbuf_bytes is None or sut.over_tcp:
        return None
    # SEE socket(7): the kernel doubles the requested size for its own bookkeeping
    return max(0.0, 1 - settings.so_rcvbuf_bytes / (2 * sut.receive_buffer_bytes))
