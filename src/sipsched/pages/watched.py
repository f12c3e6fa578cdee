"""The output of a watch (observation of a running proxy): terminal lines, Prometheus metrics, and a page."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import xarray as xr
from matplotlib.axes import Axes

from sipsched.analysis.headroom import (
    Headroom,
    Lack,
    Server,
    headroom,
    lack_of_messages,
    latest,
)
from sipsched.analysis.intervals import Interval
from sipsched.analysis.watched import (
    PERCENTILES,
    Cause,
    ShownCause,
    Totals,
    findings,
    percentiles_us,
    probe_cost,
    total,
)
from sipsched.errors import StableError
from sipsched.files import whole
from sipsched.pages import html
from sipsched.pages.explore.ccdf import ccdf
from sipsched.pages.explore.timeline import place_in_time
from sipsched.pages.headroom import LACKS, section
from sipsched.pages.numbers import in_words
from sipsched.pages.parts import Figure, Heading, Page, Part, Section, Table, Title, Words
from sipsched.pages.plots import draw_line, look, panels
from sipsched.plan.run import Run
from sipsched.records.messages import FLAGS
from sipsched.records.watch import (
    ANSWERED,
    FIDELITY,
    HISTOGRAMS,
    NAMES,
    TESTBED,
    CpuShare,
    Second,
    WatchDocument,
    add_bins,
)
from sipsched.words import grouped, listed, number, plural

TITLE = "What did the proxy do with its messages?"
MOST_NAMES = 6
"""Largest number of SIP methods and statuses in a line of the terminal."""
MOST_WORKERS = 8
"""Largest number of workers for which a terminal line lists each worker's share of busy time."""
WORKERS = {"kamailio": "children=N in kamailio.cfg", "opensips": "udp_workers=N in opensips.cfg"}
"""The configuration setting for the number of workers, for each proxy program."""
BUFFER = {
    "kamailio": "start kamailio with -b BYTES, or set maxbuffer=BYTES in kamailio.cfg",
    "opensips": "start opensips with -b BYTES",
}
LEAST_SHOWN = 0.001
"""The page lists another program only if it used at least this share of a CPU."""
MOST_MESSAGES = 1_000_000
"""Number of latest messages from which the page computes the headroom, in about a second of CPU time."""
NO_CAUSE = "The watch found no cause of long waiting times or of drops, so nothing needs to change."


# ---- the terminal ----


def lines_of(second: Second) -> list[str]:
    """Return terminal lines about one second of the proxy: messages, times, drops and CPU use."""
    if not second.processes:
        return [f"{second.t_s:6.0f} s  the proxy is not running; waiting for its start"]
    lost = f", {second.lost} records lost by the probe" if second.lost else ""
    if second.recording:
        names = sorted(second.messages, key=lambda name: -second.messages[name])
        shown = [f"{name} {_rate(second.messages[name], second)}" for name in names[:MOST_NAMES]]
        head = (
            f"{_rate(second.calls, second)} calls/s, {_rate(second.received, second)} messages/s"
            f"{f' ({text})' if (text := ', '.join(shown)) else ''}"
        )
        times = f"waiting {_times(second.waiting)}   service {_times(second.service)}"
    else:
        head = f"{_rate(second.datagrams, second)} datagrams/s, the probe is switched off"
        times = "waiting and service are unknown"
    drops = ", ".join(f"{cause} {count}" for cause, count in second.drops.items()) or "none"
    largest = f" (at most {grouped(second.largest_queue_bytes)})" if second.recording else ""
    others = _shares(second.others)
    return [
        f"{second.t_s:6.0f} s  {head}",
        f"          {times}",
        f"          queue {grouped(second.queued_bytes)} bytes{largest}   drops: {drops}   "
        f"receive errors {second.receive_errors}{lost}",
        f"          {_workers(second)}   {plural(second.cpus, 'CPU')} for workers busy {100 * second.cpu_busy:.0f} %   "
        f"others: {others}",
    ]


def _rate(count: int, second: Second) -> str:
    return grouped(round(count / second.length_s))


def _times(bins: Sequence[Sequence[int]]) -> str:
    known = percentiles_us(add_bins([bins]))
    values = " / ".join("–" if math.isnan(value) else number(value) for value in known.values())
    return f"{'/'.join(known)} {values} µs"


