"""A number for each rule of the verdict, from what a run left behind."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from sipsched.measure.generator import CallStatistics, Generator
from sipsched.records.retransmissions import Sends, arrived, disagreement
from sipsched.records.run_document import (
    CertificateReport,
    ProbeReport,
    Requests,
)
from sipsched.records.trace import Kind, Mode, Trace
from sipsched.validity.certificate import certify
from sipsched.validity.counters import parse_stat
from sipsched.validity.ledger import Ledger


def certificate(
    generator: Generator, folder: Path, trace: Trace | None, rate_cps: float, law: str
) -> CertificateReport | None:
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

    Returns
    -------
    CertificateReport or None
        None where neither tells.
    """
    starts = generator.starts(folder, "uac")
    if starts is not None:
        source, actual_ns, intended_ns = "calls", starts.actual_ns, starts.intended_ns
    elif trace is not None:
        invites = trace.records[trace.records["kind"] == Kind.INVITE]
        _, first = np.unique(invites["call_id_hash"], return_index=True)
        source, actual_ns, intended_ns = "trace", invites["t_arr"][first].astype("i8"), None
    else:
        return None
    found = without_nan(asdict(certify(actual_ns, rate_cps, law, intended_ns)))
    return CertificateReport(source=source, law=law, **found)


def without_nan(numbers: Mapping[str, Any]) -> dict[str, Any]:
    """Replace NaN, which JSON has not, by None."""

    def plain(value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            return tuple(plain(one) for one in value)
        return None if isinstance(value, float) and math.isnan(value) else value

    return {name: plain(value) for name, value in numbers.items()}


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


def arrival_numbers(certificate: CertificateReport | None) -> dict[str, float | None]:
    """Arrivals against their law, less what chance does to a sample of this size."""
    if certificate is None:
        return dict.fromkeys(("rate_error", "ks_excess", "cv_error", "lateness_p99_us"))
    gaps = certificate.arrivals - 1
    law_cv = 1.0 if certificate.law == "exponential" else 0.0
    return {
        "rate_error": certificate.rate_error,
        # SEE Stephens (1974): the 1 % point of a Kolmogorov-Smirnov distance is 1.63 / sqrt(n)
        "ks_excess": _beyond(certificate.ks_distance, 1.63 / math.sqrt(gaps or 1)),
        # the coefficient of variation of n exponential variates has standard error 1 / sqrt(n)
        "cv_error": _beyond(abs(certificate.cv - law_cv), 3 * law_cv / math.sqrt(gaps or 1)),
        "lateness_p99_us": certificate.lateness_p99_us,
    }


def load_numbers(
    statistics: CallStatistics, balanced: Ledger, sps_stat: Mapping[str, str], cpus: Sequence[int]
) -> dict[str, float | None]:
    """Whether a load reached the SPS as offered, and the SPS had its CPUs to itself.

    Parameters
    ----------
    statistics
        What the generator says.
    balanced
        The ledger of the load.
    sps_stat
        `before` and `after`, to the text of /proc/stat of the SPS.
    cpus
        CPUs of the SPS.
    """
    agents = balanced.from_sps
    return {
        "generator_cpu_share": statistics.cpu_share,
        "generator_drops": agents.refused + agents.other_errors,
        "calls_not_started": statistics.calls_offered - statistics.calls_created,
        "link_drops": balanced.link_drops,
        "ledger_residual": balanced.residual,
        "steal_share": _steal_share(sps_stat, cpus),
    }


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
