"""Control of the probes, the programs that timestamp messages on the proxy's host."""

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

import numpy as np
import zstandard

from sipsched.errors import DISK_FULL, SipschedError, StableError
from sipsched.measure.hoststate import read_files
from sipsched.records.conversion import part_of_json
from sipsched.records.probe_report import ProbeReport
from sipsched.records.record import TRACE_FILE
from sipsched.records.trace import HEADER, RECORD, ProbeMode
from sipsched.testbed.host import Host, Process
from sipsched.testbed.inventory import native_folder

READY_TIMEOUT_S = 15
CONTROL_SOCKET = "probe.control"
"""Name of the socket that receives the commands `off` and `on` for the recording (hardware/probe/sipprobe.c)."""
RING_BYTES = 16 * 2**20
"""Size of the ring buffer between the kernel and the probe. 16 MiB hold 0.1 s of 180,000 records/s."""
FIFO_PRIORITY = 11
"""Real-time priority of the probe's writer, above the generators' priority. The writer uses only 1 to 3 % of a CPU."""
RAISE = 'chrt --fifo --all-tasks --pid "$1" "$(pgrep --parent "$(cat "$2")")"'
READ_NUMBER = 'od --address-radix=n --format=u4 --skip-bytes="$2" --read-bytes=4 "$1"'
"""Shell script that prints the four bytes at the position "$2" of the file "$1" as an unsigned number."""
MODE_AT = HEADER.itemsize - HEADER["mode"].itemsize - HEADER["reserved"].itemsize
"""Position in bytes of the field `mode` in the header of a trace. Only the field `reserved` follows after `mode`."""
TRACE_BYTES_PER_CALL = 6 * RECORD.itemsize
ZSTD_LEVEL = 1
FULL_BYTES = 1 << 20
"""Free space in bytes below which a disk is considered full."""


class Probe(Protocol):
    """The interface of a probe. A run calls `begin` after the warm-up, and `end` after the load."""

    def begin(self) -> None:
        """Discard all records of the warm-up."""

    def mode(self) -> str:
        """Return the mode of the running probe, such as `exact` or `preload`."""

    def end(self, folder: Path) -> ProbeReport:
        """Stop the probe, write its compressed trace to `folder`, and return the probe's report."""


class BpfProbe:
    """The probe `sipprobe`, which takes six timestamps per message with BPF programs, over UDP and TCP."""

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
        ports: int = 1,
        peer_port: int | None = None,
        controlled: bool = False,
    ) -> "BpfProbe":
        """Start the probe, and wait until its BPF programs are attached to the kernel.

        Parameters
        ----------
        program
            Name of the worker processes of the proxy.
        mode
            `auto`, `exact` or `tracepoint`; `stream` for SIP over TCP.
        limit_s
            Seconds after which the host stops the probe.
        ports
            Number of consecutive UDP ports of the proxy's instances.
        peer_port
            For `stream`, the remote port of the proxy's connections.
        controlled
            Whether the probe listens on `CONTROL_SOCKET`, so that a run can switch the recording.

        Raises
        ------
        StableError
            The probe cannot run on this kernel. The error contains the message of the probe.
        """
        folder = sps.workdir
        files = ["trace.bin", "probe.json", "probe.ready", TRACE_FILE]
        sps.run(["rm", "-f", *(str(folder / name) for name in files)])
        argv = [
            *(str(native_folder(sps.base, "probe") / "sipprobe"), "run", "--mode", mode),
            *("--port", str(sps.spec.sip_port), "--ports", str(ports), "--comm", program),
            *("--output", str(folder / "trace.bin"), "--report", str(folder / "probe.json")),
            *("--ready", str(folder / "probe.ready"), "--ring-bytes", str(RING_BYTES)),
            *(("--peer-port", str(peer_port)) if peer_port is not None else ()),
            *(("--control", str(folder / CONTROL_SOCKET)) if controlled else ()),
        ]
        process = sps.start("probe", argv, cpus=sps.spec.helper_cpus, limit_s=limit_s)
        probe = cls(sps, process)
        try:
            probe._wait_for("ready", 1)
            # The probe may share a CPU with the load generators, which have a real-time priority.
            # Without a real-time priority, the probe would be too slow to empty its ring buffer.
            # The priority is set after the start, because the start takes 0.2 s of CPU time that other programs need.
            sps.shell(RAISE, FIFO_PRIORITY, process.pid_file)
        except SipschedError as error:
            said = sps.run(["cat", str(process.log_file)], check=False).stdout.strip()
            sps.stop(process)
            raise StableError(f"host {sps.spec}: probe: {said or error}") from error
        return probe

    def begin(self) -> None:
        """Let the probe find the worker processes of the proxy and start a new, empty trace."""
        self._begun += 1
        self._sps.signal(self._process, "USR1")
        self._wait_for("fresh", self._begun)

    def mode(self) -> str:
        """Read the mode from the header of the trace."""
        told = self._sps.shell(READ_NUMBER, self._sps.workdir / "trace.bin", MODE_AT).stdout
        return ProbeMode(int(told)).name.lower()

    def end(self, folder: Path) -> ProbeReport:
        """Stop the probe, compress its trace on the host, and copy the trace to this machine."""
        sps = self._sps
        sps.stop(self._process)
        log_file, report_file = str(self._process.log_file), str(sps.workdir / "probe.json")
        files = read_files(sps, (report_file, log_file))
        log, text = files.get(log_file, "").strip(), files.get(report_file, "")
        if not text.rstrip().endswith("}"):
            if sps.free_bytes(sps.workdir) < FULL_BYTES:
                raise StableError(
                    f"host {sps.spec}: {DISK_FULL} at {sps.workdir}: No space left on device for the "
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
            what=f"the probe does not report '{word}' in probe.ready",
            timeout_s=READY_TIMEOUT_S,
        )
        if not said:
            raise StableError(f"host {self._sps.spec}: the probe ended before it reported '{word}'")