def _workers(second: Second) -> str:
    """Return the mean busy share of the workers, and the share of each worker, or the range if they are many."""
    busy = [100 * share.busy for share in second.workers]
    if not busy:
        return "no worker has received a message"
    each = (
        ", ".join(f"{share:.0f}" for share in busy)
        if len(busy) <= MOST_WORKERS
        else f"{min(busy):.0f} to {max(busy):.0f}"
    )
    return f"{plural(len(busy), 'worker')} busy {float(np.mean(busy)):.0f} % ({each})"


def _shares(shares: Sequence[CpuShare]) -> str:
    return ", ".join(f"{share.name} {100 * share.busy:.0f} %" for share in shares) or "none"


# ---- Prometheus ----


def metrics(seconds: Sequence[Second], sums: Totals) -> str:
    """Return counters and quantiles of the watched proxy in the text format of Prometheus, version 0.0.4.

    Parameters
    ----------
    seconds
        The last seconds. The gauges show their values.
    sums
        The sums since the start of the watch.
    """
    lines = []

    def add(name: str, kind: str, text: str, samples: Mapping[str, float]) -> None:
        lines.append(f"# HELP sipsched_{name} {text}")
        lines.append(f"# TYPE sipsched_{name} {kind}")
        lines.extend(f"sipsched_{name}{labels} {value:.10g}" for labels, value in samples.items())

    def labelled(key: str, values: Mapping[str, float]) -> dict[str, float]:
        return {f'{{{key}="{_escaped(name)}"}}': value for name, value in values.items()}

    add(
        "messages_total",
        "counter",
        "Received messages by method or status.",
        labelled("name", sums.messages),
    )
    add("calls_total", "counter", "INVITE requests with a new Call-ID.", {"": sums.calls})
    add("datagrams_total", "counter", "Datagrams received by programs.", {"": sums.datagrams})
    add("drops_total", "counter", "Lost datagrams by cause.", labelled("cause", sums.drops))
    add("receive_errors_total", "counter", "Rejected datagrams.", {"": sums.receive_errors})
    add("lost_records_total", "counter", "Records that the probe lost.", {"": sums.lost})
    add(
        "unmatched_messages_total",
        "counter",
        "Messages whose arrival the probe did not find.",
        {"": sums.unmatched},
    )
    add(
        "recorded_seconds_total",
        "counter",
        "Seconds in which the probe recorded.",
        {"": sums.recorded_s},
    )
    add(
        "other_programs_cpu_seconds_total",
        "counter",
        "CPU time of other programs, in the seconds in which they were among the three with the most CPU time.",
        labelled("program", sums.others_s),
    )
    last = total(seconds)
    for name, counts in (("waiting", last.waiting), ("service", last.service)):
        known = {
            f"{PERCENTILES[key]:g}": value / 1e6
            for key, value in percentiles_us(counts).items()
            if not math.isnan(value)
        }
        add(
            f"{name}_seconds",
            "gauge",
            f"Quantiles of the {name} time over the last seconds.",
            labelled("quantile", known),
        )
    add(
        "worker_busy_ratio",
        "gauge",
        "Share of the time that a worker used a CPU.",
        labelled("worker", {name: last.share(s) for name, s in last.busy_s.items()}),
    )
    if seconds:
        add(
            "queue_bytes",
            "gauge",
            "Memory of the queued messages, in bytes.",
            {"": seconds[-1].queued_bytes},
        )
        add(
            "cpu_busy_ratio",
            "gauge",
            "Used share of the CPUs on which workers may run.",
            {"": last.share(last.cpu_s)},
        )
        add(
            "cpu_stolen_ratio",
            "gauge",
            "Stolen share of the CPUs on which workers may run.",
            {"": last.share(last.stolen_s)},
        )
        add("tcp_connections", "gauge", "Open TCP connections.", {"": seconds[-1].connections})
        add("recording", "gauge", "1 if the probe records.", {"": seconds[-1].recording})
        add("proxy_processes", "gauge", "Processes of the proxy.", {"": seconds[-1].processes})
    return "\n".join(lines) + "\n"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


# ---- advice ----


@dataclass(frozen=True)
class CauseInWords:
    """The cause of a problem of the proxy, the evidence, and a command that solves the problem, as text."""

    cause: str
    evidence: str
    command: str


