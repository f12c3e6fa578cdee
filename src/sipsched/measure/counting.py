"""Control of programs that run on the proxy's host during a load and write a JSON report when they end."""

from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Any

from sipsched.errors import StableError
from sipsched.files import parse_json
from sipsched.testbed.host import Host, Process
from sipsched.testbed.inventory import native_folder

READY_TIMEOUT_S = 60
"""Seconds after which a program must be ready.

In an emulated guest, the kernel's check of BPF programs takes more than 10 s.
"""


def read_report(host: Host, path: PurePosixPath) -> Any:
    """Return the parsed content of a JSON file on a host.

    Raises
    ------
    StableError
        The file is missing or not JSON.
    """
    try:
        return parse_json(host.run(["cat", str(path)], check=False).stdout)
    except ValueError as error:
        raise StableError(f"host {host.spec}: {path.name}: {error}") from None


class ReportingProgram:
    """A program on the proxy's host that writes a JSON report when it ends (options `--report` and `--ready`).

    Parameters
    ----------
    part, name
        Folder of the program below `hardware/`, and name of the program. The names of the program's files on the host
        begin with the name of the program.
    limit_s
        Seconds after which the host stops the program.
    suffix
        Text that is added to the names of the files, so that several processes can run the program at the same time.
    """

    def __init__(self, sps: Host, part: str, name: str, limit_s: float, suffix: str = "") -> None:
        self._path = native_folder(sps.base, part) / name
        name += suffix
        self._sps, self._name, self._limit_s = sps, name, limit_s
        self._report, self._ready = sps.workdir / f"{name}.json", sps.workdir / f"{name}.ready"
        self._process: Process | None = None

    @property
    def where(self) -> str:
        """The host and the file name of the report, for error messages."""
        return f"host {self._sps.spec}: {self._report.name}"

    @property
    def is_running(self) -> bool:
        """True if the program was started and has not ended yet."""
        return self._process is not None and self._sps.is_running(self._process)

    def start(self, options: Sequence[str], groups: Sequence[Process] = ()) -> str:
        """Start the program. Return an empty text on success, or the reason why the program does not run.

        Parameters
        ----------
        options
            Further arguments of the program.
        groups
            Processes of the proxy. The program counts the process groups of these processes (option `--group`).
        """
        sps = self._sps
        if sps.run(["test", "-x", str(self._path)], check=False).exit_code != 0:
            return f"{self._name} is not built on this host"
        sps.run(["rm", "-f", str(self._report), str(self._ready)])
        argv = [str(self._path), "--report", str(self._report), "--ready", str(self._ready)]
        for process in groups:
            argv += ["--group", sps.run(["cat", str(process.pid_file)]).stdout.strip()]
        self._process = sps.start(
            self._name, [*argv, *options], cpus=sps.spec.helper_cpus, limit_s=self._limit_s
        )
        if sps.wait_while_running(
            self._process,
            '[ -e "$1" ]',
            self._ready,
            what=f"{self._name} is not ready",
            timeout_s=READY_TIMEOUT_S,
        ):
            return ""
        log = sps.run(["cat", str(self._process.log_file)], check=False).stdout.strip()
        return log or f"{self._name} ended before it was ready"

    def end(self) -> Any:
        """Stop the program and return its report.

        Raises
        ------
        StableError
            The report is missing or not JSON.
        """
        self.stop()
        return read_report(self._sps, self._report)

    def stop(self) -> None:
        """Stop the program if it was started."""
        if self._process:
            self._sps.stop(self._process)
