"""The published numbers: all there, read strictly."""

import shutil
from pathlib import Path

import pytest

from sipsched import published
from sipsched.errors import StableError

# Loads × metrics: five numbers of threads (six cores: four), two loads each. Table I of the
# multi-core paper lacks a row, and the single-core paper does not count call set-up apart.
CELLS = {
    ("multicore", "I"): 10 * 7,
    ("multicore", "II"): 10 * 8,
    ("multicore", "IV"): 10 * 8,
    ("multicore", "V"): 10 * 8,
    ("multicore", "VII"): 8 * 8,
    ("multicore", "VIII"): 8 * 8,
    ("singlecore", "I"): 10 * 6,
    ("singlecore", "II"): 10 * 6,
}
ROWS_COMPARED = {
    ("multicore", "III"): 5,
    ("multicore", "VI"): 5,
    ("multicore", "IX"): 4,
    ("singlecore", "III"): 5,
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the published numbers to spoil."""
    return Path(shutil.copytree(published.FOLDER, tmp_path / "published"))


def spoil(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert text.count(old) == 1, old
    path.write_text(text.replace(old, new))


def test_every_cell_of_the_tables_is_there():
    points = published.load_points()
    assert points.groupby(["study", "table"]).size().to_dict() == CELLS
    compared = published.load_comparison()
    assert compared.groupby(["study", "table"]).size().to_dict() == ROWS_COMPARED


def test_a_table_is_of_one_mode_and_one_number_of_cores():
    by_table = published.load_points().groupby(["study", "table"])
    assert (by_table[["mode", "cores"]].nunique() == 1).all(axis=None)
    columns = published.wide(published.load_points())
    assert (columns.groupby(["study", "table", "threads"]).size() == 2).all()


def test_arrival_rate_is_six_messages_a_call():
    columns = published.wide(published.load_points())
    assert (columns["arrival_rate_pps"] == 6 * columns["cps"]).all()


def test_values_keep_their_printed_digits():
    points = published.load_points()
    at = points.query("study == 'multicore' and table == 'I' and threads == 2 and cps == 3200")
    (pdr,) = at[at["metric"] == "pdr"].to_dict("records")
    assert (pdr["value"], pdr["printed"]) == (0.013, "0.0130")
    compared = published.load_comparison().iloc[0]
    assert (compared["pdr_enhanced"], compared["pdr_enhanced_printed"]) == (0.006, "0.0060")


def test_columns_side_by_side_keep_holes():
    columns = published.wide(published.load_points())
    without = columns[columns["rcv_errors"].isna()]
    assert set(zip(without["study"], without["table"], strict=True)) == {("multicore", "I")}
    assert columns["call_setup_drops"].isna().sum() == 20  # the single-core paper's


def test_crossings_as_printed():
    found = published.crossings(published.load_points())
    assert len(found) == 38
    at = found.set_index(["study", "cores", "threads", "mode"])
    row = at.loc[("multicore", 2, 4, "enhanced")]
    assert (row["last_cps"], row["first_cps"]) == (4400, 4600)
    assert (row["last_pdr"], row["first_k_rcv_us"]) == (0.0086, 591.99)
    # printed as 0.0100: not above the limit
    row = at.loc[("multicore", 2, 16, "baseline")]
    assert row["last_cps"] == 2600
    assert row.isna()["first_cps"]


def test_crossings_of_another_limit():
    found = published.crossings(published.load_points(), pdr_limit=0.005)
    at = found.set_index(["study", "cores", "threads", "mode"])
    assert at.loc[("singlecore", 1, 8, "enhanced"), "last_cps"] == 1600
    assert at["last_cps"].notna().sum() == 1


@pytest.mark.parametrize(
    ("name", "old", "new", "message"),
    [
        ("points.csv", "metric,value", "metric,number", "line 1: expected the columns study, "),
        ("points.csv", "3000,t_sip_us,58.05", "3000,t_sip_us,", "line 3: value: .* found nothing"),
        ("points.csv", "3000,t_sip_us,58.05", "3000,t_sip_us,nan", "line 3: value: .* 'nan'"),
        ("points.csv", "3000,t_sip_us,58.05", "3000,t_sip_ms,58.05", "line 3: metric: expected"),
        ("points.csv", ",3000,t_sip_us,58.05", ",3000", "line 3: expected 8 values, found 6"),
        ("points.csv", "3000,t_sip_us,58.05", "3000,arrival_rate_pps,1", "line 3: .* in line 2"),
        ("comparison.csv", "multicore,III,2,2,", "multicore,X,2,2,", "line 2: table: .* 'X'"),
        ("comparison.csv", "III,2,4,3800", "III,2,2,3200", "line 3: .* in line 2"),
        ("capacity.csv", "V,1,2,4", "V,1,2,0", "line 2: threads: expected a whole number"),
        ("ranges.csv", "III,pdr_lower_pct,4", "III,pdr,4", "line 2: metric: expected one of"),
    ],
)
def test_a_damaged_file_names_file_and_line(folder, name, old, new, message):
    spoil(folder / name, old, new)
    load = getattr(published, f"load_{name.removesuffix('.csv')}")
    with pytest.raises(StableError, match=f"{name}: {message}"):
        load(folder)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "no such file"),
        (b"", "found none"),
        (b"\xff\xfe", "not a CSV file in UTF-8"),
        (b'"study', "not a CSV file"),
    ],
)
def test_a_file_that_is_none_is_refused(folder, content, message):
    path = folder / "points.csv"
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(StableError, match=f"points.csv: .*{message}"):
        published.load_points(folder)


def test_a_file_without_rows_is_refused(folder):
    path = folder / "points.csv"
    path.write_text(path.read_text().splitlines()[0] + "\n")
    with pytest.raises(StableError, match="no row"):
        published.load_points(folder)