def advice(causes: Sequence[ShownCause], program: str) -> list[CauseInWords]:
    """Return the text for each detected cause of waiting or drops: the cause, the evidence and a command."""
    return [_advice(finding, program) for finding in causes]


# The function `_advice` is longer than others, because each cause has its own sentences, and the causes share phrases.
def _advice(finding: ShownCause, program: str) -> CauseInWords:
    values = finding.values
    share = f"In {finding.seconds} of {plural(finding.of, 'second')}"
    workers = WORKERS.get(program, "the setting for the number of workers of your proxy")
    restart = f"then restart {program}"
    if finding.cause is Cause.BURSTS:
        size = _buffer_bytes(values["bytes"])
        buffer = BUFFER.get(program, "set SO_RCVBUF of the socket to BYTES").replace("BYTES", size)
        return CauseInWords(
            f"The receive buffer was too small for the bursts: {grouped(values['drops'])} datagrams were dropped.",
            f"{share} with drops, the workers were busy {100 * values['busy']:.0f} % of the time. They could "
            "therefore have served the dropped messages a little later. The socket's queue held up to "
            f"{grouped(values['bytes'])} bytes.",
            f"`sysctl -w net.core.rmem_max={size}`; {buffer}; {restart}",
        )
    wait = f"The 99th percentile of the waiting time was {number(values['wait_us'])} µs."
    busy = f"the workers were busy {100 * values['busy']:.0f} % of the time"
    if finding.cause is Cause.TOO_FEW_WORKERS:
        return CauseInWords(
            "The proxy has too few workers.",
            f"{share}, {busy}. The CPUs on which the workers may run were busy only {100 * values['cpu_busy']:.0f} % "
            f"of the time. {wait}",
            f"raise N above {values['workers']:.0f}: {workers}; {restart}",
        )
    if finding.cause is Cause.SLEEPING_WORKERS:
        return CauseInWords(
            "Messages waited while the workers that served other messages slept.",
            f"{share}, {busy}. During {100 * values['off_cpu']:.0f} % of the service time they slept, for example "
            f"because they waited for a lock, a database or DNS. {wait}",
            "find the reason for the sleep with: `strace -c -f -p PID`; or start more workers, which can serve "
            f"messages meanwhile: raise N: {workers}; {restart}",
        )
    delayed = (
        f"Workers waited for a CPU during {100 * values.get('delayed', math.nan):.0f} % of the time in which they "
        "could have run."
    )
    if finding.cause is Cause.COMPETITOR:
        return CauseInWords(
            f"The program {finding.program} competes with the proxy for the CPUs.",
            f"{share}, the workers' CPUs were busy {100 * values['cpu_busy']:.0f} % of the time, and "
            f"{finding.program} used {100 * values['share']:.0f} % of one CPU. {delayed} {wait}",
            f"move {finding.program} to other CPUs: `taskset --all-tasks --cpu-list --pid CPUS $(pidof "
            f"{finding.program})`; or lower its priority: `renice -n 19 -p $(pidof {finding.program})`",
        )
    if finding.cause is Cause.TOO_MANY_WORKERS:
        return CauseInWords(
            "The proxy has too many workers for its CPUs.",
            f"{share}, {values['workers']:.0f} workers shared {plural(int(values['cpus']), 'CPU')}. During "
            f"{100 * values['off_cpu']:.0f} % of the service time, the worker had no CPU, mostly because another "
            "worker used the CPU. Every other program on these CPUs used less than a tenth of a CPU.",
            f"lower N towards {values['cpus']:.0f}, and watch again: {workers}; {restart}",
        )
    if finding.cause is Cause.CPU_LIMIT:
        return CauseInWords(
            "The CPU limit of the control group stopped the proxy.",
            f"{share}, the proxy's control group used up its CPU time for a period, and the kernel stopped the proxy "
            f"until the next period. This happened {plural(int(values['times']), 'time')}, for "
            f"{number(values['throttled_s'])} s in total over all CPUs. {wait}",
            "raise the limit: `docker update --cpus N CONTAINER`; or `systemctl set-property UNIT CPUQuota=N%`; or "
            "write max to the file `cpu.max` of the control group that `/proc/PID/cgroup` names",
        )
    if finding.cause is Cause.HOT_CONNECTION:
        return CauseInWords(
            "One worker is saturated, because it serves the busiest TCP connection.",
            f"{share}, one worker was busy {100 * values['hottest']:.0f} % of the time and received "
            f"{100 * values['share']:.0f} % of the messages. On average, {busy}. "
            f"{plural(int(values['connections']), 'TCP connection')} were open.",
            "let the peer spread its calls over several connections, such as one per worker; more workers would not "
            "help",
        )
    return CauseInWords(
        "The proxy needs more CPU time than its CPUs have.",
        f"{share}, the CPUs on which the workers may run were busy {100 * values['cpu_busy']:.0f} % of the time, and "
        f"the workers used {100 * values['used']:.0f} % of these CPUs' time. {delayed} {wait}",
        "give the proxy more CPUs and at least one worker per CPU, or send some of its calls to another machine; more "
        "workers on the same CPUs would not help",
    )