def parse_report(text: str, where: str) -> ProbeReport:
    """Read the report of `sipprobe` (hardware/probe/report.c).

    Raises
    ------
    StableError
        The text is not JSON, or lacks a key that the record needs.
    """
    return part_of_json(ProbeReport, text, where)


class PreloadProbe:
    """A probe for kernels without BPF: the library `libsipstamp.so`, which takes three timestamps per message."""

    def __init__(self, sps: Host, reason: str) -> None:
        self._sps = sps
        self._reason = reason
        self._stamps = sps.workdir / "stamps"
        self._t_begin_ns = 0
        self._refused_before = 0
        sps.run(["rm", "-rf", str(self._stamps)])
        sps.run(["mkdir", "-p", str(self._stamps)])

    def environment(self) -> Mapping[str, str]:
        """Return the environment variables that load the library into the proxy."""
        return {
            "LD_PRELOAD": str(native_folder(self._sps.base, "probe") / "libsipstamp.so"),
            "SIPSTAMP_DIR": str(self._stamps),
            "SIPSTAMP_PORT": str(self._sps.spec.sip_port),
        }

    def begin(self) -> None:
        """Store the time at which the warm-up ends, so that `end` can remove all messages of the warm-up."""
        # ASSUME the host was never suspended, so that /proc/uptime equals CLOCK_MONOTONIC within 10 ms
        uptime = self._sps.run(["cat", "/proc/uptime"]).stdout.split()[0]
        self._t_begin_ns = round(float(uptime) * 1e9)
        self._refused_before = self._refused()

    def mode(self) -> str:
        """Return `preload`, the mode of this probe."""
        return "preload"

    def _refused(self) -> int:
        """Return the number of datagrams that the socket has refused since its creation.

        Each worker stores the last number that it read. The numbers only grow, so the largest number is the latest.
        """
        size = HEADER["reserved"].itemsize
        offset = HEADER.itemsize - size  # The last field, `reserved`, has the number.
        script = 'for f in "$1"/*; do od -An -tu4 "-j$2" "-N$3" "$f"; done'
        told = self._sps.shell(script, self._stamps, offset, size, check=False).stdout.split()
        return max(map(int, told), default=0)

    def end(self, folder: Path) -> ProbeReport:
        """Copy the traces of all workers to this machine, and join them into one trace."""
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
            mode=self.mode(),
            mode_reason=self._reason,
            records=int(records.size),
            drops=0,
            lost=0,
            refused_unseen=refused,
        )


class NoProbe:
    """A substitute for the probe in runs without timestamps. Such runs show how much the probe slows the proxy."""

    def begin(self) -> None:
        """Do nothing, because this substitute records no warm-up."""

    def mode(self) -> str:
        """Return `off`, the mode of a run without a probe."""
        return "off"

    def end(self, folder: Path) -> ProbeReport:
        """Return a report without any records. No trace is written."""
        return ProbeReport(mode=self.mode(), mode_reason="asked for", records=0, drops=0, lost=0)
