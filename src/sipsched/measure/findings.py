"""A number for each rule of the verdict, from what a run left behind."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from sipsched.measure.generator import Generator, Served
from sipsched.measure.serving import Observed
from sipsched.plan.config import Sut
from sipsched.records.retransmissions import arrived, disagreement
from sipsched.records.run_document import (
    ProbeReport,
    Requests,
    Sends,
    Settings,
)
from sipsched.records.switch_log import WindowsDocument
from sipsched.records.trace import Kind, Mode, Trace
from sipsched.records.window_time import usable
from sipsched.validity.certificate import Certificate, certify
from sipsched.validity.counters import parse_stat
from sipsched.validity.ledger import Ledger

MESSAGES_A_CALL = 7
"""On each of an agent's two ways at most: the six of a call, and the SPS's own 100."""


def certificate(
    generator: Generator,
    folder: Path,
    trace: Trace | None,
    rate_cps: float,
    law: str,
    replays: float = 1.0,
) -> Certificate | None:
    """Certify the arrivals: from the generator's calls, else from the first INVITEs at the SPS.

    Parameters
    ----------
    generator
        What offered the calls.
    folder
        The record, with the generator's files.
    trace
        The probe's; None where there is none.
    rate_cps, law
        As offered.
    replays
        How often each call was offered.

    Returns
    -------
    Certificate or None
        None where neither tells.
    """
    starts = generator.starts(folder, "uac")
    if starts is not None:
        return certify(starts.actual_ns, rate_cps, law, starts.intended_ns, replays)
    if trace is None:
        return None
    invites = trace.records[trace.records["kind"] == Kind.INVITE]
    _, first = np.unique(invites["call_id_hash"], return_index=True)
    return certify(invites["t_arr"][first].astype("i8"), rate_cps, law, replays=replays)


def compare_requests(
    sent: Mapping[str, Sends] | None, trace: Trace | None, probe: ProbeReport
) -> Requests:
    """Compare first sends and retransmissions of requests, by method, at the UAC and at the SPS.

    None where a side does not tell: SIPp gives one sum, and the preload library sees no refused datagram.
    """
    # ASSUME nothing is lost between UAC and SPS: the ledger and the links say so in the same run
    reached = None if trace is None or trace.mode is Mode.PRELOAD else arrived(trace.records)
    return Requests(
        uac=sent,
        sps=reached,
        disagreement=disagreement(sent, reached, probe.refused_unseen)
        if sent is not None and reached is not None
        else None,
    )


def foreign_datagrams(trace: Trace | None) -> float | None:
    """Count the datagrams at the SPS that are of no kind of the calls'; None without a trace."""
    if trace is None:
        return None
    # ASSUME the agents send the six messages of a call and nothing else
    records = trace.records
    return float(np.count_nonzero(records["kind"] == Kind.OTHER))


def arrival_numbers(certificate: Certificate | None) -> dict[str, float | None]:
    """Arrivals against their law, less what chance does to a sample of this size: of distinct calls."""
    if certificate is None:
        return dict.fromkeys(("rate_error", "ks_excess", "cv_error", "lateness_p99_us"))
    gaps = certificate.distinct_gaps
    law_cv = 1.0 if certificate.law == "exponential" else 0.0
    return {
        "rate_error": certificate.rate_error,
        # SEE Stephens (1974): the 1 % point of a Kolmogorov-Smirnov distance is 1.63 / sqrt(n)
        "ks_excess": _beyond(certificate.ks_distance, 1.63 / math.sqrt(gaps)),
        # the coefficient of variation of n exponential variates has standard error 1 / sqrt(n)
        "cv_error": _beyond(abs(certificate.cv - law_cv), 3 * law_cv / math.sqrt(gaps)),
        "lateness_p99_us": certificate.lateness_p99_us,
    }


def load_numbers(observed: Observed, cpus: Sequence[int]) -> dict[str, float | None]:
    """Whether a load reached the SPS as offered and came back, and the SPS had its CPUs to itself.

    Parameters
    ----------
    observed
        What became of the load.
    cpus
        CPUs of the SPS.
    """
    statistics, balanced = observed.statistics, observed.ledger
    agents, created = balanced.from_sps, statistics.calls_created
    stat = {phase: files["/proc/stat"] for phase, files in observed.counters["sps"].items()}
    failed, residual = created - statistics.calls_completed, balanced.residual
    if balanced.unit == "datagrams":
        # ASSUME a datagram that the SPS's full socket refuses ends one call at most
        unexplained = failed - balanced.to_sps.refused
    else:
        # over TCP nothing is dropped: an SPS that has too much to do lets calls wait, with their messages in buffers
        unexplained = failed - (statistics.calls_waiting or 0) if failed < created else created
        residual = max(0, residual - MESSAGES_A_CALL * (statistics.calls_waiting or 0))
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
    }


