"""The choice of a probe for a run, and the start of the proxy together with the chosen probe."""

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

from sipsched.errors import StableError
from sipsched.measure.probe import BpfProbe, NoProbe, PreloadProbe, Probe
from sipsched.plan.sut import Sut
from sipsched.testbed.host import Process
from sipsched.testbed.session import Hosts


class Probing:
    """An object that chooses a probe, and starts the probe together with each start of the proxy.

    Parameters
    ----------
    limit_s
        Seconds after which the host stops the probe.
    controlled
        Whether the run switches the probe's recording off and on. Only the BPF probe supports switching.
    ports
        Number of consecutive UDP ports of the proxy's instances.
    """

    _bpf: Future[BpfProbe | None]

    def __init__(
        self,
        hosts: Hosts,
        sut: Sut,
        program: str,
        wanted: str,
        limit_s: float,
        *,
        controlled: bool,
        ports: int = 1,
    ) -> None:
        self._sps, self._uas, self._sut, self._program = hosts.sps, hosts.uas, sut, program
        self._wanted, self._limit_s, self._controlled = wanted, limit_s, controlled
        self._ports = ports

    @contextmanager
    def starting(self) -> Iterator[None]:
        """Load the BPF probe in a separate thread during the `with` block, because loading takes time."""
        with ThreadPoolExecutor(1) as pool:
            self._bpf = pool.submit(self._start_bpf)
            yield

    def start(self, start: Callable[[Mapping[str, str]], Process]) -> tuple[Process, Probe]:
        """Start the proxy and its probe, and return both when ready. Call this in a `with starting()` block.

        The BPF probe attaches to a running proxy. If the kernel refuses BPF, the proxy starts a second time, because a
        preloaded library must be in the environment of the proxy.

        Parameters
        ----------
        start
            The function that starts the proxy and returns when the proxy listens. The argument of the function is the
            environment variables of the proxy.

        Raises
        ------
        StableError
            The requested probe cannot run on this kernel.
        """
        reason = "asked for"
        if self._wanted == "off":
            return start({}), NoProbe()
        if self._wants_bpf:
            process = start({})
            try:
                probe = self._bpf.result()
            except StableError as error:
                if self._wanted != "auto" or self._sut.over_tcp:
                    raise
                reason = str(error)
                self._sps.stop(process)
            else:
                assert probe is not None
                # The proxy's workers exist now, so the probe can find them. No message has arrived yet.
                probe.begin()
                return process, probe
        if self._controlled:
            raise StableError(
                f"host {self._sps.spec}: a mode with recording=off needs the BPF probe, which cannot run here: {reason}"
            )
        if self._ports > 1:
            raise StableError(
                f"host {self._sps.spec}: a run that compares instances of the proxy needs the BPF probe, which cannot "
                f"run here: {reason}"
            )
        preload = PreloadProbe(self._sps, reason)
        return start(preload.environment()), preload

    @property
    def _wants_bpf(self) -> bool:
        """Return True if the run needs the BPF probe. Over TCP, no other probe exists."""
        return self._wanted != "off" and (self._sut.over_tcp or self._wanted != "preload")

    def _start_bpf(self) -> BpfProbe | None:
        """Load and return the BPF probe. Return None if the run does not need this probe."""
        if not self._wants_bpf:
            return None
        over_tcp = self._sut.over_tcp
        return BpfProbe.start(
            self._sps,
            self._program,
            "stream" if over_tcp else self._wanted,
            self._limit_s,
            ports=self._ports,
            peer_port=self._uas.spec.sip_port if over_tcp else None,
            controlled=self._controlled,
        )
