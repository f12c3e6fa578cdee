"""The parts of `run.json` about the probe."""

from dataclasses import dataclass


@dataclass(frozen=True)
class TracedThread:
    """A worker thread of the proxy, with the number of messages that the worker received according to the probe."""

    tid: int
    comm: str
    messages: int


@dataclass(frozen=True)
class ProbeReport:
    """The counts of the probe. A count that this kind of probe lacks is None.

    SEE hardware/probe/probe.h for the counters, hardware/probe/streams.h for the counters of TCP streams, and
    hardware/probe/recording.h for the counters of pauses in recording.
    """

    mode: str
    mode_reason: str
    records: int
    drops: int
    lost: int
    refused_unseen: int = 0
    threads_untraced: int = 0
    version: int | None = None
    arrived: int | None = None
    queued: int | None = None
    received: int | None = None
    sent: int | None = None
    refused: int | None = None
    lost_ring: int | None = None
    lost_write: int | None = None
    unmatched: int | None = None
    evicted: int | None = None
    duplicates: int | None = None
    broken: int | None = None
    skipped_bytes: int | None = None
    cut: int | None = None
    descriptors_sent: int | None = None
    descriptors_received: int | None = None
    descriptor_send_ns: int | None = None
    descriptor_receive_ns: int | None = None
    unclassified: int | None = None
    recursion_misses: int | None = None
    switches_off: int | None = None
    off_ns: int | None = None
    cut_arrivals: int | None = None
    cut_services: int | None = None
    slowest_off_ns: int | None = None
    slowest_on_ns: int | None = None
    threads: tuple[TracedThread, ...] = ()
    writer_cpu_ns: int | None = None
    t_fresh_ns: int | None = None
    t_end_ns: int | None = None
    hooks: tuple[str, ...] = ()
