"""The command `fab watch`, which watches a SIP proxy in production and writes a record and a page.

Nothing on the proxy's host is changed: no setting, no file, no restart.
"""

import http.server
import json
import math
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import IO, Any

import numpy.typing as npt
import zstandard

from sipsched.analysis.headroom import Headroom
from sipsched.analysis.watched import (
    ASSUMED_COST,
    ASSUMED_COST_OF_HISTOGRAMS,
    Budget,
    Totals,
    probe_cost,
    total,
)
from sipsched.errors import SipschedError, StableError
from sipsched.measure.running_proxy import (
    Target,
    find_proxy,
    namespaces,
    receive_buffer_bytes,
)
from sipsched.measure.watching import (
    CAPABILITIES,
    PROGRAM,
    Means,
    Watching,
    probe_commands,
    read_means,
)
from sipsched.pages.watched import (
    advice_lines,
    cost_line,
    headroom_of,
    lines_of,
    metrics,
    write_page,
)
from sipsched.records.messages import write_messages
from sipsched.records.trace import ProbeMode
from sipsched.records.watch import (
    MESSAGES_FILE,
    PAGE_FILE,
    SECONDS_FILE,
    TRACE_FILE,
    WATCH_FILE,
    Second,
    WatchDocument,
    messages_of_watch,
    trace_header,
    write_watch,
)
from sipsched.testbed.machine import Machine
from sipsched.words import listed

PROBE = PurePosixPath("/var/lib/sipsched/native/probe", PROGRAM)
"""Path of the measuring program (probe) on a host, where `fab provision` builds the program."""
TICK_S = 1.0
MOST_RECORDS = 10_000_000
"""Largest number of message records that a watch writes. With this number, `messages.nc` needs 2 GB of memory."""
MOST_SECONDS = 3600
"""Number of latest seconds whose data stay in memory for advice and figures. An hour needs about 100 MB."""
SEARCHES = 10
"""Number of seconds after a restart of the proxy in which the watch looks for other ports of the proxy."""
METRICS_SECONDS = 15
"""Number of latest seconds that the gauges for Prometheus cover, a usual interval between two scrapes."""


@dataclass(frozen=True)
class WatchOptions:
    """The options of the command `fab watch`.

    Attributes
    ----------
    histograms
        Whether the kernel counts times in histograms, so that no per-message times are recorded.
    cpu
        The largest share of the proxy's CPU time per message that the probe may cost; None: no limit.
    """

    host: str | None = None
    pid: int | None = None
    port: int | None = None
    seconds: float | None = None
    output: Path = Path("watched")
    one_in: int = 1
    histograms: bool = False
    cpu: float | None = None
    metrics: int | None = None
    dry_run: bool = False
    probe: PurePosixPath = PROBE


class Files:
    """The open files into which `fab watch` writes a record. Writing stops at the first error, such as a full disk."""

    def __init__(self, folder: Path, say: Callable[[str], None]) -> None:
        self._say = say
        self.folder = folder
        self.failed = False
        self.written = self.not_written = 0
        self._header = self._full = False
        try:
            folder.mkdir(parents=True)
            self._trace: IO[bytes] = (folder / TRACE_FILE).open("wb", buffering=0)
            self._seconds: IO[bytes] = (folder / SECONDS_FILE).open("wb", buffering=0)
        except FileExistsError:
            raise StableError(
                f"{folder}: exists already; name another folder by --output"
            ) from None
        except OSError as error:
            raise StableError(f"{folder}: {error.strerror}") from None

    def append(self, second: Second, records: npt.NDArray[Any], mode: int) -> None:
        """Write the counts and the messages of one second to the record's files, unless an earlier write has failed.

        `mode` is 0 if no per-message times are recorded. The trace then stays empty.
        """
        if mode and not self._header:
            self._write(self._trace, zstandard.compress(trace_header(ProbeMode(mode))))
            self._header = True
        self.append_records(records)
        self._write(self._seconds, json.dumps(asdict(second)).encode() + b"\n")

    def append_records(self, records: npt.NDArray[Any]) -> None:
        """Write the timestamps of messages to the trace file, up to `MOST_RECORDS` messages in total."""
        if not self._full and self.written + records.size > MOST_RECORDS:
            self._full = True
            self._say(
                f"{self.written} messages are recorded. Further messages are only counted. To record fewer messages, "
                "use --one-in."
            )
        if not records.size:
            return
        if not self._full and self._write(self._trace, zstandard.compress(records.tobytes(), 1)):
            self.written += records.size
        else:
            self.not_written += records.size

    def _write(self, file: IO[bytes], data: bytes) -> bool:
        """Write all bytes to a file and return True. After an error, write nothing and return False."""
        if self.failed:
            return False
        end = file.tell()
        try:
            view = memoryview(data)
            while view:
                view = view[file.write(view) or 0 :]
        except OSError as error:
            self.failed = True
            self._say(
                f"error: cannot write {self.folder}: {error.strerror}; the record ends here, and the display continues"
            )
            with suppress(OSError):
                file.truncate(end)
            return False
        return True

    def close(self) -> None:
        """Close the files into which `fab watch` writes the record."""
        self._trace.close()
        self._seconds.close()


