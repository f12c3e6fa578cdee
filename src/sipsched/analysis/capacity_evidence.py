"""What is known of capacity, published and measured, and the models fitted to it."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd
import xarray as xr

from sipsched.analysis import papers
from sipsched.analysis.capacity_models import (
    ALL_ABOVE,
    ALL_UNDER,
    PAPER_SINGLE_CORE_CPS,
    LeftOut,
    Option,
    Scaling,
    best_by_cores,
    contention_model,
    fit_rule,
    fit_scaling,
    law_model,
    leave_one_out,
    measured_option,
    measured_options,
    paper_model,
    paper_threads,
    predicted_options,
    queue_capacity_cps,
    system_places,
)
from sipsched.analysis.run_table import Facet, counted, facet_name, provenance
from sipsched.analysis.statistics import (
    PDR_LIMIT,
    Interval,
    capacity,
    grid_capacity,
    mean_interval,
    mean_intervals,
)
from sipsched.errors import StableError
from sipsched.records.summary import ALL, cpu_time, open_summary
from sipsched.records.summary import MEASURED as RUN_MEASURED
from sipsched.words import number, plural

PAPERS_SUT = "papers' OpenSIPS"
PAPERS_RUNS = 30
"""Experiments that a column of the papers' tables is the mean of."""
PAPERS_CORES = (2, 4, 6)
"""Cores that the papers' rule is set out for."""
MOST_CORES = 256
RESAMPLES = 499
"""Fits of a law for its intervals: 2 s."""
MESSAGE_PARTS = ("t_sip_mean", "t_sip_sd", "t_sip_off_mean", "t_sip_off_sd", "k_sockq_mean")
KERNEL_PARTS = ("k_stack_mean", "k_copy_mean", "k_snd_mean")
KEPT = ("pdr", "so_rcvbuf", *MESSAGE_PARTS, *KERNEL_PARTS)
"""Variables of a summary that the models need."""
NO_SPREAD = "no spread printed"
RULE, LAW, AMDAHL = "papers' rule, fitted", "Universal Scalability Law", "Amdahl's law"
RULE_OF_ONE, LINEAR, BORROWED = "T(p,c) × C(1,1)", "c × one core", "scaled as the papers' server"
LEAST = "the least of T(p,c) × C(1,1), c × one core, and one core scaled as the papers' server"

Values = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Model:
    """A model of capacity by cores, fitted to a system.

    Attributes
    ----------
    name
        What it is called.
    points
        Numbers of cores that it is fitted to.
    parameters
        Name, unit and value of each; none if it could not be fitted.
    predict
        Capacity by cores with a prediction interval; None if it could not be fitted.
    left_out
        Each point as the others predict it.
    why
        Why it could not be fitted; empty if it was.
    """

    name: str
    points: int
    parameters: tuple[tuple[str, str, Interval], ...]
    predict: Callable[[int], Interval] | None
    left_out: tuple[LeftOut, ...]
    why: str = ""

    @property
    def rms_percent(self) -> float:
        """Root mean square of the leave-one-out errors; NaN if one of them is missing."""
        errors = [row.error_percent for row in self.left_out]
        return float(np.sqrt(np.mean(np.square(errors)))) if errors else np.nan


@dataclass(frozen=True)
class System:
    """One SUT in one mode, and every capacity of it that is known.

    Attributes
    ----------
    sut, mode
        What it is; the SUT names its testbed where there are several.
    options
        A setting each, as measured or as published.
    provenance
        Where the numbers come from.
    stated
        C(1,1) where a paper states it.
    published
        Whether a paper has it.
    models
        Models of capacity by cores, fitted to it.
    """

    sut: str
    mode: str
    options: tuple[Option, ...]
    provenance: str
    stated: Interval | None = None
    published: bool = False
    models: tuple[Model, ...] = ()

    @property
    def name(self) -> str:
        """Name it as a person would."""
        return f"{self.sut}, {self.mode}"

    @property
    def best(self) -> tuple[Option, ...]:
        """The best number of threads of each number of cores."""
        return best_by_cores(self.options)

    @property
    def fitted(self) -> tuple[Option, ...]:
        """What a model can be fitted to: the best whose capacity lies between loads."""
        return tuple(option for option in self.best if settled(option))


