"""Tests of the page of single messages."""

from dataclasses import fields, replace

import numpy as np
import pytest
import synthetic
from page_text import text

from sipsched.pages import messages as page
from sipsched.pages.parts import Figure, Table, Words
from sipsched.records.bursts import BURSTS_FILE
from sipsched.records.cpu_report import Account, Competitor, CpuParts


def read(folder, *capacities):
    return page.read("synthetic", [folder / "raw", folder / "fit"], capacities)


def test_the_load_nearest_to_eighty_percent_of_capacity_is_shown(tmp_path):
    for run in synthetic.repeated((500, 1000, 1500, 2000), 2):
        synthetic.write_record(tmp_path / "raw", run, drops=4)
    synthetic.write_record(tmp_path / "raw", synthetic.Run(mode="enhanced", cps=4000))
    synthetic.write_record(tmp_path / "raw", synthetic.Run(threads=16, cps=3000))
    system = {"testbed": "synthetic", "mode": "default", "cores": 1, "threads": 8}
    result = read(tmp_path, synthetic.capacity(1850.0, **system))
    assert list(result.by_load) == [500, 1500, 2000]
    assert result.shown_cps == 1500
    total = np.concatenate([run.wait_us + run.service_us for run in result.shown])
    usual, slow = np.nanpercentile(total, (50, 99))
    said = page.answer(result).line
    assert f"2 runs of {result.shown[0].length_s:.2g} " in said
    assert "at 1\u202f500 calls per second. This load is 81 % of the capacity of" in said
    assert f"{slow / usual:.3g} times the median" in said
    table = page.by_load(result)
    assert [row[0] for row in table.rows] == ["500", "1\u202f500", "2\u202f000"]
    assert {row[3] for row in table.rows} == {"8"}
    shares = [[int(cell.removesuffix(" %")) for cell in row[-3:]] for row in table.rows]
    assert all(80 < sum(row) <= 101 for row in shares)
    figures = [*page.ways(result).parts, *page.around(result).parts, *page.over_time(result).parts]
    identities = [part.identity for part in figures if isinstance(part, Figure)]
    assert identities == ["figure-waterfall", "figure-lanes", "figure-heat"]
    assert "SHA-256" in text(page.versions(result))
    # the load of 2000 cps is half of the capacity of 4000 cps
    far = page.answer(read(tmp_path, synthetic.capacity(4000.0, **system))).line
    assert "50 % of the capacity" in far and "nearest to 80 %" in far
    assert "nearest to" not in said


def test_without_a_capacity_the_load_in_the_middle_is_shown(tmp_path):
    for run in synthetic.repeated((500, 1000, 2000), 1):
        synthetic.write_record(tmp_path / "raw", run)
    result = read(tmp_path, synthetic.capacity(1850.0, mode="other"))
    assert result.shown_cps == 1000
    assert "The capacity is not known" in page.answer(result).line


def test_the_account_of_cpu_time_names_every_user():
    none = CpuParts(*[0] * len(fields(CpuParts)))
    parts = replace(none, total=100, workers=60, softirq=20, fair=5, realtime=1, idle=14)
    account = Account(parts, (), 0, None, 0, 0, 0, 0, 0, 0)
    text = page.account_words(account)
    for user, share in (("the workers", 60), ("softirq)", 20), ("idle", 14), ("other programs", 6)):
        assert f"{user} {share} %" in text
    assert "hypervisor" not in text
    assert "declares" not in text
    logger = Competitor("logger", 40, "SCHED_OTHER", 0, 2 * 10**9, 3, 10**6, 1)
    text = page.account_words(replace(account, planned=(logger,)))
    assert (
        "The file of the testbed lists these programs, which ran as competitors on purpose: logger (nice 0, pid 40) "
        "ran 2 s on CPU 1." in text
    )
    assert "unknown" in page.account_words(None)


def test_the_page_names_who_ran_while_the_slowest_messages_waited(tmp_path):
    start, end = synthetic.START_NS, synthetic.START_NS + 10**9
    for rep in (1, 2):
        bursts = [(cpu, start, end, "fair", "backup", 7) for cpu in range(8)]
        synthetic.write_record(tmp_path / "raw", synthetic.Run(rep=rep), bursts=bursts)
    result = read(tmp_path)
    (table,) = (part for part in page.around(result).parts if isinstance(part, Table))
    assert table.rows[0][0] == "backup" and table.rows[0][-1] == "100.0 %"
    assert "backup (other program)" in text(page.around(result))
    # the page also works for records without the file of bursts, as in recorded/
    for path in (tmp_path / "raw").rglob(BURSTS_FILE):
        path.unlink()
    assert text(page.around(read(tmp_path))).count("unknown") == 1


def test_short_runs_above_the_capacity_without_drops_are_explained(tmp_path):
    for drops in (0, 4):
        for cps in (500, 2000):
            synthetic.write_record(
                tmp_path / f"{drops}" / "raw", synthetic.Run(cps=cps), drops=drops
            )
    system = {"testbed": "synthetic", "mode": "default", "cores": 1, "threads": 8}
    capacity = synthetic.capacity(600.0, **system)
    above = page.by_load(read(tmp_path / "0", capacity)).caption
    assert "At 2\u202f000 cps, the socket refused no message" in above
    for result in (read(tmp_path / "0"), read(tmp_path / "4", capacity)):
        assert "refused" not in page.by_load(result).caption


def test_the_folder_with_more_loads_is_shown(tmp_path):
    synthetic.write_record(tmp_path / "raw", synthetic.Run(cps=700))
    for run in synthetic.repeated((800, 900), 1):
        synthetic.write_record(tmp_path / "fit", run)
    assert list(read(tmp_path).by_load) == [800, 900]


def test_without_bpf_the_stages_are_unknown(tmp_path):
    synthetic.write_record(tmp_path / "raw", synthetic.Run(), mode=3)
    result = read(tmp_path)
    assert "times the median." in page.answer(result).line
    assert "is spent" not in page.answer(result).line  # the sentence about the stages is missing
    assert page.by_load(result).rows[0][-3:] == ("not seen",) * 3
    assert page.ways(result).parts == (Words((page.NO_STAGES,)),)
    assert isinstance(page.distributions(result), Figure)


@pytest.mark.parametrize("probe", [None, 0])
def test_a_run_without_messages_is_reported(tmp_path, probe):
    if probe is not None:
        synthetic.write_record(tmp_path / "raw", synthetic.Run(), mode=probe)
    result = read(tmp_path)
    assert page.answer(result).line == page.NOTHING
    assert page.by_load(result).rows == ()
    for part in (page.ways(result), page.around(result), page.over_time(result)):
        assert all(isinstance(each, Words) for each in part.parts)
    assert isinstance(page.distributions(result), Words)
    assert text(page.versions(result)).startswith("sipsched ")
