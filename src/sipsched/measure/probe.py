"""The probe on the SPS: which one, its life beside the proxy, and the trace it leaves."""

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

import numpy as np
import zstandard

from sipsched.errors import SipschedError, StableError
from sipsched.files import parse_json
from sipsched.measure.hoststate import read_files
from sipsched.records.record import TRACE_FILE
from sipsched.records.run_document import ProbeReport, as_part
from sipsched.records.trace import HEADER, RECORD
from sipsched.testbed.host import Host, Process
from sipsched.testbed.inventory import native_folder

READY_TIMEOUT_S = 15
CONTROL_SOCKET = "probe.control"
"""Below the SPS's working folder: takes `off` and `on` (hardware/probe/sipprobe.c)."""
RING_BYTES = 16 * 2**20
"""Records on their way from the kernel to the probe's writer: 16 MiB hold about 0.1 s of 180,000 records/s."""
FIFO_PRIORITY = 11
"""Of the probe's writer: above that of the generators; it takes 1 to 3 % of a CPU."""
RAISE = 'chrt --fifo --all-tasks --pid "$1" "$(pgrep --parent "$(cat "$2")")"'
TRACE_BYTES_PER_CALL = 6 * RECORD.itemsize
ZSTD_LEVEL = 1
FULL_BYTES = 1 << 20
"""A disk with less than this is full."""


class Probe(Protocol):
    """What a run asks of a probe, in this order."""

    def begin(self) -> None:
        """Forget what was measured so far: the warm-up is over."""

    def end(self, folder: Path) -> ProbeReport:
        """Stop, leave the compressed trace in `folder` and give the probe's report."""


class BpfProbe:
    """`sipprobe`: six stamps a message by eBPF, over UDP and over TCP."""

    def __init__(self, sps: Host, process: Process) -> None:
        self._sps = sps
        self._process = process
        self._begun = 0

    @classmethod
    def start(
        cls,
        sps: Host,
        program: str,
        mode: str,
        limit_s: float,
        *,
        peer_port: int | None = None,
        controlled: bool = False,
    ) -> "BpfProbe":
        """Start the probe and wait until it is attached; workers that start later are found by `begin`.

        Parameters
        ----------
        sps
            The host of the proxy.
        program
            Name of the proxy's worker processes.
        mode
            `auto`, `exact` or `tracepoint`; or `stream`, which is SIP over TCP.
        limit_s
            Longest life of the probe.
        peer_port
            Of a stream: the port that the proxy connects to.
        controlled
            Whether it listens at `CONTROL_SOCKET`, to have its recording switched.

        Raises
        ------
        StableError
            It cannot run on this kernel; the message is the probe's own.
        """
        folder = sps.workdir
        files = ["trace.bin", "probe.json", "probe.ready", TRACE_FILE]
        sps.run(["rm", "-f", *(str(folder / name) for name in files)])
        argv = [
            *(str(native_folder(sps.base, "probe") / "sipprobe"), "run", "--mode", mode),
            *("--port", str(sps.spec.sip_port), "--comm", program),
            *("--output", str(folder / "trace.bin"), "--report", str(folder / "probe.json")),
            *("--ready", str(folder / "probe.ready"), "--ring-bytes", str(RING_BYTES)),
            *(("--peer-port", str(peer_port)) if peer_port is not None else ()),
            *(("--control", str(folder / CONTROL_SOCKET)) if controlled else ()),
        ]
        process = sps.start("probe", argv, cpus=sps.spec.helper_cpus, limit_s=limit_s)
        probe = cls(sps, process)
        try:
            probe._wait_for("ready", 1)
            # on a CPU shared with generators that may not wait, the ring would run over; not before, since loading
            # takes 0.2 s of a CPU that others start on
            sps.shell(RAISE, FIFO_PRIORITY, process.pid_file)
        except SipschedError as error:
            said = sps.run(["cat", str(process.log_file)], check=False).stdout.strip()
            sps.stop(process)
            raise StableError(f"host {sps.spec}: probe: {said or error}") from error
        return probe

    def begin(self) -> None:
        """Look for the proxy's workers and start the trace afresh."""
        self._begun += 1
        self._sps.signal(self._process, "USR1")
        self._wait_for("fresh", self._begun)

    def end(self, folder: Path) -> ProbeReport:
        """Stop the probe, compress the trace on the host and fetch it."""
        sps = self._sps
        sps.stop(self._process)
        log_file, report_file = str(self._process.log_file), str(sps.workdir / "probe.json")
        files = read_files(sps, (report_file, log_file))
        log, text = files.get(log_file, "").strip(), files.get(report_file, "")
        if not text.rstrip().endswith("}"):
            if sps.free_bytes(sps.workdir) < FULL_BYTES:
                raise StableError(
                    f"host {sps.spec}: disk full at {sps.workdir}: No space left on device for the "
                    "probe's files"
                )
            raise StableError(
                f"host {sps.spec}: probe ended without a report: {log or 'no message'}"
            )
        report = parse_report(text, f"host {sps.spec}: probe.json")
        compressed = sps.workdir / TRACE_FILE
        zstd = ["zstd", "-q", "-f", f"-{ZSTD_LEVEL}", "--rm", str(sps.workdir / "trace.bin")]
        sps.run([*zstd, "-o", str(compressed)], timeout_s=120)
        sps.get_file(compressed, folder / TRACE_FILE)
        sps.run(["rm", "-f", str(compressed)])
        return report

    def _wait_for(self, word: str, times: int) -> None:
        said = self._sps.wait_while_running(
            self._process,
            '[ "$(grep -cs "$1" "$2")" = "$3" ]',
            word,
            self._sps.workdir / "probe.ready",
            times,
            what=f"probe does not say '{word}'",
            timeout_s=READY_TIMEOUT_S,
        )
        if not said:
            raise StableError(f"host {self._sps.spec}: the probe ended before it said '{word}'")


