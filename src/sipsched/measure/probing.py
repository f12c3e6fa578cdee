"""The start of a proxy together with the probe that timestamps its messages."""

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

from sipsched.errors import StableError
from sipsched.measure.probe import BpfProbe, NoProbe, PreloadProbe, Probe
from sipsched.plan.sut import Sut
from sipsched.testbed.host import Process
from sipsched.testbed.session import Hosts


class Probing:
    """The probe of one run or search, started with each proxy.

    Parameters
    ----------
    limit_s
        Time in seconds after which the probe is stopped.
    controlled
        Whether the probe's recording must be switchable.
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
    ) -> None:
        self._sps, self._uas, self._sut, self._program = hosts.sps, hosts.uas, sut, program
        self._wanted, self._limit_s, self._controlled = wanted, limit_s, controlled

    @contextmanager
    def starting(self) -> Iterator[None]:
        """Load the BPF probe in a thread, in parallel with the beginning of the block."""
        with ThreadPoolExecutor(1) as pool:
            self._bpf = pool.submit(self._start_bpf)
            yield

    def start(self, start: Callable[[Mapping[str, str]], Process]) -> tuple[Process, Probe]:
        """Start the proxy, and return it with its probe, which is ready. Call this method within `starting`.

        The BPF probe attaches to a running proxy. A preloaded library must be in the proxy's environment instead, so
        the proxy starts a second time where the kernel refuses BPF.

        Parameters
        ----------
        start
            The function that starts the proxy with these variables in its environment, and returns once the proxy
            listens.

        Raises
        ------
        StableError
            The probe that is asked for cannot run on this kernel.
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
                # the proxy's workers exist by now, and no message has arrived yet
                probe.begin()
                return process, probe
        if self._controlled:
            raise StableError(
                f"host {self._sps.spec}: a mode with recording=off needs the BPF probe, which cannot run here: {reason}"
            )
        preload = PreloadProbe(self._sps, reason)
        return start(preload.environment()), preload

    @property
    def _wants_bpf(self) -> bool:
        """Whether the BPF probe is wanted; over TCP no other probe exists."""
        return self._wanted != "off" and (self._sut.over_tcp or self._wanted != "preload")

    def _start_bpf(self) -> BpfProbe | None:
        """Load the BPF probe; return None where it is not wanted."""
        if not self._wants_bpf:
            return None
        over_tcp = self._sut.over_tcp
        return BpfProbe.start(
            self._sps,
            self._program,
            "stream" if over_tcp else self._wanted,
            self._limit_s,
            peer_port=self._uas.spec.sip_port if over_tcp else None,
            controlled=self._controlled,
        )