class Terminal:
    """The printed lines of a watch. If a line cannot be printed, for example on a full disk, the watch continues."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._failed = False

    def __call__(self, line: str) -> None:
        """Print a line. Report the first line that cannot be printed on stderr."""
        try:
            self._say(line)
        except OSError as error:
            if not self._failed:
                self._failed = True
                with suppress(OSError):
                    print(
                        f"error: cannot print: {error.strerror}; the watch continues",
                        file=sys.stderr,
                    )


class Stop:
    """The user's request to end `fab watch`, made by Ctrl-C, by SIGTERM, or by closing the terminal (SIGHUP)."""

    def __init__(self) -> None:
        self.asked = threading.Event()

    @contextmanager
    def on_signals(self) -> Iterator[None]:
        """Catch SIGINT, SIGTERM and SIGHUP while the `with` block runs, and set `asked` when a signal arrives."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        numbers = [signal.SIGINT, signal.SIGTERM]
        # The program nohup starts commands with SIGHUP ignored. Keep SIGHUP ignored, so that the watch continues
        # without its terminal.
        if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
            numbers.append(signal.SIGHUP)
        before = {number: signal.signal(number, lambda *_: self.asked.set()) for number in numbers}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def find_target(machine: Machine, options: WatchOptions, others: Collection[int] = ()) -> Target:
    """Return the running proxy to watch, with its ports. With `histograms`, only its UDP ports are watched.

    A proxy in one of the network namespaces `others` is never the proxy to watch.
    """
    target = find_proxy(machine, options.pid, options.port, others)
    if not options.histograms or target.tcp_port is None:
        return target
    if not target.udp_ports:
        raise StableError(
            f"{machine}: --histograms counts datagrams, and {target.proxy} has only TCP; omit --histograms"
        )
    streams = (s for s in target.proxy.sockets if s.transport == "tcp")
    unwatched = tuple(sorted({*target.unwatched, *streams}))
    return replace(target, tcp_port=None, unwatched=unwatched)


def describe(machine: Machine, target: Target, options: WatchOptions, means: Means) -> list[str]:
    """Return lines of text about the proxy, the watched sockets, the commands of the probe, and needed privileges.

    Raises
    ------
    StableError
        The machine lacks the probe.
    """
    ports = [f"UDP {port}" for port in target.udp_ports]
    ports += [f"TCP {target.tcp_port}"] if target.tcp_port else []
    commands = probe_commands(target, options.probe, options.one_in, histograms=options.histograms)
    lines = [
        f"{machine}: {target.proxy}; its tasks: {len(target.proxy.pids)}",
        f"sockets: {listed(ports)}",
    ]
    if target.unwatched:
        lines.append(f"not watched: {listed([str(socket) for socket in target.unwatched])}")
    lines += [
        "attached until the end of the watch:",
        *(f"  {' '.join(argv)}" for argv in commands),
        f"privileges: root, or {listed(CAPABILITIES)}",
        "Nothing on the host is changed: no setting, no file, no restart. The contents of messages stay on the host.",
    ]
    if not means.built:
        raise StableError(
            f"{machine}: no program {options.probe}; build it on that host with: fab provision, or make -C "
            "hardware/probe, and name it by --probe"
        )
    if means.missing:
        lines.append(f"missing privileges: {listed(means.missing)}")
    return lines


def watch(
    options: WatchOptions, say: Callable[[str], None] = print, stop: Stop | None = None
) -> None:
    """Find a running proxy, watch it with the probe, and write a record and a page.

    Raises
    ------
    SipschedError
        No proxy runs, the probe cannot run, or the connection is lost. Earlier data stay in the record.
    """
    say = Terminal(say)
    machine = Machine(options.host)
    target = find_target(machine, options)
    means = read_means(machine, options.probe)
    for line in describe(machine, target, options, means):
        say(line)
    if options.dry_run:
        return
    if means.missing:
        raise StableError(f"{machine}: this user lacks {listed(means.missing)}; log in as root")
    stop = stop or Stop()
    with stop.on_signals(), Metrics(options.metrics) as served:
        files = Files(options.output, say)
        session = _Session(machine, options, files, served, say, stop)
        try:
            session.run(target, means.kernel)
        finally:
            files.close()


class _Session:
    """One execution of `fab watch`, from its start until the page is written."""

    def __init__(
        self,
        machine: Machine,
        options: WatchOptions,
        files: Files,
        served: "Metrics",
        say: Callable[[str], None],
        stop: Stop,
    ) -> None:
        self._machine, self._options, self._files = machine, options, files
        self._served, self._say, self._stop = served, say, stop
        self._seconds: deque[Second] = deque(maxlen=MOST_SECONDS)
        self._sums = total([])
        assumed = ASSUMED_COST_OF_HISTOGRAMS if options.histograms else ASSUMED_COST
        self._budget = Budget(options.cpu, assumed) if options.cpu is not None else None
        self._restarts = 0
        self._modes = ""
        self._workers = 0
        self._mode = 0
        self._buffer: int | None = None

    def run(self, target: Target, kernel: str) -> None:
        started = time.time()
        ended_by, problem = "the user", None
        try:
            following: Target | None = target
            while following is not None:
                target = following
                following = self._watch(target)
        except SipschedError as error:
            problem = error
            ended_by = str(error)
        if problem is None and not self._stop.asked.is_set():
            ended_by = "the end of the time"
        if self._seconds:
            self._finish(target, kernel, started, ended_by)
        if problem is not None:
            raise problem

    def _watch(self, target: Target) -> Target | None:
        """Watch a proxy until the watch ends. If the proxy restarts at other ports, return the restarted proxy."""
        offset = self._seconds[-1].t_s if self._seconds else 0.0
        options = self._options
        self._buffer = receive_buffer_bytes(self._machine, target)
        with Watching(
            self._machine, target, options.probe, options.one_in, histograms=options.histograms
        ) as watching:
            pids: tuple[int, ...] = target.proxy.pids
            # A proxy that already runs in another network namespace cannot be the restarted proxy.
            others = namespaces(self._machine) - {target.proxy.netns}
            searches = 0
            tick = time.monotonic()
            # After a restart of the proxy, only the rest of the requested time is left.
            end = tick + (options.seconds or math.inf) - offset
            try:
                while tick + TICK_S / 2 < end:
                    tick = min(tick + TICK_S, end)
                    if self._stop.asked.wait(max(0.0, tick - time.monotonic())):
                        return None
                    second, records, counters = watching.read()
                    self._keep(second, records, watching, offset)
                    if counters.pids and not set(counters.pids) & set(pids):
                        self._restarts += 1
                        self._say(
                            f"{target.proxy.program} was started again: process {counters.pids[0]}"
                        )
                        searches = SEARCHES
                    pids = counters.pids or pids
                    # A restarted proxy opens its sockets a little later than its process starts.
                    if searches or not counters.pids:
                        searches = max(0, searches - 1)
                        moved = self._moved(target, counters.pids, others)
                        if moved:
                            return moved
                    if self._budget:
                        watching.record(on=self._budget.next(list(self._seconds)))
                return None
            finally:
                # When the probe ends, it writes the records of messages after the last complete second.
                rest = watching.end()
                if rest.size and self._seconds:
                    self._files.append_records(rest)
                self._modes = watching.mode_name
                self._workers = max(self._workers, watching.workers)
                self._mode = watching.mode

    def _moved(
        self, target: Target, pids: tuple[int, ...], others: Collection[int]
    ) -> Target | None:
        """Return the restarted proxy if it runs in another network namespace or at other ports, otherwise None.

        Parameters
        ----------
        pids
            The processes of the restarted proxy, if the watch has already found and counted them.
        others
            Network namespaces of other proxies.
        """
        pid = pids[0] if pids else None
        try:
            found_target = find_target(self._machine, replace(self._options, pid=pid), others)
        except StableError:
            return None
        # A proxy that is still opening its sockets has only some of the watched ports, so a subset counts as the same
        # ports.
        watched = set(found_target.udp_ports) <= set(target.udp_ports)
        watched &= found_target.tcp_port in (None, target.tcp_port)
        if found_target.proxy.netns == target.proxy.netns and watched:
            return None
        self._restarts += not pids
        self._say(f"the proxy runs again: {found_target.proxy}")
        return found_target

    def _keep(
        self, second: Second, records: npt.NDArray[Any], watching: Watching, offset: float
    ) -> None:
        second = replace(second, t_s=second.t_s + offset)
        self._seconds.append(second)
        self._files.append(second, records, watching.mode)
        for line in lines_of(second):
            self._say(line)
        self._sums.add(second)
        self._served.show(list(islice(reversed(self._seconds), METRICS_SECONDS))[::-1], self._sums)

    def _finish(self, target: Target, kernel: str, started: float, ended_by: str) -> None:
        sums = self._sums
        kept = list(self._seconds)
        with_workers = [second for second in kept if second.workers]
        cost = probe_cost(kept)
        document = WatchDocument(
            program=target.proxy.program,
            transports=target.transports,
            udp_ports=target.udp_ports,
            tcp_port=target.tcp_port,
            workers=self._workers,
            # The CPUs of the workers are unknown in a second without workers.
            cpus=max(second.cpus for second in with_workers or kept),
            kernel=kernel,
            probe_mode=self._modes,
            one_in=self._options.one_in,
            started=started,
            seconds=sums.seconds,
            messages=sums.received,
            calls_per_s=sums.per_s(sums.calls) if sums.recorded_s else 0.0,
            ended_by=ended_by,
            restarts=self._restarts,
            lost=sums.lost,
            not_written=self._files.not_written,
            unwatched=[str(socket) for socket in target.unwatched],
            cost=(cost.estimate, cost.low, cost.high) if cost.known else (),
            receive_buffer_bytes=self._buffer,
            cpu_stolen=sums.share(sums.stolen_s) if sums.seconds else 0.0,
            cpu_limit=self._options.cpu,
        )
        for line in advice_lines(kept, target.proxy.program):
            self._say(line)
        if cost.known:
            self._say(cost_line(cost))
        folder = self._files.folder
        try:
            write_watch(folder / WATCH_FILE, document)
            messages = None
            if self._mode:
                messages = messages_of_watch(folder, document)
                write_messages(messages, folder / MESSAGES_FILE)
            else:
                (folder / TRACE_FILE).unlink()
            load = headroom_of(messages, sums)
            write_page(folder / PAGE_FILE, document, kept, messages, sums, load)
        except (OSError, StableError) as error:
            self._say(f"error: the record in {folder} is incomplete: {error}")
            return
        self._say(f"record: {folder}; page: {folder / PAGE_FILE}")
        if isinstance(load, Headroom) and not load.lack:
            self._say(f"headroom: fab headroom --messages {folder / MESSAGES_FILE}")


class Metrics:
    """An HTTP server for Prometheus, which runs during a `with` block if the user has chosen a port.

    The class does not use the library prometheus_client, which would be a new dependency for about thirty lines of
    text.
    """

    def __init__(self, port: int | None) -> None:
        self._text = metrics([], total([]))
        self._server: http.server.ThreadingHTTPServer | None = None
        if port is None:
            return
        shown = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = shown._text.encode()
                self.send_response(200 if self.path in ("/", "/metrics") else 404)
                self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Print nothing, because the terminal shows one line per second of the watch."""

        try:
            self._server = http.server.ThreadingHTTPServer(("", port), Handler)
        except OSError as error:
            raise StableError(f"--metrics {port}: {error.strerror}; choose another port") from None

    def __enter__(self) -> "Metrics":
        """Start the HTTP server in a separate thread."""
        if self._server:
            threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        """Stop the HTTP server."""
        if self._server:
            self._server.shutdown()
            self._server.server_close()

    def show(self, seconds: Sequence[Second], sums: Totals) -> None:
        """Replace the metrics that the HTTP server returns to Prometheus."""
        if self._server:
            self._text = metrics(seconds, sums)