def _buffer_bytes(largest: float) -> str:
    """Return the size for a receive buffer as text: twice the largest queue, rounded up to a power of two."""
    return str(1 << max(20, math.ceil(math.log2(max(2 * largest, 1)))))


def advice_lines(seconds: Sequence[Second], program: str) -> list[str]:
    """Return sentences for the terminal with advice against waiting and drops, or why no advice is possible."""
    causes, reason = findings(seconds)
    if reason:
        return [f"No advice: {reason}."]
    if not causes:
        return [NO_CAUSE]
    return [
        f"{cause.cause} {cause.evidence} To change it: {cause.command}.".replace("`", "")
        for cause in advice(causes, program)
    ]


# ---- the page ----


def headroom_of(messages: xr.Dataset | None, sums: Totals) -> Headroom | str:
    """Return the headroom of a watched proxy without a simulation, or a sentence that says why it is unknown.

    A simulation would use all CPUs of this machine for half a minute, and the watched proxy may run on these CPUs.
    """
    if messages is None:
        return (
            "The headroom is unknown, because the watch recorded no single messages. To record them, omit the option "
            "--histograms."
        )
    lack = Lack.BREAKS if sums.recorded_s < sums.seconds else lack_of_messages(messages)
    if lack:
        return f"The headroom is unknown. {LACKS[lack]}"
    try:
        server = Server.of(messages)
    except StableError as error:
        return f"The headroom is unknown. The command `fab headroom` reports: {error}."
    return headroom(latest(messages, MOST_MESSAGES), server, None)


def write_page(
    path: Path,
    document: WatchDocument,
    seconds: Sequence[Second],
    messages: xr.Dataset | None,
    sums: Totals,
    load: Headroom | str,
) -> None:
    """Write the HTML page about a watched proxy.

    Parameters
    ----------
    seconds
        The last seconds, for advice and figures.
    sums
        The sums since the start of the watch.
    messages
        The content of `messages.nc`. None if the watch keeps no single messages.
    load
        The result of `headroom_of`.
    """
    page = Page(TITLE, (Title(TITLE), *_parts(document, seconds, messages, sums, load)))
    with whole(path) as partial:
        partial.write_text(html.document(page), encoding="utf-8")


def _parts(
    document: WatchDocument,
    seconds: Sequence[Second],
    messages: xr.Dataset | None,
    sums: Totals,
    load: Headroom | str,
) -> Iterator[Part]:
    cost = probe_cost(seconds)
    yield Words(tuple(_summary(document, sums, cost)))
    yield Section("Advice", "", (Words(tuple(advice_lines(seconds, document.program))),))
    yield section(load)
    yield Section("Times", "", (_times_table(document, sums), *_ccdf(messages)))
    yield Section("Over time", "", (_over_time(seconds),))
    yield Section("Messages", "", (_names_table(sums), *_joined(messages)))
    yield Section("Drops and errors", "", (_ledger(document, sums),))
    yield Section("CPU time", "", (_cpu_table(sums),))
    yield Heading(
        FIDELITY,
        TESTBED,
        f"{document.program}, kernel {document.kernel}, probe: {document.probe_mode}",
    )


