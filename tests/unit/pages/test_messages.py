"""The page of single messages."""

import numpy as np
import pytest
import synthetic

from sipsched.pages import messages as page
from sipsched.pages.parts import Figure, Words


def read(folder):
    return page.read("synthetic", [folder / "raw", folder / "fit"])


def test_the_highest_load_is_in_the_first_sentence(tmp_path):
    for run in synthetic.repeated((500, 1000, 1500, 2000), 2):
        synthetic.write_record(tmp_path / "raw", run, drops=4)
    synthetic.write_record(tmp_path / "raw", synthetic.Run(mode="enhanced", cps=4000))
    synthetic.write_record(tmp_path / "raw", synthetic.Run(threads=16, cps=3000))
    found = read(tmp_path)
    assert list(found.by_load) == [500, 1000, 2000]
    total = np.concatenate([run.wait_us + run.service_us for run in found.highest])
    usual, slow = np.nanpercentile(total, (50, 99))
    said = page.answer(found).line
    assert said.startswith(
        "At 2\u202f000 calls per second one message in a hundred takes longer than "
    )
    assert f"{slow / usual:.3g} times as long as a usual one" in said
    table = page.by_load(found)
    assert [row[0] for row in table.rows] == ["500", "1\u202f000", "2\u202f000"]
    assert {row[3] for row in table.rows} == {"8"}
    shares = [[int(cell.removesuffix(" %")) for cell in row[-3:]] for row in table.rows]
    assert all(80 < sum(row) <= 101 for row in shares)
    figures = [*page.ways(found).parts, *page.around(found).parts, *page.over_time(found).parts]
    identities = [figure.identity for figure in figures]
    assert len(identities) == len(set(identities)) == 6
    assert "SHA-256" in page.versions(found).lines[-1]


def test_the_folder_with_more_loads_is_shown(tmp_path):
    synthetic.write_record(tmp_path / "raw", synthetic.Run(cps=700))
    for run in synthetic.repeated((800, 900), 1):
        synthetic.write_record(tmp_path / "fit", run)
    assert list(read(tmp_path).by_load) == [800, 900]


def test_without_bpf_the_stages_are_not_seen(tmp_path):
    synthetic.write_record(tmp_path / "raw", synthetic.Run(), mode=3)
    found = read(tmp_path)
    assert page.answer(found).line.endswith("times as long as a usual one.")
    assert page.by_load(found).rows[0][-3:] == ("not seen",) * 3
    assert page.ways(found).parts == (Words((page.NO_STAGES,)),)
    assert isinstance(page.distributions(found), Figure)


@pytest.mark.parametrize("probe", [None, 0])
def test_no_messages_are_said(tmp_path, probe):
    if probe is not None:
        synthetic.write_record(tmp_path / "raw", synthetic.Run(), mode=probe)
    found = read(tmp_path)
    assert page.answer(found).line == page.NOTHING
    assert page.by_load(found).rows == ()
    for part in (page.ways(found), page.around(found), page.over_time(found)):
        assert all(isinstance(each, Words) for each in part.parts)
    assert isinstance(page.distributions(found), Words)
    assert page.versions(found).lines
