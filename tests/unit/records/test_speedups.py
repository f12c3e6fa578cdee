"""Tests of writing and reading `speedups.csv`."""

from pathlib import Path

import numpy as np
import pytest

from sipsched.errors import StableError
from sipsched.records.speedups import Speedup, read_speedups, write_speedups

ROW = Speedup(
    deployment="partitioned",
    transport="udp",
    cores=4,
    threads=8,
    capacity_cps=9333.0,
    low=9100.0,
    high=9600.0,
    speedup=3.75,
    speedup_low=3.5,
    speedup_high=4.25,
    receive_cpus=4,
    model="kamailio-qm fitted to 2 runs; each core receives, no lock",
)


def test_a_written_file_is_read_back(tmp_path: Path) -> None:
    path = tmp_path / "speedups.csv"
    write_speedups([ROW, ROW], path)
    assert read_speedups(path) == (ROW, ROW)
    first, header = path.read_text().splitlines()[:2]
    assert "not measured" in first
    assert header == (
        "deployment,transport,cores,threads,capacity_cps,low,high,speedup,speedup_low,speedup_high,"
        "receive_cpus,model"
    )


def test_an_unknown_interval_is_nan(tmp_path: Path) -> None:
    path = tmp_path / "speedups.csv"
    path.write_text(
        "deployment,transport,cores,threads,capacity_cps,low,high,speedup,speedup_low,speedup_high,"
        "receive_cpus,model\nshared,udp,1,1,2000,nan,nan,1,nan,nan,1,of nothing\n"
    )
    (row,) = read_speedups(path)
    assert np.isnan([row.low, row.high, row.speedup_low, row.speedup_high]).all()


@pytest.mark.parametrize("text", ["cores,threads\n1,2\n", "\n".join([*["x"] * 3])])
def test_another_file_is_one_clear_error(text: str, tmp_path: Path) -> None:
    path = tmp_path / "speedups.csv"
    path.write_text(text)
    with pytest.raises(StableError, match=r"speedups\.csv: no speedups\.csv"):
        read_speedups(path)


def test_a_missing_file_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(StableError, match="make it with snakemake"):
        read_speedups(tmp_path / "speedups.csv")