def _summary(document: WatchDocument, sums: Totals, cost: Interval) -> Iterator[str]:
    ports = [f"UDP port {port}" for port in document.udp_ports]
    ports += [f"TCP port {document.tcp_port}"] if document.tcp_port else []
    yield (
        f"{document.program} was watched on {listed(ports)} for {number(sums.seconds)} s. The probe recorded for "
        f"{number(sums.recorded_s)} s of this time."
    )
    if sums.recorded_s:
        yield (
            f"The proxy received {number(sums.per_s(sums.received))} messages and {number(sums.per_s(sums.calls))} "
            "calls per second."
        )
    if document.one_in > 1:
        yield f"The numbers of messages are estimates, because the probe recorded only one call in {document.one_in}."
    if document.probe_mode == HISTOGRAMS:
        yield (
            "In this watch, the kernel only counted the times in histograms. This page therefore has no data of "
            "single messages, and cannot say whether workers slept while they served a message."
        )
    if document.restarts:
        yield f"The proxy was restarted {plural(document.restarts, 'time')}."
    if document.unwatched:
        yield f"These sockets were not watched: {listed(document.unwatched)}."
    if document.not_written:
        yield (
            f"{plural(document.not_written, 'record')} of single messages could not be written to the file. All "
            "other numbers on this page include these messages."
        )
    yield cost_line(cost) if cost.known else _unknown_cost(document)


def _unknown_cost(document: WatchDocument) -> str:
    """Return a sentence that says why the CPU time that the probe costs is unknown."""
    if not document.udp_ports:
        return (
            "The CPU time that the probe costs was not measured, because `fab watch` can only measure the cost per UDP "
            "datagram."
        )
    if document.cpu_limit is None:
        return "The CPU time that the probe costs was not measured. `fab watch --cpu` measures this cost."
    return (
        "The CPU time that the probe costs is unknown, because too few comparable seconds with and without the probe "
        "were recorded."
    )


def cost_line(cost: Interval) -> str:
    """Return a sentence about the measured CPU time that the probe costs per message."""
    share = in_words(cost.map(lambda ratio: 100 * ratio), "%")
    return f"While the probe recorded, it cost {share} of the proxy's CPU time per message."


def _times_table(document: WatchDocument, sums: Totals) -> Table:
    rows = []
    for name, counts in (("K_rcv: waiting", sums.waiting), ("T_sip: service", sums.service)):
        known = percentiles_us(counts)
        if counts.sum():
            rows.append(
                (name, grouped(int(counts.sum())), *(number(known[key]) for key in PERCENTILES))
            )
    return Table(
        identity="table-times",
        header=("time", "messages", *(f"{key} (µs)" for key in PERCENTILES)),
        rows=tuple(rows),
        caption=(
            "Percentiles of the times of messages. The probe measured these times only during a quarter of the "
            "watch. Each percentile is within 2 % of the exact value."
            if document.probe_mode == HISTOGRAMS
            else "Percentiles of the times of all recorded messages. Each percentile is within 1 % of the exact value."
        ),
        none="No message with a time was recorded.",
    )


def _ccdf(messages: xr.Dataset | None) -> Iterator[Figure]:
    if messages is not None and messages.sizes["message"]:
        yield ccdf([place_in_time(messages, run_of(messages))])


def run_of(messages: xr.Dataset) -> Run:
    """Return a `Run` with the testbed, proxy and load of a watch, because some figures accept only runs."""
    keys = ("testbed", "sut", "mode", "cores", "threads", "cps", "rep")
    return Run(*(messages.attrs[key] for key in keys))


def _over_time(seconds: Sequence[Second]) -> Part:
    recorded = [second for second in seconds if second.recording and second.received]
    if not recorded:
        return Words(("The probe recorded no message in any second.",))
    at = [second.t_s for second in recorded]
    series = (
        ("messages per second", [second.received / second.length_s for second in recorded]),
        (
            "p99 of K_rcv (µs)",
            [percentiles_us(total([second]).waiting)["p99"] for second in recorded],
        ),
        (
            "workers busy (%)",
            [
                100 * float(np.mean([w.busy for w in second.workers] or [np.nan]))
                for second in recorded
            ],
        ),
    )

    def draw(axis: Axes, row: int, column: int) -> None:
        _, values = series[row]
        # In the second in which the proxy starts, the busy share of its workers is unknown.
        known = [(t, v) for t, v in zip(at, values, strict=True) if not math.isnan(v)]
        titles = [f"{t:.0f} s: {number(v)}" for t, v in known]
        draw_line(axis, [t for t, _ in known], [v for _, v in known], look(0), titles)
        axis.set_ylim(0, None)

    return Figure(
        identity="figure-seconds",
        draw=panels(
            [name for name, _ in series], [""], draw, "time since the start (s)", shared=("all", "")
        ),
        caption="The number of received messages, the 99th percentile of the waiting time K_rcv, and the busy share "
        "of the workers, in each second.",
    )


