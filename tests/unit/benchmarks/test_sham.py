"""Tests of benchmarks/sham.py: the compared windows, and the rate of rejections."""

from pathlib import Path

import numpy as np
import pytest
import sham
from synthetic import Run, write_comparison

from sipsched.records import windows
from sipsched.records.messages import messages_from_record, write_messages

RUN = Run(mode="default,batch", cps=400)


def results(folder: Path, raw: Path, **options: object) -> Path:
    """Write a comparison, reduce it, and return the folder with its `windows.nc`."""
    record = write_comparison(raw, RUN, {"default": 1.0, "batch": 2.0}, **options)
    made = folder / RUN.path
    made.mkdir(parents=True)
    write_messages(messages_from_record(record), made / "messages.nc")
    windows.write_windows(
        windows.windows_from_record(made / "messages.nc", record), made / "windows.nc"
    )
    return folder


def test_sham_and_reference_come_from_valid_blocks(tmp_path: Path) -> None:
    # the switch in the first block failed
    folder = results(tmp_path / "results", tmp_path / "raw", broken=[0, 1, 2])
    (ds,) = sham.find([folder])
    pairs = sham.pairs(ds)
    assert pairs.shape == (len(sham.QUANTITIES), 19, 2)
    table = windows.by_arm(ds, "k_rcv_mean")[1:]
    assert np.array_equal(pairs[0], table[:, [0, 2]])


def test_a_run_in_two_folders_counts_once(tmp_path: Path) -> None:
    folder = results(tmp_path / "results", tmp_path / "raw")
    again = tmp_path / "again"
    again.mkdir()
    (again / "windows.nc").write_bytes((folder / RUN.path / "windows.nc").read_bytes())
    assert len(sham.find([folder, again])) == 1


def test_a_damaged_file_is_named_and_excluded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "windows.nc").write_text("no netCDF")
    assert sham.find([tmp_path]) == []
    assert str(tmp_path / "windows.nc") in capsys.readouterr().err


def test_groups_are_disjoint_and_whole() -> None:
    table = np.arange(2 * 25 * 2, dtype=float).reshape(2, 25, 2)
    cut = sham.groups(table, 10)
    assert [group.shape for group in cut] == [(2, 10, 2)] * 2
    assert np.array_equal(np.concatenate(cut, axis=1), table[:, :20])


def test_a_difference_is_rejected_and_chance_at_its_level() -> None:
    rng = np.random.default_rng(1)
    drawn = rng.lognormal(0, 0.2, (400, 10, 2))
    # with a true rate of 5 %, the rate of 400 samples is between 2 and 9 % in 99 of 100 cases
    assert 0.02 < np.mean([sham.rejected(group) for group in drawn]) < 0.09
    assert sham.rejected(drawn[0] * [1, 2]) == 1


def test_a_missing_measurement_is_not_a_test() -> None:
    assert np.isnan(sham.rejected(np.full((10, 2), np.nan)))


def test_the_interval_of_a_rate_is_that_of_a_binomial() -> None:
    # the interval for 5 of 100 was computed by hand (Clopper and Pearson 1934)
    low, high = sham.Rate(5, 100, 100).interval
    assert (low, high) == pytest.approx((0.0164, 0.1128), abs=1e-4)
    assert sham.Rate(0, 10, 10).interval == pytest.approx((0, 0.3085), abs=1e-4)
    assert sham.Rate(10, 10, 10).interval[1] == 1


def test_identical_quantities_count_as_one() -> None:
    rng = np.random.default_rng(1)
    column = (rng.random((500, 1)) < 0.05).astype(float)
    together = sham.rate(np.repeat(column, 4, axis=1))
    assert together.comparisons == 2000
    assert together.worth == pytest.approx(500, rel=0.01)
    apart = sham.rate((rng.random((500, 4)) < 0.05).astype(float))
    assert apart.worth > 1500


def test_few_rejections_do_not_show_dependence() -> None:
    assert sham.rate(np.zeros((20, 4))).worth == 20
    rejects = np.zeros((40, 4))
    rejects[[1, 5, 9], [0, 1, 2]] = 1
    assert sham.rate(rejects).worth == 40


def test_too_few_comparisons_have_no_verdict() -> None:
    assert "60 comparisons are too few" in sham.verdict(sham.Rate(3, 60, 60))
    assert sham.verdict(sham.Rate(10, 200, 100)).endswith("reached")
    assert sham.verdict(sham.Rate(30, 200, 100)).endswith("missed")


def test_it_prints_counts_of_real_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = results(tmp_path / "results", tmp_path / "raw")
    monkeypatch.setattr("sys.argv", ["sham.py", str(folder)])
    sham.main()
    printed = capsys.readouterr().out
    assert "1 runs (1 simulated), 20 valid blocks, 2 groups of 10" in printed
    assert "these 8 comparisons" in printed


def test_a_folder_without_files_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["sham.py", str(tmp_path)])
    sham.main()
    assert "no windows.nc under" in capsys.readouterr().out
