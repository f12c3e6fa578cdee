"""Functions that return runs, windows and messages as pandas tables. Codes are replaced by names; times are in µs."""

from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from sipsched.plan.crossover import is_comparison
from sipsched.records.catalogue import KEYS, Catalogue
from sipsched.records.messages import FLAGS, MESSAGE_TYPES
from sipsched.records.windows import LEFT_OUT, VARIABLES

RUN_COLUMNS = (
    *("grade", "achieved_cps", "messages", "pdr", "call_loss"),
    *("k_rcv_mean", "k_rcv_p50", "k_rcv_p99", "t_sip_mean", "t_sip_p50", "t_sip_p99"),
)
TIMES = ("k_stack", "k_sockq", "k_copy", "k_rcv", "t_sip", "t_sip_off", "total", "k_snd")
KIND_NAMES = {code: name for name, code in MESSAGE_TYPES.items()}


def run_frame(runs: Catalogue) -> pd.DataFrame:
    """Return a pandas table with one row per run: settings and statistics of the run.

    Raises
    ------
    StableError
        The selection contains only some windows of a run.
    """
    summary = runs.summary().sel(message_type="all", drop=True)[list(RUN_COLUMNS)]
    rows = [{key: getattr(run, key) for key in KEYS[1:]} for run in runs.runs]
    numbers = [{name: value.item() for name, value in summary.sel(row).items()} for row in rows]
    return pd.DataFrame([row | own for row, own in zip(rows, numbers, strict=True)])


def window_frame(runs: Catalogue) -> pd.DataFrame:
    """Return a pandas table with one row per window of the runs that compare modes.

    Columns: the settings in which the runs differ, `block`, `mode`, `sham`, `start_s`, `length_s`, `left_out` (the
    reason for excluding the window; empty if the window is valid), and the variables of `windows.nc` after the washout.
    """
    tables = []
    for run in (run for run in runs if is_comparison(run.one.mode)):
        ds = run.windows()
        columns: dict[str, Any] = {key: getattr(run.one, key) for key in _differing(runs)}
        columns |= {"block": ds["block"].to_numpy(), "mode": ds["mode_name"].to_numpy()}
        columns |= {"sham": ds["sham"].to_numpy() == 1}
        columns |= {f"{name}_s": ds[name].to_numpy() for name in ("start", "length")}
        columns["left_out"] = [LEFT_OUT[code] if code else "" for code in ds["left_out"].to_numpy()]
        columns |= {name: ds[name].isel(washout=0).to_numpy() for name in VARIABLES if name in ds}
        tables.append(pd.DataFrame(columns))
    return pd.concat(tables, ignore_index=True) if tables else pd.DataFrame()


def message_frame(runs: Catalogue) -> pd.DataFrame:
    """Return a pandas table with one row per received message, in order of arrival within each run.

    Columns: the settings in which the runs differ; for runs that compare modes, `mode`, `window`, `block` and
    `evaluated`; `type`, `worker` and `cpu`; `TIMES` in µs, float32, NaN where missing; `flags`, the names of the
    message's flags, separated by commas.

    Raises
    ------
    StableError
        The per-message times of a run are not available.
    """
    ds = runs.messages().drop_dims("drop")
    along = [name for name, values in ds.coords.items() if values.dims == ("message",)]
    columns: dict[str, Any] = {str(name): ds[name].to_numpy() for name in along}
    if "mode" in columns:
        columns["mode"] = pd.Categorical(columns["mode"])
    columns["type"] = pd.Categorical([KIND_NAMES[code] for code in ds["message_type"].to_numpy()])
    columns |= {name: ds[name].to_numpy() for name in ("worker", "cpu")}
    columns |= {name: _microseconds(ds, name) for name in TIMES if name in ds}
    codes, places = np.unique(ds["flags"].to_numpy(), return_inverse=True)
    columns["flags"] = pd.Categorical.from_codes(places, [flag_names(int(code)) for code in codes])
    return pd.DataFrame(columns)


def flag_names(code: int) -> str:
    """Return the names of the flags in a message's code, separated by commas."""
    return ", ".join(name for name, bit in FLAGS.items() if code & bit)


def _microseconds(ds: xr.Dataset, name: str) -> Any:
    return (ds[name] / 1000).astype(np.float32).to_numpy()


def _differing(runs: Catalogue) -> list[str]:
    return [key for key in runs.varied if key != "mode"]
