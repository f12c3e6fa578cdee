"""Control of front ends, which are processes that distribute calls to the instances of a proxy by Call-ID."""

from collections.abc import Sequence
from pathlib import Path

from sipsched.measure.counting import read_report
from sipsched.measure.proxy import MANY_FILES, Proxy, in_root
from sipsched.measure.templates import render
from sipsched.plan.sut import Sut
from sipsched.records.conversion import as_part
from sipsched.records.proxy_report import DispatchReport, FrontReport
from sipsched.testbed.host import Host, Process
from sipsched.testbed.inventory import native_folder

DISPATCHER = "sipdispatch"
MOST_INSTANCES = 250
"""Largest number of proxy instances that sipdispatch and sipshard support (hardware/dispatcher)."""


class Front:
    """The front end that distributes calls to proxy instances: the program `sipdispatch`, or a stateless proxy.

    The front end is part of the SUT. The front end has the same CPUs and the same mode as the proxy instances. The
    SUT's CPU time includes the CPU time of the front end.

    Parameters
    ----------
    cpus
        CPUs of the SPS on which the front end may run.
    limit_s
        Seconds after which the host stops the front end.

    Attributes
    ----------
    process
        The running front end, after `start`.
    config
        Text of the front end's configuration file; None for sipdispatch, which needs no configuration file.
    """

    process: Process

    def __init__(
        self,
        sps: Host,
        proxy: Proxy,
        sut: Sut,
        threads: int,
        cpus: Sequence[int],
        limit_s: float,
    ) -> None:
        self._sps, self._proxy, self._sut = sps, proxy, sut
        self._cpus, self._limit_s = tuple(cpus), limit_s
        first = sps.spec.sip_port + 1
        self._instances = [
            f"{sps.spec.sip_address}:{port}" for port in range(first, first + threads)
        ]
        self._folder, self._report = sps.workdir / "front", sps.workdir / "front.json"
        self.config = self._render() if sut.arrangement.front == "proxy" else None

    @property
    def program(self) -> str:
        """The name of the front end's program."""
        return DISPATCHER if self.config is None else self._proxy.program

    def start(self, prefix: Sequence[str]) -> Process:
        """Start the front end, but do not wait for its socket. The proxy instances must already listen."""
        sps = self._sps
        sps.run(["rm", "-f", str(self._report)])
        argv = self._dispatcher() if self.config is None else self._stateless(self.config)
        self.process = sps.start("front", [*prefix, *argv], cpus=self._cpus, limit_s=self._limit_s)
        return self.process

    def cpu_time_ns(self) -> int:
        """Return the CPU time in ns that the front end has used since its start."""
        return self._sps.cpu_time_ns(self.process)

    def end(self, cpu_ns: int) -> FrontReport:
        """Stop the front end and return its report.

        Parameters
        ----------
        cpu_ns
            CPU time of the front end during the load.

        Raises
        ------
        StableError
            The report of sipdispatch is missing or incomplete.
        """
        sps = self._sps
        sps.stop(self.process)
        dispatched = None
        if self.config is None:
            where = f"host {sps.spec}: {self._report.name}"
            dispatched = as_part(DispatchReport, read_report(sps, self._report), where)
        return FrontReport(self.program, self._cpus, cpu_ns, dispatched)

    def _dispatcher(self) -> list[str]:
        spec = self._sps.spec
        return [
            *MANY_FILES,
            str(native_folder(self._sps.base, "dispatcher") / DISPATCHER),
            *("--listen", f"{spec.sip_address}:{spec.sip_port}", "--report", str(self._report)),
            *(word for one in self._instances for word in ("--instance", one)),
        ]

    def _stateless(self, config: str) -> list[str]:
        sps, folder = self._sps, self._folder
        sps.run(["mkdir", "-p", str(folder)])
        lines = (f"1 sip:{one}\n" for one in self._instances)
        sps.put_text("".join(lines), folder / "instances")
        sps.put_text(config, folder / "front.cfg")
        command = self._proxy.front_command(self._sut, folder / "front.cfg", folder)
        return [*in_root(self._sut, sps), *command]

    def _render(self) -> str:
        return render(
            Path("proxies", f"{self._proxy.program}-front.cfg.j2"),
            sut=self._sut,
            cores=len(self._cpus),
            folder=self._folder,
            sps=self._sps.spec,
        )