def parse_report(text: str, where: str) -> ProbeReport:
    """Read the report of `sipprobe` (hardware/probe/report.c).

    Raises
    ------
    StableError
        It is not JSON, or lacks what a run's record needs.
    """
    try:
        return as_part(ProbeReport, parse_json(text), where)
    except ValueError as error:
        raise StableError(f"{where}: {error}") from None


class PreloadProbe:
    """`libsipstamp.so`: three stamps a message and the drop counter, where BPF is not allowed."""

    def __init__(self, sps: Host, reason: str) -> None:
        self._sps = sps
        self._reason = reason
        self._stamps = sps.workdir / "stamps"
        self._t_begin_ns = 0
        self._refused_before = 0
        sps.run(["rm", "-rf", str(self._stamps)])
        sps.run(["mkdir", "-p", str(self._stamps)])

    def environment(self) -> Mapping[str, str]:
        """Give the variables that load the library into the proxy."""
        return {
            "LD_PRELOAD": str(native_folder(self._sps.base, "probe") / "libsipstamp.so"),
            "SIPSTAMP_DIR": str(self._stamps),
            "SIPSTAMP_PORT": str(self._sps.spec.sip_port),
        }

    def begin(self) -> None:
        """Note the instant: the warm-up's messages are cut off by it."""
        # ASSUME the host was never suspended: /proc/uptime then equals CLOCK_MONOTONIC, to 10 ms
        uptime = self._sps.run(["cat", "/proc/uptime"]).stdout.split()[0]
        self._t_begin_ns = round(float(uptime) * 1e9)
        self._refused_before = self._refused()

    def _refused(self) -> int:
        """Datagrams that the socket refused since it was made, as the kernel told the last worker."""
        size = HEADER["reserved"].itemsize
        offset = HEADER.itemsize - size  # the header's last field
        script = 'for f in "$1"/*; do od -An -tu4 "-j$2" "-N$3" "$f"; done'
        told = self._sps.shell(script, self._stamps, offset, size, check=False).stdout.split()
        return max(map(int, told), default=0)

    def end(self, folder: Path) -> ProbeReport:
        """Fetch each worker's trace and join them into one."""
        refused = self._refused() - self._refused_before
        names = self._sps.run(["ls", str(self._stamps)]).stdout.split()
        parts = []
        header = np.zeros(1, HEADER)
        for name in names:
            local = folder / name
            self._sps.get_file(self._stamps / name, local)
            data = local.read_bytes()
            local.unlink()
            header = np.frombuffer(data, HEADER, count=1)
            size = RECORD.itemsize
            count = (len(data) - HEADER.itemsize) // size
            records = np.frombuffer(data, RECORD, count, HEADER.itemsize)
            parts.append(records[records["t_sip_in"] >= max(self._t_begin_ns, 1)])
        if not parts:
            raise StableError(
                f"host {self._sps.spec}: the preload library wrote no trace to {self._stamps}"
            )
        records = np.sort(np.concatenate(parts), order="t_sip_in")
        trace = header.tobytes() + records.tobytes()
        (folder / TRACE_FILE).write_bytes(zstandard.compress(trace, ZSTD_LEVEL))
        return ProbeReport(
            mode="preload",
            mode_reason=self._reason,
            records=int(records.size),
            drops=0,
            lost=0,
            refused_unseen=refused,
        )


class NoProbe:
    """Time nothing: for control runs that show what the probe costs."""

    def begin(self) -> None:
        """Do nothing."""

    def end(self, folder: Path) -> ProbeReport:
        """Report that there is no trace."""
        return ProbeReport(mode="off", mode_reason="asked for", records=0, drops=0, lost=0)
