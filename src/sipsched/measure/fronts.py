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
from sipsched.testbed.session import Hosts

DISPATCHER = "sipdispatch"
MOST_INSTANCES = 250
"""Largest number of proxy instances that sipdispatch and sipshard support (hardware/dispatcher)."""


class Front:
    """The front end that distributes calls to proxy instances: the program `sipdispatch`, or a stateless proxy.

    The front end is part of the SUT. On the SPS, the front end has the same CPUs and the same mode as the proxy
    instances, and the SUT's CPU time includes the CPU time of the front end. On a host of its own, the front end has
    all `cpus` of this host and the default mode.

    Parameters
    ----------
    hosts
        The hosts. `hosts.entry` decides on which host the front end runs.
    cpus
        CPUs of the proxy instances.
    limit_s
        Seconds after which the host stops the front end.

    Attributes
    ----------
    host
        The host of the front end.
    process
        The running front end, after `start`.
    config
        Text of the front end's configuration file; None for sipdispatch, which needs no configuration file.
    """

    host: Host
    process: Process

    def __init__(
        self,
        hosts: Hosts,
        proxy: Proxy,
        sut: Sut,
        threads: int,
        cpus: Sequence[int],
        limit_s: float,
    ) -> None:
        self.host, self._proxy, self._sut = hosts.entry(sut), proxy, sut
        self.is_on_sps = self.host is hosts.sps
        self._cpus = tuple(cpus if self.is_on_sps else self.host.spec.cpus)
        self._limit_s = limit_s
        first = hosts.sps.spec.sip_port + 1
        self._instances = [
            f"{hosts.sps.spec.sip_address}:{port}" for port in range(first, first + threads)
        ]
        folder = self.host.workdir
        self._folder, self._report = folder / "front", folder / "front.json"
        self.config = self._render() if sut.arrangement.front == "proxy" else None

    @property
    def program(self) -> str:
        """The name of the front end's program."""
        return DISPATCHER if self.config is None else self._proxy.program

    def start(self, prefix: Sequence[str]) -> Process:
        """Start the front end, but do not wait for its socket. The proxy instances must already listen.

        Parameters
        ----------
        prefix
            Command that applies the mode of the proxy. Modes act only on the SPS.
        """
        host = self.host
        host.run(["rm", "-f", str(self._report)])
        argv = self._dispatcher() if self.config is None else self._stateless(self.config)
        argv = [*(prefix if self.is_on_sps else ()), *argv]
        self.process = host.start("front", argv, cpus=self._cpus, limit_s=self._limit_s)
        return self.process

    def cpu_time_ns(self) -> int:
        """Return the CPU time in ns that the front end has used since its start."""
        return self.host.cpu_time_ns(self.process)

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
        host = self.host
        host.stop(self.process)
        dispatched = None
        if self.config is None:
            where = f"host {host.spec}: {self._report.name}"
            dispatched = as_part(DispatchReport, read_report(host, self._report), where)
        return FrontReport(self.program, self._cpus, cpu_ns, dispatched, host.spec.role)

    def _dispatcher(self) -> list[str]:
        spec = self.host.spec
        return [
            *MANY_FILES,
            str(native_folder(self.host.base, "dispatcher") / DISPATCHER),
            *("--listen", f"{spec.sip_address}:{spec.sip_port}", "--report", str(self._report)),
            *(word for one in self._instances for word in ("--instance", one)),
        ]

    def _stateless(self, config: str) -> list[str]:
        host, folder = self.host, self._folder
        host.run(["mkdir", "-p", str(folder)])
        lines = (f"1 sip:{one}\n" for one in self._instances)
        host.put_text("".join(lines), folder / "instances")
        host.put_text(config, folder / "front.cfg")
        command = self._proxy.front_command(self._sut, folder / "front.cfg", folder)
        return [*in_root(self._sut, host), *command]

    def _render(self) -> str:
        return render(
            Path("proxies", f"{self._proxy.program}-front.cfg.j2"),
            sut=self._sut,
            cores=len(self._cpus),
            folder=self._folder,
            front=self.host.spec,
        )
