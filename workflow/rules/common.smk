# What the configuration asks for, checked before any rule exists. No rules in here.
import gc

from sipsched import versions
from sipsched.plan import modes
from sipsched.records import crossing, record
from sipsched.testbed import inventory

# a third of the time to build a large DAG is garbage collection (9.4 s to 6.6 s at 18,000 jobs)
gc.set_threshold(200_000, 50, 1000)

with scripting.one_line_errors():
    CAMPAIGN = settings.parse_config(config, settings.name_files(CONFIG_FILES))
    TESTBEDS = {
        name: inventory.load_testbed(name, Path("hardware/testbeds"))
        for name in CAMPAIGN.testbeds
    }
    RAW = CAMPAIGN.records
    # what comes of other records is kept apart: Snakemake would take the one for the other
    RESULTS = "results" if RAW == Path("raw") else f"results/{RAW}"
    SEARCHES = CAMPAIGN.searches()
    PLANNED = [*SEARCHES, *CAMPAIGN.runs(crossing.read_crossings(RAW, SEARCHES))]
    for bed in TESTBEDS.values():
        bed.check_points(run for run in PLANNED if run.testbed == bed.name)
    MODES = modes.load_modes()
    modes.check(
        {mode for study in CAMPAIGN.studies.values() for mode in study.modes}
        | {point.mode for point in SEARCHES},
        MODES,
    )

# where the controller is the machine that measures, nothing else of ours runs beside a measurement
MEASURE_THREADS = {
    name: workflow.cores or 1 if bed.is_on_this_machine else 1
    for name, bed in TESTBEDS.items()
}
REPORTS = [
    f"reports/{study.name}-{name}.html"
    for study in CAMPAIGN.studies.values()
    if study.notebook
    for name in TESTBEDS
]
ORDER = {}
DOCUMENTS = [f"reports/{name}.html" for name in CAMPAIGN.documents]
COMBINED = {
    name: [f"{RESULTS}/{study}/{name}/summary.nc" for study in CAMPAIGN.studies]
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
    # one way to write a number: threads~08 would be another file of the run of threads~8
    cores=r"[1-9][0-9]*",
    threads=r"[1-9][0-9]*",
    cps=r"[1-9][0-9]*",
    rep=r"[1-9][0-9]*",
    study="|".join(CAMPAIGN.studies),
    document="|".join(CAMPAIGN.documents) or "none",


def measure_threads(wildcards):
    return MEASURE_THREADS[wildcards.testbed]


def check_run(wildcards):
    """Ask for no file, and refuse a run that the configuration could not ask for."""
    with scripting.one_line_errors():
        run = settings.Run.from_wildcards(wildcards)
        CAMPAIGN.check_run(run)
        TESTBEDS[run.testbed].check_points([run])
        modes.check([run.mode], MODES)
    return []


def check_search(wildcards):
    """The same for a search."""
    with scripting.one_line_errors():
        point = settings.Run.from_wildcards({**wildcards, "cps": "0", "rep": "0"})
        CAMPAIGN.check_search(point)
        TESTBEDS[point.testbed].check_points([point])
        modes.check([point.mode], MODES)
    return []


def measure_order(wildcards):
    run = settings.Run.from_wildcards(wildcards)
    if run not in ORDER:
        crossings = crossing.read_crossings(RAW, SEARCHES)
        ORDER.update(
            {run: place for place, run in enumerate(CAMPAIGN.runs(crossings), start=1)}
        )
    # a run that no study asks for is measured because its file was asked for
    return ORDER.get(run, 0)


def searched_points(wildcards):
    """The searches that a study's loads depend on."""
    points = CAMPAIGN.studies[wildcards.study].searches(wildcards.testbed)
    return [
        point
        for point in points
        if not CAMPAIGN.only_measured or (RAW / settings.crossing_path(point)).is_file()
    ]


def study_crossings(wildcards):
    return [
        str(RAW / settings.crossing_path(point)) for point in searched_points(wildcards)
    ]


def study_summaries(wildcards):
    study = CAMPAIGN.studies[wildcards.study]
    points = searched_points(wildcards)
    if not CAMPAIGN.only_measured:
        for point in points:
            names = {name: str(value) for name, value in vars(point).items()}
            checkpoints.find_crossing.get(**names)
    crossings = crossing.read_crossings(RAW, points)
    return [
        f"{RESULTS}/runs/{run.path}/summary.nc"
        for run in study.runs(wildcards.testbed, crossings)
        if not CAMPAIGN.only_measured or record.is_recorded(RAW, run)
    ]


def study_notebook(wildcards):
    return CAMPAIGN.studies[wildcards.study].notebook


def document_notebook(wildcards):
    return CAMPAIGN.documents[wildcards.document].notebook


def document_files(wildcards):
    return CAMPAIGN.documents[wildcards.document].files


def document_summaries(wildcards):
    studies = CAMPAIGN.documents[wildcards.document].studies
    pairs = [
        (study, name)
        for study in studies
        if study in CAMPAIGN.studies
        for name in TESTBEDS
    ]
    return [f"{RESULTS}/{study}/{name}/summary.nc" for study, name in pairs]


def testbed_summaries(wildcards):
    return COMBINED[wildcards.testbed]


def testbed_noise(wildcards):
    return NOISE[wildcards.testbed]