def _names_table(sums: Totals) -> Table:
    return Table(
        identity="table-names",
        header=("method or status", "messages", "per second"),
        rows=tuple(
            (name, grouped(count), number(sums.per_s(count)))
            for name, count in sums.messages.most_common()
        ),
        caption="Number of received messages for each method or status. The letter x in a status stands for any digit.",
        none="No message was recorded.",
    )


def _joined(messages: xr.Dataset | None) -> Iterator[Table]:
    """Yield a table that counts the recorded messages by event, such as an arrival or an answer by the proxy."""
    if messages is None or not messages.sizes["message"]:
        return
    flags = messages["flags"].to_numpy()
    types = messages["message_type"].to_numpy()
    sent = flags & (FLAGS["nothing_sent"] | ANSWERED) == 0
    rows = (
        ("arrival found", flags & FLAGS["arrival_not_found"] == 0),
        ("sent on by the proxy", sent),
        ("answered by the proxy itself", flags & ANSWERED != 0),
        (
            "nothing was sent, for example after an ACK to the proxy",
            flags & FLAGS["nothing_sent"] != 0,
        ),
        ("departure seen", sent & (flags & FLAGS["departure_not_seen"] == 0)),
        ("retransmission", types == 7),
        ("no SIP message", messages["name"].to_numpy() == NAMES["not SIP"]),
    )
    yield Table(
        identity="table-joined",
        header=("single messages", "rows", "share (%)"),
        rows=tuple(
            (name, grouped(int(mask.sum())), number(100 * float(mask.mean())))
            for name, mask in rows
        ),
        caption="For each event that the probe can record, the number of messages (rows of messages.nc) with this "
        "event. A message can have several events.",
        none="",
    )


def _ledger(document: WatchDocument, sums: Totals) -> Table:
    rows = [
        ("datagrams that arrived", sums.arrived),
        ("received by the proxy as a message", sums.received - sums.over_tcp),
        *((f"dropped: {cause}", count) for cause, count in sums.drops.items()),
        ("rest: for other sockets, or not recorded", sums.rest),
        ("messages over TCP", sums.over_tcp),
        ("receive errors", sums.receive_errors),
        ("records that the probe lost", document.lost),
        (
            "timed datagrams that no worker received"
            if document.probe_mode == HISTOGRAMS
            else "messages without a known arrival",
            sums.unmatched,
        ),
        ("records that could not be written", document.not_written),
    ]
    return Table(
        identity="table-ledger",
        header=("count", "number"),
        rows=tuple((name, grouped(count)) for name, count in rows),
        caption="Datagrams and losses during the watch. The number of datagrams that arrived is the sum of the "
        "received messages, the drops and the rest. The rest contains datagrams of other sockets, datagrams of "
        "seconds in which the probe did not record, and messages that the probe missed. The rest can be slightly "
        "negative, because the kernel and the probe do not count at the same moment.",
        none="",
    )


def _cpu_table(sums: Totals) -> Table:
    rows = [(f"worker {name}", number(100 * sums.share(s))) for name, s in sums.busy_s.items()]
    rows += [
        (name, number(100 * sums.share(s)))
        for name, s in sorted(sums.others_s.items(), key=lambda item: -item[1])
        if sums.share(s) >= LEAST_SHOWN
    ]
    rows.append(
        ("CPUs on which the workers may run (mean per CPU)", number(100 * sums.share(sums.cpu_s)))
    )
    return Table(
        identity="table-cpu",
        header=("task or program", "CPU time (% of one CPU)"),
        rows=tuple(rows),
        caption="CPU time of each task. The time of another program is counted only in seconds in which this program "
        "was among the three programs with the most CPU time.",
        none="",
    )
