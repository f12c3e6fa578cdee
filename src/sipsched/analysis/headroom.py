"""The prediction of the highest load that a running proxy can handle, from messages recorded at today's load.

docs/methodology/headroom.md describes the method. The functions only compute, and do not access any host.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import count
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import xarray as xr

from sipsched.analysis.busy_work import BLOCKS, LOCAL, Stamps, Work, busy_cycles, work
from sipsched.analysis.capacity.queues import queue_capacity_cps, system_places
from sipsched.analysis.crossing_load import PDR_LIMIT
from sipsched.analysis.intervals import LEVEL, Interval, percentiles
from sipsched.analysis.papers import MESSAGES_PER_CALL
from sipsched.errors import StableError
from sipsched.records.messages import k_rcv, nanoseconds

FACTORS = (1.5, 2.0)
"""Multiples of today's load at which the time per message is predicted."""
DRAWS = 40
"""Number of random samples of the estimated CPU time per message. Each sample yields one prediction.

Each sample replays its own arrivals. The 95 % interval spans almost the whole range of the samples.
"""
STEPS = 7
"""Number of replays per sample that search for the load at which 1 % of the messages is dropped.

After this number of replays, the load is known within 1 %.
"""
LEAST_MESSAGES, LEAST_CYCLES, LEAST_BUSY = 2_000, 200, 0.2
LEAST_REPLAYED, MOST_REPLAYED = 60_000, 200_000
"""Smallest and largest number of messages in a replay.

A shorter recording is replayed several times in a row. From a longer recording, each sample replays a different part.
"""
LEAST_BREAK_NS, LEAST_BREAK_GAPS = 1_000_000_000, 100
"""The recording has a break if a gap between messages exceeds this time and this multiple of the mean gap."""
MOST_UNSENT = 0.5
AGREEMENT = 2.0
"""If the replayed and the measured p99 at today's load differ by more than this factor, no prediction is made."""
TRUESIZE = 1280
"""Assumed number of bytes that a datagram needs in the receive buffer, if the real number is unknown.

SEE config/models/kamailio-qm.yaml
"""
SEED = 1


class Lack(StrEnum):
    """The reason why the recorded messages do not allow a prediction of the highest possible load."""

    NONE = ""
    SAMPLED = "sampled"
    STREAM = "stream"
    MESSAGES = "messages"
    BREAKS = "breaks"
    TIMES = "times"
    LOAD = "load"
    CYCLES = "cycles"
    CORES = "cores"


@dataclass(frozen=True)
class Server:
    """The properties of a proxy and of the proxy's machine that the simulation needs.

    Attributes
    ----------
    cores, workers
        CPUs that the proxy may use, and its processes that receive messages.
    receive_buffer_bytes
        Effective SO_RCVBUF, as `getsockopt` or `ss -m` reports it.
    truesize
        Bytes that the kernel charges to the buffer per datagram.
    """

    cores: int
    workers: int
    receive_buffer_bytes: int
    truesize: int = TRUESIZE

    @classmethod
    def of(
        cls,
        ds: xr.Dataset,
        cores: int | None = None,
        workers: int | None = None,
        receive_buffer_bytes: int | None = None,
    ) -> "Server":
        """Return the proxy's properties from the arguments. The dataset's attribute replaces an argument that is None.

        Raises
        ------
        StableError
            The arguments and the attributes both lack a number.
        """
        given = (
            ("cores", "cores", cores),
            ("threads", "workers", workers),
            ("receive_buffer_bytes", "buffer", receive_buffer_bytes),
        )
        numbers = {}
        for name, option, value in given:
            stored = ds.attrs.get(name) if value is None else value
            if stored is None or int(stored) < 1:
                raise StableError(
                    f"headroom: {name}: expected a whole number from 1, found {stored}; the recording lacks this "
                    f"number, so set the option --{option}"
                )
            numbers[name] = int(stored)
        return cls(
            numbers["cores"], numbers["threads"], numbers["receive_buffer_bytes"], _truesize(ds)
        )