@dataclass(frozen=True)
class ServiceTimes:
    """The messages of one setting: what they take, how long they wait, how many are refused.

    Attributes
    ----------
    facet, threads
        The setting.
    measured
        Its capacity.
    at_cps
        The load that service times are from: the highest at or under the limit, else the lowest.
    cpu_us, t_sip_us
        Mean CPU time of a message in kernel and proxy, and mean T_sip, over runs.
    cpu_scv, t_sip_scv
        Squared coefficients of variation over messages; NaN if not measured.
    room
        Messages that fit into the receive buffer; NaN if its size is not recorded.
    loads, pdr, waits_us
        Loads measured, ascending; shape (load, rep): packet drop rate, and mean K_sockq in µs.
    """

    facet: Facet
    threads: int
    measured: Option
    at_cps: float
    cpu_us: Interval
    t_sip_us: Interval
    cpu_scv: float
    t_sip_scv: float
    room: float
    loads: Values
    pdr: Values
    waits_us: Values

    @property
    def name(self) -> str:
        """Name the setting as a person would."""
        return f"{facet_name(self.facet)}, {plural(self.threads, 'thread')}"

    def servers(self, by: str) -> int:
        """Count the servers: "cores", as far as there are threads for them, or "threads"."""
        return min(self.facet[2], self.threads) if by == "cores" else self.threads

    def predict(self, by: str, general: bool, limit: float = PDR_LIMIT) -> Interval:
        """Predict the capacity in cps under a queue with finite room.

        Parameters
        ----------
        by
            "cores": servers are cores, service is CPU time; "threads": threads, and T_sip.
        general
            M/G/c/K with the measured variation; else M/M/c/K.
        limit
            Packet drop rate at which capacity ends.
        """
        service, scv = (
            (self.cpu_us, self.cpu_scv) if by == "cores" else (self.t_sip_us, self.t_sip_scv)
        )
        if np.isnan(service.estimate):
            return service
        if np.isnan(self.room) or (general and np.isnan(scv)):
            missing = "SO_RCVBUF" if np.isnan(self.room) else "spread of service times"
            return Interval.without(np.nan, service.n, why=f"{missing} not recorded")
        servers = self.servers(by)

        def cps(time_us: float) -> float:
            if not time_us > 0:
                return np.nan if np.isnan(time_us) else np.inf
            places = int(self.room) + servers
            return queue_capacity_cps(time_us, servers, places, scv if general else 1.0, limit)

        return service.map(cps)


@dataclass(frozen=True)
class Evidence:
    """What a page of capacity rests on.

    Attributes
    ----------
    systems
        Published ones first.
    services
        A measured setting each.
    points
        The papers' tables, a row a column (`sipsched.analysis.papers.wide`).
    limit
        Packet drop rate at which capacity ends.
    processors
        Cores to the processors that they lie in.
    fidelity
        What the numbers measured here are worth; empty without any.
    read
        What was read, what was not and why, in sentences.
    """

    systems: tuple[System, ...]
    services: tuple[ServiceTimes, ...]
    points: pd.DataFrame
    limit: float
    processors: Mapping[int, int]
    fidelity: str
    read: tuple[str, ...]

    @property
    def own(self) -> tuple[System, ...]:
        """The systems measured here."""
        return tuple(system for system in self.systems if not system.published)

    @property
    def provenance(self) -> str:
        """Say where the numbers of the page come from."""
        return " ".join(dict.fromkeys(system.provenance for system in self.systems))

    @property
    def own_provenance(self) -> str:
        """Say where the numbers measured here come from."""
        return " ".join(dict.fromkeys(each.provenance for each in self.own)) or "Nothing measured."

    def threads(self, cores: int) -> int:
        """Give T(p,c) for so many cores."""
        return paper_threads(self.processors.get(cores, 1), cores)


def settled(option: Option) -> bool:
    """Tell whether a capacity lies between loads that were measured."""
    return option.interval.why not in (ALL_UNDER, ALL_ABOVE)


def level(option: Option) -> Interval:
    """Give the capacity that models are held against: the crossing; without its interval, the grid's."""
    if option.interval.known or not settled(option) or np.isnan(option.grid_cps):
        return option.interval
    return replace(option.interval, estimate=option.grid_cps)