def probe_numbers(probe: ProbeReport, balanced: Ledger, stilled: bool) -> dict[str, float | None]:
    """Say what the probe did not see.

    Where the kernel skipped one of its programs (it was interrupted by itself) a stamp may be missing, or a
    record: whether one is, the kernel's own count of datagrams says, or over TCP the proxy's of messages. It does not
    count all that it skips: messages whose arrival was not found tell of more.

    Parameters
    ----------
    probe
        Its report.
    balanced
        The ledger of the same run.
    stilled
        Whether recording was switched off in between; then the trace is not to hold every datagram.
    """
    seen = probe.mode in ("exact", "tracepoint", "stream") and not stilled
    without = max(0, balanced.to_sps.received - probe.records) if seen else 0
    return {
        "probe_lost": max(probe.lost, without) + probe.threads_untraced,
        "probe_skipped": None
        if probe.recursion_misses is None
        else probe.recursion_misses + (probe.unmatched or 0),
    }


def spread_numbers(
    trace: Trace | None, served: Served | None, sut: Sut, threads: int
) -> dict[str, float | None]:
    """Judge how calls were spread over workers that do not share a socket; of any other deployment nothing.

    Where the kernel spreads connections, by their addresses, nothing is said of the workers' shares: of few
    connections they are what chance makes them, and the record has them.

    Parameters
    ----------
    trace
        The probe's: workers of sharded sockets are told apart by it alone.
    served
        The UAS's: what has an address of its own is told apart by it.
    sut
        Says how it is deployed.
    threads
        Workers.
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
        evenly = sut.deployment != "listeners"
        return {
            "calls_split": served.split,
            "share_excess": _share_excess(served.calls, sum(served.calls), threads)
            if evenly
            else None,
        }
    return dict.fromkeys(("calls_split", "share_excess"))


def _share_excess(of_worker: Sequence[int], calls: int, threads: int) -> float | None:
    """Say how far a worker's share is off the others' beyond chance; None without calls."""
    if not calls:
        return None
    # a worker that got no call is not seen
    fewest = min(of_worker) if len(of_worker) >= threads else 0
    off = max(max(of_worker) * threads - calls, calls - fewest * threads)
    # ASSUME the hash spreads calls like chance: the number of one worker of N is binomial
    chance = 4 * math.sqrt((threads - 1) * calls)
    return max(0.0, off - chance) / calls


def window_numbers(windows: WindowsDocument | None) -> dict[str, float | None]:
    """Judge the windows of a crossover run; of any other run nothing.

    What was stolen in windows that are left out anyway does not count against the run.
    """
    if windows is None:
        return {"blocks_left_out": None}
    kept = usable(windows)
    return {"blocks_left_out": kept.blocks_left_out, "steal_share": kept.steal_share}


def _beyond(value: float | None, chance: float) -> float | None:
    return None if value is None else max(0.0, value - chance)


def _steal_share(stat: Mapping[str, str], cpus: Sequence[int]) -> float:
    """Share of the time between two snapshots of /proc/stat that was stolen from some CPUs."""
    before, after = (parse_stat(stat[phase]) for phase in ("before", "after"))
    names = [f"cpu{cpu}" for cpu in cpus]
    # the kernel lets single states, such as iowait, go backwards: only the sum grows
    total = sum(sum(after[name].values()) - sum(before[name].values()) for name in names)
    stolen = sum(after[name]["steal"] - before[name]["steal"] for name in names)
    return stolen / total if total > 0 else 0.0


def buffer_shortfall(settings: Settings, sut: Sut) -> float | None:
    """Share of the SUT's receive buffer that the kernel did not grant; None if it is not known."""
    if settings.so_rcvbuf_bytes is None or sut.over_tcp:
        return None
    # SEE socket(7): the kernel doubles what is asked, for its own bookkeeping
    return max(0.0, 1 - settings.so_rcvbuf_bytes / (2 * sut.receive_buffer_bytes))
