"""A test of the papers' studies on the simulated testbed, with few short runs: searches, runs and pages."""

import json
from pathlib import Path

from helpers import change_config, copy_project, snakemake

SUTS = ("opensips-udp", "kamailio-udp")
FEW = {"precision": {"at_least": 2, "at_most": 2}}
SHORT = {
    "load": {"calls": {"1": 600, "2": 900}, "warmup_s": 0.2},
    "crossover": {"mode_s": 4},
    "search": {"trial_s": 0.5, "trials_s": 0.5, "relative_width": 0.3, "highest_cps": 8000},
    "studies": {
        "single_core": FEW | {"threads": [2], "cps": [1500]},
        "multi_core": FEW | {"cores": [2], "threads": [4], "cps": [3000]},
        "migration_cost": FEW
        | {
            "modes": ["enhanced+migration_cost_ns=0", "enhanced+migration_cost_ns=500000"],
            "cores": [2],
            "threads": [4],
            "points": [[2, 4]],
        },
        "findings_single_core": {
            "modes": ["enhanced,enhanced+latency_ns=400000"],
            "cps": [800],
            "repetitions": 1,
        },
        "findings_multi_core": {
            "modes": ["enhanced,enhanced+min_granularity_ns=400000"],
            "cps": [1200],
            "repetitions": 1,
        },
    },
}


def test_the_papers_studies_lead_to_their_pages_on_a_simulated_testbed(tmp_path: Path) -> None:
    copy_project(tmp_path)
    # make only one page of several studies, without predictions, because the other pages take minutes
    files = ["config/published/points.csv", "config/models/virtual-capacity.json"]
    page = {"notebook": "notebooks/capacity_model.ipynb", "files": files}
    change_config(tmp_path, lambda document: document.update(documents={"capacity_model": page}))
    (tmp_path / "short.yaml").write_text(json.dumps(SHORT))
    files = ("config/studies/papers.yaml", "short.yaml")
    setting = ("--config", "testbed=simulated-cfs", "--", "all")
    done = snakemake(tmp_path, "--cores", "all", "--configfile", *files, *setting)
    assert done.returncode == 0, done.stderr
    for sut in SUTS:
        raw = tmp_path / "raw" / "simulated-cfs" / sut
        runs = [json.loads(path.read_text()) for path in raw.rglob("run.json")]
        single = [run for run in runs if "," not in run["run"]["mode"]]
        sizes = {(run["run"]["cores"], run["load"]["calls"]) for run in single}
        assert sizes == {(1, 600), (2, 900)}
        modes = {run["run"]["mode"] for run in single if run["run"]["cores"] == 2}
        assert {"baseline", "enhanced", "desktop", "baseline-scaled"} < modes
        assert len(list(raw.rglob("crossing.json"))) == 1
    for study in SHORT["studies"]:
        text = (tmp_path / "reports" / f"{study}-simulated-cfs.html").read_text()
        assert "Predicted by a model, not measured" in text
        assert all(sut in text for sut in SUTS)
    assert (tmp_path / "reports" / "index.html").is_file()