def collect(
    points: pd.DataFrame,
    summaries: Sequence[str | Path | None] | str | Path | None = None,
    limit: float = PDR_LIMIT,
    cores_per_processor: int = 4,
    message_bytes: float = 2304,
    resamples: int = RESAMPLES,
) -> Evidence:
    """Gather what the papers print and what studies measured.

    Parameters
    ----------
    points
        As `sipsched.analysis.papers.load_points` returns it.
    summaries
        Combined summaries of studies. One that is not there is left out, and `read` names it. Studies
        of one testbed are put together: a run that two of them share counts once.
    limit
        Packet drop rate at which capacity ends.
    cores_per_processor
        How cores are spread over processors.
    message_bytes
        What the kernel charges a message with.
    resamples
        Of the bootstrap of the laws over cores.

    Raises
    ------
    StableError
        A file is damaged or of another version.
    """
    given = [summaries] if isinstance(summaries, (str, Path)) else summaries or []
    read, testbeds = _read([Path(path) for path in given if path])
    wide = papers.wide(points)
    systems, services = list(_published(wide, limit)), []
    for testbed, data in testbeds.items():
        if len(testbeds) > 1:
            data = data.assign_coords(sut=[f"{sut} on {testbed}" for sut in data["sut"].values])
        systems += _measured(data, limit)
        services += _services(data, limit, message_bytes)
    processors = {c: -(-c // cores_per_processor) for c in range(1, MOST_CORES + 1)}
    systems = [replace(each, models=fit_models(each, processors, resamples)) for each in systems]
    fidelity = "; ".join(dict.fromkeys(data.attrs["fidelity"] for data in testbeds.values()))
    return Evidence(
        systems=tuple(systems),
        services=tuple(services),
        points=wide,
        limit=limit,
        processors=processors,
        fidelity=fidelity,
        read=tuple(read),
    )


def _read(paths: Sequence[Path]) -> tuple[list[str], dict[str, xr.Dataset]]:
    """Open what there is, a dataset a testbed, and say in sentences what was found."""
    said: list[str] = []
    found: dict[str, list[xr.Dataset]] = {}
    for path in paths:
        # results/STUDY/TESTBED/summary.nc
        name = "/".join(path.parts[-3:])
        if not path.is_file():
            said.append(f"{name}: not there, left out.")
            continue
        data = open_summary(path)
        runs = int((data["status"] == RUN_MEASURED).sum())
        cores = np.unique(data["cores"].to_numpy()[_any_run(data, "cores")])
        if not runs:
            said.append(f"{name}: no run measured, left out.")
            continue
        counts = ", ".join(map(str, cores))
        said.append(f"{name}: {runs} runs that count, on {counts} core{'s' * (counts != '1')}.")
        found.setdefault(data.attrs["testbed"], []).append(data)
    if not paths:
        said.append("No summary of a study was given.")
    return said, {testbed: _joined(parts) for testbed, parts in found.items()}


def _any_run(data: xr.Dataset, dim: str) -> npt.NDArray[np.bool_]:
    others = [other for other in data["status"].dims if other != dim]
    return (data["status"] == RUN_MEASURED).any(others).to_numpy()


def _joined(parts: Sequence[xr.Dataset]) -> xr.Dataset:
    """Put studies of one testbed side by side; a run of several is the same in each."""
    # What one study did not plan another may have measured.
    kept = [counted(part[[*KEPT, "status"]].sel(message_type=ALL))[[*KEPT]] for part in parts]
    joined = kept[0]
    for part in kept[1:]:
        joined = joined.combine_first(part)
    # combine_first sorts; names stay in the order of the configuration.
    order = {
        dim: list(dict.fromkeys(name for part in parts for name in part[dim].to_numpy().tolist()))
        for dim in ("sut", "mode")
    }
    joined = joined.sel(order)
    attrs = dict(parts[0].attrs)
    for key in ("kind", "fidelity", "kernels"):
        attrs[key] = "; ".join(dict.fromkeys(str(part.attrs[key]) for part in parts))
    return joined.assign_attrs(attrs)


def _published(wide: pd.DataFrame, limit: float) -> list[System]:
    """Take capacities from the tables, both papers as one system a mode."""
    systems = []
    for mode in papers.MODES:
        options = []
        among = wide[wide["mode"] == mode].sort_values("cps")
        for (cores, threads), rows in among.groupby(["cores", "threads"]):
            found = capacity(rows["cps"], rows["pdr"], limit)
            option = measured_option(PAPERS_SUT, mode, int(cores), int(threads), found)
            why = NO_SPREAD if settled(option) else option.interval.why
            interval = replace(option.interval, n=PAPERS_RUNS, why=why)
            options.append(replace(option, interval=interval))
        stated = Interval.without(PAPER_SINGLE_CORE_CPS, PAPERS_RUNS, why="stated in section V")
        systems.append(
            System(
                PAPERS_SUT,
                mode,
                tuple(options),
                papers.provenance("multicore", "singlecore"),
                # The rule is for enhanced mode.
                stated if mode == "enhanced" else None,
                published=True,
            )
        )
    return systems


def _measured(data: xr.Dataset, limit: float) -> list[System]:
    options = measured_options(data, limit)
    names = dict.fromkeys((option.sut, option.mode) for option in options)
    return [
        System(
            *name,
            tuple(each for each in options if (each.sut, each.mode) == name),
            provenance(data),
        )
        for name in names
    ]


def _services(data: xr.Dataset, limit: float, message_bytes: float) -> list[ServiceTimes]:
    found = []
    for option in measured_options(data, limit):
        at = data.sel(
            sut=option.sut, mode=option.mode, cores=option.cores, threads=option.threads
        ).transpose("cps", "rep")
        at = at.isel(cps=np.flatnonzero(~np.isnan(at["pdr"].to_numpy()).all(axis=1)))
        found.append(_service(at, option, limit, message_bytes))
    return found


def _service(at: xr.Dataset, option: Option, limit: float, message_bytes: float) -> ServiceTimes:
    loads = at["cps"].to_numpy().astype(float)
    means, *_ = mean_intervals(at["pdr"].to_numpy())
    carried, _ = grid_capacity(loads, means, limit)
    at_cps = carried if np.isfinite(carried) else loads[0]
    times = {name: at[name].to_numpy() for name in (*MESSAGE_PARTS, "so_rcvbuf")}
    cpu = cpu_time(at).to_numpy()
    there = int(np.flatnonzero(loads == at_cps)[0])
    # ASSUME time on and off CPU are independent within T_sip, and CPU time varies alike at every load:
    # its variation is taken where the least of T_sip is off CPU.
    with np.errstate(invalid="ignore"):
        off = _means(times["t_sip_off_mean"] / times["t_sip_mean"])
        on_square = times["t_sip_sd"] ** 2 - times["t_sip_off_sd"] ** 2
        cpu_scv = _means(np.maximum(on_square, 0) / cpu**2)
        t_sip_scv = _means((times["t_sip_sd"] / times["t_sip_mean"]) ** 2)
    calm = int(np.nanargmin(off)) if np.isfinite(off).any() else there
    buffers = times["so_rcvbuf"]
    room = np.nan
    if np.isfinite(buffers).any():
        room = float(system_places(float(np.nanmedian(buffers)), message_bytes, 0))
    return ServiceTimes(
        facet=(option.sut, option.mode, option.cores),
        threads=option.threads,
        measured=option,
        at_cps=float(at_cps),
        cpu_us=_mean(cpu[there], "the probe did not see the kernel's part"),
        t_sip_us=_mean(times["t_sip_mean"][there], "the probe did not time the proxy"),
        cpu_scv=float(cpu_scv[calm]),
        t_sip_scv=float(t_sip_scv[there]),
        room=room,
        loads=loads,
        pdr=at["pdr"].to_numpy(),
        waits_us=times["k_sockq_mean"],
    )


def _means(values: Values) -> Values:
    return mean_intervals(values)[0]


def _mean(values: Values, why: str) -> Interval:
    found = mean_interval(values)
    return found if found.n else replace(found, why=why)


def single_core(system: System) -> tuple[Interval, str]:
    """Choose C(1,1) of a system.

    Returns
    -------
    capacity, words
        In cps, NaN if there is none; and what it is.
    """
    ones = [option for option in system.options if option.cores == 1 and settled(option)]
    threads = sorted(option.threads for option in system.options if option.cores == 1)
    best = best_by_cores(ones)
    if system.stated is not None:
        words = f"{number(system.stated.estimate)} cps, as section V states it for one thread."
        if best:
            words += (
                f" The tables of one core have no single thread; their best is "
                f"{number(level(best[0]).estimate)} cps with {best[0].threads} threads."
            )
        return system.stated, words
    single = next((option for option in ones if option.threads == 1), None)
    if single is not None:
        return level(single), f"{level(single).text('cps')}; one thread, as the papers define it."
    if best:
        words = (
            f"{level(best[0]).text('cps')}; {best[0].threads} threads, the best measured on one "
            "core. The papers' one thread was not measured: what follows is too high where "
            f"{best[0].threads} threads carry more than one."
        )
        return level(best[0]), words
    none = "no capacity of one core lies between the loads measured"
    why = none if threads else "one core was not measured"
    return Interval.without(np.nan, 0, why=why), f"none: {why}."


def rule_points(system: System) -> tuple[Option, ...]:
    """Give what the papers' rule is fitted to: one core with one thread only, T(1,1) being 1."""
    return tuple(option for option in system.fitted if option.cores > 1 or option.threads == 1)


def fit_models(
    system: System, processors: Mapping[int, int], resamples: int = RESAMPLES
) -> tuple[Model, ...]:
    """Fit each model of capacity by cores.

    Parameters
    ----------
    system
        Its `fitted` settings are the points.
    processors
        Cores to the processors that they lie in.
    resamples
        Of the bootstrap.
    """
    points = _points(rule_points(system))
    try:
        rule = fit_rule(*points, processors)
        left = leave_one_out(*points, paper_model(processors))
        single = (("C(1,1)", "cps", rule.single_cps),)
        first = Model(RULE, len(points[0]), single, rule.predict, left)
    except StableError as error:
        first = Model(RULE, len(points[0]), (), None, (), _reason(error))
    models = [first]
    points = _points(system.fitted)
    for name, make, only in ((LAW, law_model, False), (AMDAHL, contention_model, True)):
        try:
            law = fit_scaling(*points, contention_only=only, resamples=resamples)
        except StableError as error:
            models.append(Model(name, len(points[0]), (), None, (), _reason(error)))
            continue
        left = leave_one_out(*points, make)
        models.append(Model(name, len(points[0]), _parameters(law, only), law.predict, left))
    return tuple(models)


def _points(options: Iterable[Option]) -> tuple[list[float], list[float]]:
    chosen = list(options)
    return [float(each.cores) for each in chosen], [level(each).estimate for each in chosen]


def _parameters(law: Scaling, contention_only: bool) -> tuple[tuple[str, str, Interval], ...]:
    found = [("λ", "cps", law.single_cps), ("σ", "", law.contention)]
    if not contention_only:
        found += [("κ", "", law.coherency), ("N*", "cores", law.peak_cores)]
    return tuple(found)


def _reason(error: StableError) -> str:
    return str(error).partition(": ")[2]


def choose(models: Sequence[Model]) -> Model | None:
    """Choose the model with the smallest leave-one-out errors; None if no model has them all."""
    judged = [model for model in models if np.isfinite(model.rms_percent)]
    return min(judged, key=lambda model: model.rms_percent, default=None)


def extrapolations(system: System, evidence: Evidence, cores: int) -> dict[str, Interval]:
    """Carry what one core does to several, where nothing is fitted.

    Returns
    -------
    dict
        `RULE_OF_ONE`: T(p,c) × C(1,1), with the interval of C(1,1). `LINEAR`: as many times the best of
        one core, with its interval; cores do not exceed it. `BORROWED`: the same, falling behind as
        Amdahl's law has it for the papers' server in enhanced mode; its interval also holds that law's
        prediction interval. NaN, and why, where one core is not known.
    """
    single, _ = single_core(system)
    ones = [level(option) for option in system.best if option.cores == 1 and settled(option)]
    none = Interval.without(np.nan, 0, why="no capacity of one core")
    best = ones[0] if ones else none
    law = next(
        model
        for each in evidence.systems
        if each.stated is not None
        for model in each.models
        if model.name == AMDAHL
    )
    borrowed = none
    if law.predict is not None and ones:
        said, unit = law.predict(cores), law.predict(1).estimate
        borrowed = replace(
            best,
            estimate=best.estimate * said.estimate / unit,
            low=best.low * max(said.low, 0.0) / unit,
            high=best.high * said.high / unit,
        )
    return {
        RULE_OF_ONE: times(single, evidence.threads(cores)),
        LINEAR: times(best, cores),
        BORROWED: borrowed,
    }


def predictor(system: System, evidence: Evidence) -> tuple[str, Callable[[int], Interval]] | None:
    """Choose what predicts capacities that were not measured.

    The model with the smallest leave-one-out errors; without any, the least of `extrapolations`.

    Returns
    -------
    name, predict
        None if one core is not known either.
    """
    chosen = choose(system.models)
    if chosen is not None and chosen.predict is not None:
        return chosen.name, chosen.predict

    def least(cores: int) -> Interval:
        found = extrapolations(system, evidence, cores).values()
        return min(found, key=lambda each: (np.isnan(each.estimate), each.estimate))

    if np.isnan(least(1).estimate):
        return None
    return LEAST, least


def times(interval: Interval, factor: float) -> Interval:
    """Multiply a number and the ends of its interval."""
    return interval.map(lambda value: factor * value)


def known_options(system: System, evidence: Evidence, cores: Iterable[int]) -> tuple[Option, ...]:
    """List the settings of a system: the measured ones, then predictions for the other cores."""
    found = predictor(system, evidence)
    if found is None:
        return system.options
    predicted = predicted_options(
        system.options, system.sut, system.mode, cores, found[1], evidence.threads
    )
    return (*system.options, *predicted)


def suts(evidence: Evidence) -> tuple[str, ...]:
    """List the SUTs, published ones first."""
    return tuple(dict.fromkeys(system.sut for system in evidence.systems))