class Replayer(Protocol):
    """The interface of the function that replays recorded arrivals in the simulator (`sipsched.measure.replay`)."""

    def __call__(
        self, arrivals_ns: npt.NDArray[np.int64], numbers: Mapping[str, Any], times: bool
    ) -> tuple[int, npt.NDArray[np.int64]]:
        """Simulate the arrivals. Return the number of refused messages, and the time of each served message in ns."""
        ...


@dataclass(frozen=True)
class TimeAt:
    """The 99th percentile of K_rcv + T_sip in µs at a multiple of today's load, and the share of dropped messages."""

    factor: float
    p99_us: Interval
    dropped: Interval


@dataclass(frozen=True)
class Headroom:
    """The predicted multiple of today's load that a proxy can handle, with the numbers behind the prediction.

    Attributes
    ----------
    lack
        Why the messages do not allow a prediction. `growth` and `times` are missing in this case, and if nothing was
        replayed.
    messages, seconds, dropped
        Number of received messages, length of the recording, and share of dropped messages.
    busy
        Share of the CPUs' time that the messages need, including the CPU time that competitors take from a busy proxy;
        NaN if unknown.
    cycles
        Number of busy cycles (`sipsched.analysis.busy_work`).
    work_us, slope
        Time that a busy CPU needs per message, and the exponent with which this time changes with the load.
    growth
        Multiple of today's load at which 1 % of the messages is dropped.
    poisson
        The same multiple if arrivals were a Poisson process, from the queue M/G/1/K whose server is as fast as all CPUs
        together. If messages arrive in bursts, the true multiple is smaller.
    p99_us, replayed_p99_us
        99th percentile of K_rcv + T_sip at today's load, measured and replayed.
    times
        Predicted times; empty if the replayed and the measured p99 differ by more than the factor `AGREEMENT`.
    stolen
        Share of the CPUs' time that the hypervisor took during the recording; NaN if unknown.
    """

    server: Server
    lack: Lack
    messages: int
    seconds: float
    dropped: float
    busy: float = np.nan
    cycles: int = 0
    work_us: Interval | None = None
    slope: Interval | None = None
    growth: Interval | None = None
    poisson: float = np.nan
    p99_us: float = np.nan
    replayed_p99_us: float = np.nan
    times: Sequence[TimeAt] = ()
    stolen: float = np.nan

    @property
    def per_s(self) -> float:
        """The number of messages that arrive per second today, including dropped messages."""
        return self.messages / (1 - self.dropped) / self.seconds

    @property
    def half_width(self) -> float:
        """Half the width of the confidence interval of `growth`, divided by the estimate; NaN if unknown."""
        if self.growth is None:
            return np.nan
        return (self.growth.high - self.growth.low) / 2 / self.growth.estimate


