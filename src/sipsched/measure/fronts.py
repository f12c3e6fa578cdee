"""What stands before the instances of a proxy as a process of its own, and gives each its calls by Call-ID."""

from collections.abc import Sequence
from pathlib import Path

from sipsched.errors import StableError
from sipsched.files import parse_json
from sipsched.measure.proxy import MANY_FILES, Proxy
from sipsched.measure.templates import render
from sipsched.plan.config import Sut
from sipsched.records.run_document import DispatchReport, FrontReport, as_part
from sipsched.testbed.host import Host, Process
from sipsched.testbed.inventory import native_folder

DISPATCHER = "sipdispatch"
MOST_INSTANCES = 250
"""Of sipdispatch and sipshard (hardware/dispatcher)."""


class Front:
    """The process before the instances of a fronted SUT: `sipdispatch`, or a proxy without transactions.

    It is part of the SUT: held to the same CPUs in the same mode, and its CPU time counts.

    Parameters
    ----------
    sps
        The host of the proxy.
    proxy
        Its program.
    sut
        Says what stands before the instances.
    threads
        Instances.
    cpus
        CPUs of the SPS that the proxy is held to.
    limit_s
        Its longest life.

    Attributes
    ----------
    process
        What runs, once it is started.
    config
        Its configuration file; None if it has none.
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
        self.config = self._render() if sut.deployment == "front" else None

    @property
    def program(self) -> str:
        """Name of its binary."""
        return DISPATCHER if self.config is None else self._proxy.program

    def start(self, prefix: Sequence[str]) -> Process:
        """Start it before instances that listen; its own socket is still to be waited for."""
        sps = self._sps
        sps.run(["rm", "-f", str(self._report)])
        argv = self._dispatcher() if self.config is None else self._stateless(self.config)
        self.process = sps.start("front", [*prefix, *argv], cpus=self._cpus, limit_s=self._limit_s)
        return self.process

    def cpu_time_ns(self) -> int:
        """CPU time since it was started."""
        return self._sps.cpu_time_ns(self.process)

    def end(self, cpu_ns: int) -> FrontReport:
        """Stop it and say what it did.

        Parameters
        ----------
        cpu_ns
            What it used during the load.

        Raises
        ------
        StableError
            There is no whole report.
        """
        sps = self._sps
        sps.stop(self.process)
        dispatched = None
        if self.config is None:
            where = f"host {sps.spec}: {self._report.name}"
            text = sps.run(["cat", str(self._report)], check=False).stdout
            try:
                dispatched = as_part(DispatchReport, parse_json(text), where)
            except ValueError as error:
                raise StableError(f"{where}: {error}") from None
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
        return self._proxy.front_command(self._sut, folder / "front.cfg", folder)

    def _render(self) -> str:
        return render(
            Path("proxies", f"{self._proxy.program}-front.cfg.j2"),
            sut=self._sut,
            cores=len(self._cpus),
            folder=self._folder,
            sps=self._sps.spec,
        )
