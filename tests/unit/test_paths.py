from pathlib import Path

from sipsched import paths
from sipsched.analysis.run_table import find_summaries


def test_without_own_studies_paths_are_of_the_recorded_campaign(tmp_path, monkeypatch):
    monkeypatch.setattr(paths, "PROJECT_ROOT", tmp_path)
    sweep = Path("results/load_sweep/local/summary.nc")
    recorded = tmp_path / "results/recorded/raw/load_sweep/local/summary.nc"
    for path in (tmp_path / "recorded/raw/local/noise.json", recorded):
        path.parent.mkdir(parents=True)
        path.touch()
    assert paths.locate("raw/local/noise.json").is_file()
    assert paths.locate(str(sweep)) == recorded
    assert paths.locate("config") == tmp_path / "config"
    assert find_summaries("local") == [recorded]
    (tmp_path / sweep).parent.mkdir(parents=True)
    (tmp_path / sweep).touch()
    assert paths.locate(sweep) == tmp_path / sweep
    assert not paths.locate("raw/local/noise.json").exists()
    assert find_summaries() == [tmp_path / sweep]
