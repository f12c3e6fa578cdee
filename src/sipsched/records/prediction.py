"""The simulator's predictions in `results/predicted/`: the files `settings.nc` and `capacity.json` per testbed."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import numpy as np
import numpy.typing as npt
import xarray as xr

from sipsched.errors import MAKE_AGAIN
from sipsched.files import read_json, whole, write_json
from sipsched.plan.modes import split_name
from sipsched.records.computed import open_netcdf
from sipsched.records.conversion import as_part
from sipsched.records.fitted import Fitted
from sipsched.versions import PREDICTION_VERSION

FORMAT = "sipsched prediction"
UNITS = {
    "k_rcv_mean": "us",
    "k_rcv_p50": "us",
    "t_sip_mean": "us",
    "t_sip_p90": "us",
    "t_sip_p95": "us",
    "off_share": "1",
    "cpu_per_message": "us",
}
"""Units of the predicted quantities. `off_share` is the share of T_sip during which the worker has no CPU."""

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, order=True)
class PredictedSetting:
    """The settings and load of a simulated run. `compared` is true if the run alternates between several modes."""

    sut: str
    mode: str
    cores: int
    threads: int
    cps: int
    compared: bool

    @classmethod
    def of_mode(
        cls, sut: str, mode: str, cores: int, threads: int, cps: int
    ) -> "PredictedSetting | None":
        """Return the setting of a mode in a run that compares modes. The mode's name may change workers and cores.

        The result is None for a mode with another SUT or another receive buffer, which the simulator does not predict.
        Proxy instances with equal settings, which differ only in the override `start`, have the same predicted setting.
        """
        base, other, rest = split_name(mode)
        if other.sut is not None or other.receive_buffer_bytes is not None:
            return None
        name = "+".join((base, *rest))
        return cls(sut, name, other.cores or cores, other.threads or threads, cps, True)


@dataclass(frozen=True)
class Predicted:
    """The simulated results of one setting. Each row is a replicate with its own random arrivals and parameters.

    Attributes
    ----------
    whole
        Quantities over all messages; shape (replicate, quantity of `UNITS`).
    windows
        Quantities per window without its washout; shape (replicate, window, quantity). The load determines the length
        of the windows. A setting of a run with one mode has no windows.
    """

    setting: PredictedSetting
    whole: Floats
    windows: Floats


@dataclass(frozen=True)
class Predictions:
    """All predictions, the fitted parameters that the simulator used, and the shortest simulated load in s."""

    fitted: Fitted
    seconds: float
    predicted: tuple[Predicted, ...]


def write_predictions(predictions: Predictions, path: Path) -> None:
    """Write `settings.nc` as netCDF-4 with zlib compression, in one atomic step."""
    predicted = predictions.predicted
    replicates = max((len(prediction.whole) for prediction in predicted), default=0)
    most = max((prediction.windows.shape[1] for prediction in predicted), default=0)
    whole_runs = np.full((len(predicted), replicates, len(UNITS)), np.nan)
    windows = np.full((len(predicted), replicates, most, len(UNITS)), np.nan)
    for i, prediction in enumerate(predicted):
        whole_runs[i, : len(prediction.whole)] = prediction.whole
        windows[i, : len(prediction.windows), : prediction.windows.shape[1]] = prediction.windows
    settings = [asdict(prediction.setting) for prediction in predicted]
    ds = xr.Dataset(
        {
            **{
                field.name: ("setting", [setting[field.name] for setting in settings])
                for field in fields(PredictedSetting)
            },
            "n_windows": ("setting", [prediction.windows.shape[1] for prediction in predicted]),
            "whole": (("setting", "replicate", "quantity"), whole_runs),
            "windows": (("setting", "replicate", "window", "quantity"), windows),
        },
        {"quantity": list(UNITS)},
        {
            "format": FORMAT,
            "format_version": PREDICTION_VERSION,
            "fitted": json.dumps(asdict(predictions.fitted), indent=1),
            "seconds": predictions.seconds,
        },
    )
    encoding = {name: {"compression": "zlib"} for name in ("whole", "windows")}
    with whole(path) as partial:
        ds.to_netcdf(partial, engine="netcdf4", encoding=encoding)


def open_predictions(path: Path) -> Predictions:
    """Read the predictions from a `settings.nc`.

    Raises
    ------
    StableError
        The file is missing, is not netCDF, or has another format version.
    """
    ds = open_netcdf(path, FORMAT, PREDICTION_VERSION)
    predicted = []
    for i in range(ds.sizes.get("setting", 0)):
        row = ds.isel(setting=i)
        setting = PredictedSetting(
            **{field.name: row[field.name].item() for field in fields(PredictedSetting)}
        )
        count = int(row["n_windows"])
        windows = row["windows"].to_numpy()[:, :count]
        predicted.append(Predicted(setting, row["whole"].to_numpy(), windows))
    fitted = as_part(Fitted, json.loads(ds.attrs["fitted"]), str(path))
    return Predictions(fitted, float(ds.attrs["seconds"]), tuple(predicted))


@dataclass(frozen=True)
class CapacityOfCores:
    """The simulated capacity for one number of cores and one number of threads.

    Attributes
    ----------
    cps
        Load at which the packet drop rate passes its limit, or at which receive softirqs saturate a CPU.
    receive_share
        Share of time that the busiest receiving CPU spends in receive softirqs at this load.
    busy_share
        Share of time that all CPUs together are busy at this load.
    """

    cores: int
    threads: int
    cps: float
    receive_share: float
    busy_share: float


@dataclass(frozen=True)
class CapacityPrediction:
    """The simulated capacities for all numbers of cores and threads.

    Attributes
    ----------
    cores_per_processor
        Number of cores per processor of the simulated machine.
    carried
        Capacity of each setting, with the fitted parameters.
    draws
        Capacities with the parameters of each bootstrap sample of the fit, at the best number of threads per number of
        cores.
    assumed
        Capacities for each alternative assumption about proxies on several cores.
    """

    fitted: Fitted
    limit: float
    cores_per_processor: int
    carried: tuple[CapacityOfCores, ...] = ()
    draws: tuple[CapacityOfCores, ...] = ()
    assumed: dict[str, tuple[CapacityOfCores, ...]] | None = None

    def best(self, cores: int) -> CapacityOfCores | None:
        """Return the largest simulated capacity with `cores` cores. Among equal capacities, prefer fewer threads."""
        among = [setting for setting in self.carried if setting.cores == cores]
        return max(among, key=lambda setting: (setting.cps, -setting.threads), default=None)

    @property
    def cores(self) -> Sequence[int]:
        """Return the simulated numbers of cores in ascending order."""
        return sorted({setting.cores for setting in self.carried})


def write_capacity(prediction: CapacityPrediction, path: Path) -> None:
    """Write `capacity.json`, in one atomic step."""
    write_json(path, {"schema_version": PREDICTION_VERSION, **asdict(prediction)})


def read_capacity(path: Path) -> CapacityPrediction:
    """Read the simulated capacities on each number of cores from a file `capacity.json`.

    Raises
    ------
    StableError
        The file is missing, damaged or of another format version.
    """
    return as_part(CapacityPrediction, read_json(path, PREDICTION_VERSION, MAKE_AGAIN), str(path))