def headroom(
    ds: xr.Dataset, server: Server, replay: Replayer | None, draws: int = DRAWS
) -> Headroom:
    """Predict the load at which 1 % of messages is dropped, and the time per message at multiples of today's load.

    Parameters
    ----------
    ds
        Messages, as `sipsched.records.messages.open_messages` returns them.
    The simulator for the cores, workers and kernel of the proxy. With None, nothing is simulated. The result then
    contains only the work per message and the bound for Poisson arrivals, and is computed much faster.
    draws
        Number of samples from which the intervals are computed.
    """
    messages, drops = ds.sizes["message"], ds.sizes.get("drop", 0)
    seconds = float(np.ptp(ds["t_arr"].to_numpy())) / 1e9 if messages > 1 else 0.0
    dropped = drops / max(1, messages + drops)
    lack = lack_of_messages(ds)
    if lack:
        return Headroom(server, lack, messages, seconds, dropped)
    stamps = Stamps.of(ds)
    cycles = busy_cycles(stamps, server.cores)
    lack = Lack.NONE
    if len(cycles.length_ns) < LEAST_CYCLES:
        lack = Lack.CORES if server.cores > 1 else Lack.CYCLES
        return Headroom(server, lack, messages, seconds, dropped, cycles=len(cycles.length_ns))
    rng = np.random.default_rng(SEED)
    known = work(stamps, cycles, draws, rng)
    arrivals = np.sort(np.concatenate((stamps.arrived, _drops(ds)))).astype(np.int64)
    rate = (messages + drops) / seconds
    busy = rate * known.mean_ns / 1e9 / server.cores
    if busy < LEAST_BUSY:
        return Headroom(
            server, Lack.LOAD, messages, seconds, dropped, busy=busy, cycles=known.cycles
        )
    limits = queue_capacity_cps(
        known.mean_ns / 1e3 / server.cores,
        1,
        system_places(server.receive_buffer_bytes, server.truesize, 1),
        known.scv,
    )
    found = Headroom(
        server=server,
        lack=Lack.NONE,
        messages=messages,
        seconds=seconds,
        dropped=dropped,
        busy=busy,
        cycles=known.cycles,
        work_us=_interval(known.mean_ns / 1e3, known.draws[:, 0] / 1e3),
        slope=_interval(known.slope, known.draws[:, 1]),
        poisson=limits * MESSAGES_PER_CALL / rate,
        stolen=float(ds.attrs.get("cpu_stolen", np.nan)),
    )
    if replay is None:
        return found
    model = _Model(replay, server, known, ds, arrivals, rate, *_fixed_ns(ds, stamps))
    growth = model.growth(draws)
    p99_us, replayed, times = model.times(max(1, draws // 2))
    return replace(found, growth=growth, p99_us=p99_us, replayed_p99_us=replayed, times=times)


def latest(ds: xr.Dataset, most: int) -> xr.Dataset:
    """Return the last messages of a recording, at most `most`, and the drops since the first of these messages."""
    kept = ds.isel(message=slice(-most, None))
    since = kept["drop_t_arr"].to_numpy() >= kept["t_arr"].to_numpy()[0]
    return kept.isel({"drop": since})


def lack_of_messages(ds: xr.Dataset) -> Lack:
    """Return why the recorded messages allow no prediction, whatever the server is; `Lack.NONE` if they allow one."""
    if int(ds.attrs.get("one_in", 1)) > 1:
        return Lack.SAMPLED
    if "tcp" in str(ds.attrs.get("transport", "")).lower():
        return Lack.STREAM
    if ds.sizes["message"] < LEAST_MESSAGES:
        return Lack.MESSAGES
    gaps = np.diff(ds["t_arr"].to_numpy())
    if gaps.max() > max(LEAST_BREAK_NS, LEAST_BREAK_GAPS * gaps.mean()):
        return Lack.BREAKS
    waited, served = k_rcv(ds), nanoseconds(ds, "t_sip")
    if np.mean(np.isfinite(waited)) < 1 - PDR_LIMIT or np.mean(np.isfinite(served)) < MOST_UNSENT:
        return Lack.TIMES
    return Lack.NONE


def _drops(ds: xr.Dataset) -> npt.NDArray[np.float64]:
    """Return the arrival times of dropped messages in ns since the first received message, at least 0."""
    if "drop_t_arr" not in ds:
        return np.empty(0)
    since: npt.NDArray[np.int64] = ds["drop_t_arr"].to_numpy() - ds["t_arr"].to_numpy()[0]
    return np.maximum(since, 0).astype(np.float64)


def _truesize(ds: xr.Dataset) -> int:
    """Return the memory that the kernel charges to the receive buffer for one message, in bytes.

    The result is the smallest recorded queue memory, which is the memory of a message in an otherwise empty queue.
    """
    if "queued_bytes" not in ds:
        return TRUESIZE
    sizes = ds["queued_bytes"].to_numpy()
    return int(sizes[sizes > 0].min()) if np.any(sizes > 0) else TRUESIZE


def _interval(estimate: float, drawn: npt.NDArray[np.float64]) -> Interval:
    low, high = percentiles(np.sort(drawn), LEVEL)
    return Interval(estimate, min(low, estimate), max(high, estimate), len(drawn), method="draws")


@dataclass(frozen=True)
class _Model:
    """A simulation model of the proxy: CPU time per message, fixed delays, and recorded arrivals."""

    replay: Replayer
    server: Server
    work: Work
    ds: xr.Dataset
    arrivals: npt.NDArray[np.int64]
    rate_per_s: float
    copy_ns: float
    send_ns: float
    wake_ns: float

    def growth(self, draws: int) -> Interval:
        """Return the multiple of today's load at which 1 % of the replayed messages is dropped."""

        def search(draw: int) -> float:
            mean_ns, slope, *_pauses = self.work.draws[draw].tolist()
            # `full` is the multiple of today's load at which the messages need the whole time of all CPUs.
            full = (1e9 * self.server.cores / mean_ns / self.rate_per_s) ** (1 / (1 + slope))
            low, high = np.log(0.4 * full), np.log(1.25 * full)
            for _ in range(STEPS):
                middle = (low + high) / 2
                arrivals = self._arrivals(float(np.exp(middle)), draw)
                numbers = self._numbers(float(np.exp(middle)), draw)
                refused, _times = self.replay(arrivals, numbers, False)
                if refused > PDR_LIMIT * len(arrivals):
                    high = middle
                else:
                    low = middle
            return float(np.exp((low + high) / 2))

        drawn = self._map(search, draws)
        return _interval(float(np.median(drawn)), drawn)

    def times(self, draws: int) -> tuple[float, float, tuple[TimeAt, ...]]:
        """Return the 99th percentile of message times: measured and replayed at today's load, predicted at other loads.

        The replay does not model every delay. The ratio of the two percentiles at today's load measures this error. At
        a higher load, a full buffer may limit the times, and then the error does not occur. So the interval includes
        predictions with and without the ratio.
        """
        total = k_rcv(self.ds) + nanoseconds(self.ds, "t_sip")
        measured = float(np.nanquantile(total, 0.99)) / 1e3

        def p99(factor: float) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
            def at(draw: int) -> tuple[float, float]:
                arrivals = self._arrivals(factor, draw)
                refused, times = self.replay(arrivals, self._numbers(factor, draw), True)
                return float(np.quantile(times, 0.99)) / 1e3, refused / len(arrivals)

            both = self._map(at, draws)
            return both[:, 0], both[:, 1]

        today = float(np.median(p99(1.0)[0]))
        ratio = measured / today
        if not 1 / AGREEMENT <= ratio <= AGREEMENT:
            return measured, today, ()
        systems = []
        for factor in FACTORS:
            times, dropped = p99(factor)
            either = np.concatenate((times, times * ratio))
            systems.append(
                TimeAt(
                    factor,
                    _interval(float(np.median(either)), either),
                    _interval(float(np.median(dropped)), dropped),
                )
            )
        return measured, today, tuple(systems)

    def _map(self, function: Callable[[int], Any], draws: int) -> npt.NDArray[np.float64]:
        with ThreadPoolExecutor() as pool:
            return np.array(list(pool.map(function, range(draws))))

    def _arrivals(self, factor: float, draw: int) -> npt.NDArray[np.int64]:
        """Return random arrival times at a multiple of today's load, sampled from the recorded arrivals.

        To raise the load, copies of the recorded arrivals are shifted in time and added. If independent users cause the
        additional load, their bursts coincide only by chance. If one source sends more calls, its bursts grow. So half
        of the samples shift the copies by up to the whole recording, and the other half by up to the time of `LOCAL`
        messages. The blocks of the recording are resampled, because another recording would have other bursts.
        """
        rng = np.random.default_rng((SEED, draw))
        times, span = self.arrivals, int(self.arrivals[-1]) + 1
        most = max(int(MOST_REPLAYED / factor), 1)
        if len(times) > most:
            first = int(rng.integers(0, len(times) - most))
            times = times[first : first + most] - times[first]
            span = int(times[-1]) + 1
        times, span = resampled(times, span, rng)
        shift = span if draw % 2 else span * LOCAL / len(times)
        repeats = -(-LEAST_REPLAYED // int(len(times) * factor))
        parts = [
            at + i * span for i in range(repeats) for at in scaled(times, span, factor, shift, rng)
        ]
        return np.sort(np.concatenate(parts))

    def _numbers(self, factor: float, draw: int) -> dict[str, Any]:
        """Return the simulator's parameters at a multiple of today's load: CPU time per message, and fixed delays."""
        mean_ns, slope, pauses, pause_ns = self.work.draws[draw].tolist()
        total = mean_ns * factor**slope * (1 - pauses)
        service = max(total - self.copy_ns - self.send_ns, 1.0)
        return {
            "receive_buffer_bytes": self.server.receive_buffer_bytes,
            "truesize": [self.server.truesize] * 7,
            "copy_ns": round(self.copy_ns),
            "send_ns": round(self.send_ns),
            "idle_exit_ns": round(self.wake_ns),
            "service_law": "lognormal",
            "service_ns": [service] * 7,
            "service_scv": [min(self.work.scv * (total / service) ** 2, 1000.0)] * 7,
            "stall_every_ns": round(pause_ns / pauses) if pauses else 0,
            "stall_ns": round(pause_ns),
        }


def resampled(
    times: npt.NDArray[np.int64], span: int, rng: np.random.Generator
) -> tuple[npt.NDArray[np.int64], int]:
    """Sample `BLOCKS` equal blocks of the arrivals with replacement. Return the new arrivals and their span in ns."""
    length = span // BLOCKS + 1
    ends = np.searchsorted(times, np.arange(BLOCKS + 1) * length)
    chosen = rng.integers(0, BLOCKS, BLOCKS)
    parts = [
        times[ends[block] : ends[block + 1]] + (place - block) * length
        for place, block in enumerate(chosen)
    ]
    return np.concatenate(parts), BLOCKS * length


def scaled(
    times: npt.NDArray[np.int64],
    span: int,
    factor: float,
    shift: float,
    rng: np.random.Generator,
) -> Iterator[npt.NDArray[np.int64]]:
    """Multiply the load of recorded arrivals by a factor: omit some arrivals, or add copies shifted in time.

    A copy that is shifted beyond `span` ns continues at 0.
    """
    for copy in count():
        share = min(factor - copy, 1.0)
        if share <= 0:
            return
        kept = times if share == 1.0 else times[rng.random(len(times)) < share]
        yield kept if copy == 0 else (kept + int(rng.uniform(-shift, shift))) % span


def _fixed_ns(ds: xr.Dataset, stamps: Stamps) -> tuple[float, float, float]:
    """Return typical times in ns: copying time K_copy, sending time K_snd, and the wake-up delay of an idle proxy.

    K_copy and K_snd are medians over messages. The wake-up delay is the median time from the arrival of a message
    until the idle proxy receives the message, minus K_copy.
    """
    copy_ns, send_ns = (
        float(np.nanmedian(values)) if np.any(np.isfinite(values)) else 0.0
        for values in (nanoseconds(ds, name) for name in ("k_copy", "k_snd"))
    )
    before = np.searchsorted(np.sort(stamps.departed), stamps.arrived)
    alone = np.arange(len(stamps.arrived)) <= before
    if not np.any(alone):
        return copy_ns, send_ns, 0.0
    waited = float(np.median((stamps.received - stamps.arrived)[alone]))
    return copy_ns, send_ns, max(waited - copy_ns, 0.0)
