"""What the simulator predicts: `predicted.nc` of settings, and `predicted_capacity.json` of numbers of cores."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import numpy as np
import numpy.typing as npt
import xarray as xr

from sipsched.errors import StableError
from sipsched.files import read_json, whole
from sipsched.records.fitted import Fitted, from_json, to_json
from sipsched.records.messages import check_format
from sipsched.records.run_document import as_part
from sipsched.versions import PREDICTION_VERSION

FORMAT = "sipsched prediction"
REMEDY = "delete it and run snakemake"
UNITS = {
    "k_rcv_mean": "us",
    "k_rcv_p50": "us",
    "t_sip_mean": "us",
    "t_sip_p90": "us",
    "t_sip_p95": "us",
    "off_share": "1",
    "cpu_per_message": "us",
}
"""Of a run's messages; `off_share` is the time off CPU within T_sip over T_sip."""

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, order=True)
class Setting:
    """What a run is made with, without its repetition; `compared` says whether within a run with others."""

    sut: str
    mode: str
    cores: int
    threads: int
    cps: int
    compared: bool


@dataclass(frozen=True)
class Predicted:
    """A setting in the simulator, a row a replicate with arrivals and numbers of its own.

    Attributes
    ----------
    whole
        Shape (replicate, quantity of `UNITS`): of all messages.
    windows
        Shape (replicate, window, quantity): in windows of the length that the load asks for, without their
        washout; no window of a setting that is not compared within runs.
    """

    setting: Setting
    whole: Floats
    windows: Floats


@dataclass(frozen=True)
class Predictions:
    """What was predicted, with which fit, from so many seconds of load a replicate."""

    fitted: Fitted
    seconds: float
    predicted: tuple[Predicted, ...]


def write_predictions(found: Predictions, path: Path) -> None:
    """Write `predicted.nc`, netCDF-4 with zlib; the file appears whole or not at all."""
    replicates = max((len(each.whole) for each in found.predicted), default=0)
    most = max((each.windows.shape[1] for each in found.predicted), default=0)
    whole_runs = np.full((len(found.predicted), replicates, len(UNITS)), np.nan)
    windows = np.full((len(found.predicted), replicates, most, len(UNITS)), np.nan)
    for i, each in enumerate(found.predicted):
        whole_runs[i, : len(each.whole)] = each.whole
        windows[i, : len(each.windows), : each.windows.shape[1]] = each.windows
    settings = [asdict(each.setting) for each in found.predicted]
    ds = xr.Dataset(
        {
            **{
                each.name: ("setting", [setting[each.name] for setting in settings])
                for each in fields(Setting)
            },
            "n_windows": ("setting", [each.windows.shape[1] for each in found.predicted]),
            "whole": (("setting", "replicate", "quantity"), whole_runs),
            "windows": (("setting", "replicate", "window", "quantity"), windows),
        },
        {"quantity": list(UNITS)},
        {
            "format": FORMAT,
            "format_version": PREDICTION_VERSION,
            "fitted": to_json(found.fitted),
            "seconds": found.seconds,
        },
    )
    encoding = {name: {"compression": "zlib"} for name in ("whole", "windows")}
    with whole(path) as partial:
        ds.to_netcdf(partial, engine="netcdf4", encoding=encoding)


def open_predictions(path: Path) -> Predictions:
    """Read a `predicted.nc`.

    Raises
    ------
    StableError
        The file is missing, is not netCDF, or has another format version.
    """
    try:
        ds = xr.load_dataset(path, engine="netcdf4")
    except FileNotFoundError:
        raise StableError(f"{path}: no such file; make it with snakemake") from None
    except (OSError, ValueError) as error:
        raise StableError(f"{path}: not a netCDF-4 file: {error}; delete it") from None
    check_format(ds.attrs, path, FORMAT, PREDICTION_VERSION)
    predicted = []
    for i in range(ds.sizes.get("setting", 0)):
        row = ds.isel(setting=i)
        setting = Setting(**{each.name: row[each.name].item() for each in fields(Setting)})
        count = int(row["n_windows"])
        windows = row["windows"].to_numpy()[:, :count]
        predicted.append(Predicted(setting, row["whole"].to_numpy(), windows))
    fitted = from_json(ds.attrs["fitted"], path)
    return Predictions(fitted, float(ds.attrs["seconds"]), tuple(predicted))


@dataclass(frozen=True)
class Carried:
    """What so many cores carry in the simulator, with so many threads.

    Attributes
    ----------
    cps
        Where the packet drop rate crosses its limit, or receive softirqs fill a CPU.
    receive_share
        There, of the busiest receiving CPU: share of its time in receive softirqs.
    busy_share
        There, of all CPUs: share of their time that was not idle.
    """

    cores: int
    threads: int
    cps: float
    receive_share: float
    busy_share: float


@dataclass(frozen=True)
class CapacityPrediction:
    """Capacity by cores and threads, by simulation.

    Attributes
    ----------
    fitted
        The model.
    limit
        Packet drop rate at which capacity ends.
    cores_per_processor
        How the cores are spread.
    carried
        Each setting, with the fit's numbers.
    draws
        The best threads of each number of cores, with the numbers of each of the fit's samples.
    assumed
        The same with the costs that are assumed, by what was changed.
    cpu_s
        What it took to compute.
    """

    fitted: Fitted
    limit: float
    cores_per_processor: int
    carried: tuple[Carried, ...] = ()
    draws: tuple[Carried, ...] = ()
    assumed: dict[str, tuple[Carried, ...]] | None = None
    cpu_s: float = 0.0

    def best(self, cores: int) -> Carried | None:
        """Give the setting that carries most, of so many cores; of equals the one of fewest threads."""
        among = [each for each in self.carried if each.cores == cores]
        return max(among, key=lambda each: (each.cps, -each.threads), default=None)

    @property
    def cores(self) -> Sequence[int]:
        """The numbers of cores, ascending."""
        return sorted({each.cores for each in self.carried})


def write_capacity(found: CapacityPrediction, path: Path) -> None:
    """Write `predicted_capacity.json`; the file appears whole."""
    content = {"schema_version": PREDICTION_VERSION, **asdict(found)}
    with whole(path) as partial:
        partial.write_text(json.dumps(content, indent=1) + "\n")


def read_capacity(path: Path) -> CapacityPrediction:
    """Read a `predicted_capacity.json`.

    Raises
    ------
    StableError
        The file is missing, damaged or of another version.
    """
    return as_part(CapacityPrediction, read_json(path, PREDICTION_VERSION, REMEDY), str(path))
