# What the configuration asks for, checked before any rule exists. No rules in here.
import gc

from sipsched import config as settings
from sipsched import dataset, modes, record, scripting, summary
from sipsched import testbed as testbeds

# a third of the time to build a large DAG is garbage collection (9.4 s to 6.6 s at 18,000 jobs)
gc.set_threshold(200_000, 50, 1000)

with scripting.one_line_errors():
    CAMPAIGN = settings.parse_config(config)
    TESTBEDS = {
        name: testbeds.load_testbed(name, Path("hardware/testbeds"))
        for name in CAMPAIGN.testbeds
    }
    for bed in TESTBEDS.values():
        bed.check_points(CAMPAIGN.runs(bed.name))
    modes.check({run.mode for run in CAMPAIGN.runs()})

# where the controller is the machine that measures, nothing else of ours runs beside a measurement
MEASURE_THREADS = {
    name: workflow.cores or 1 if bed.kind == "local" else 1
    for name, bed in TESTBEDS.items()
}
RAW = CAMPAIGN.records
SUMMARIES = {
    (study.name, name): [
        f"results/runs/{run.path}/summary.nc"
        for run in study.runs(name)
        if not CAMPAIGN.only_measured or record.is_recorded(RAW, run)
    ]
    for study in CAMPAIGN.studies.values()
    for name in TESTBEDS
}
REPORTS = [f"reports/{study}-{name}.html" for study, name in SUMMARIES]
DOCUMENTS = [f"reports/{name}.html" for name in CAMPAIGN.documents]

COMBINED = {
    name: [
        f"results/{study}/{testbed}/summary.nc"
        for study, testbed in SUMMARIES
        if testbed == name
    ]
    for name in TESTBEDS
}
NOISE = {
    name: [] if CAMPAIGN.only_measured and not path.exists() else [path]
    for name in TESTBEDS
    for path in [RAW / name / "noise.json"]
}
PAGES = [
    *REPORTS,
    *(f"reports/testbed-{name}.html" for name in TESTBEDS),
    *DOCUMENTS,
]


wildcard_constraints:
    testbed=r"[A-Za-z0-9_-]+",
    sut=r"[a-z0-9-]+",
    mode=r"[^/]+",
    cores=r"\d+",
    threads=r"\d+",
    cps=r"\d+",
    rep=r"\d+",
    study="|".join(CAMPAIGN.studies),
    document="|".join(CAMPAIGN.documents) or "none",


def measure_threads(wildcards):
    return MEASURE_THREADS[wildcards.testbed]


def study_summaries(wildcards):
    return SUMMARIES[wildcards.study, wildcards.testbed]


def study_notebook(wildcards):
    return CAMPAIGN.studies[wildcards.study].notebook


def document_notebook(wildcards):
    return CAMPAIGN.documents[wildcards.document].notebook


def document_files(wildcards):
    return CAMPAIGN.documents[wildcards.document].files


def testbed_summaries(wildcards):
    return COMBINED[wildcards.testbed]


def testbed_noise(wildcards):
    return NOISE[wildcards.testbed]
