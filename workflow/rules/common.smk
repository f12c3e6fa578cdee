# What the configuration asks for, checked before any rule exists. No rules in here.
import functools
import gc
import itertools
import os
import signal
from datetime import UTC, datetime
from types import SimpleNamespace

from snakemake.io import is_flagged

from sipsched import paths, versions
from sipsched.measure import aside
from sipsched.pages import progress
from sipsched.plan import crossover, modes
from sipsched.records import (
    crossing,
    forecast,
    look,
    missing,
    record,
    reduced,
    settled,
    twins,
)
from sipsched.testbed import inventory
import snakemake_logger_plugin_campaign as terminal

# a third of the time to build a large DAG is garbage collection (9.4 s to 6.6 s at 18,000 jobs)
gc.set_threshold(200_000, 50, 1000)

ALIVE = scripting.clear_dead_locks()
# a second Ctrl-C would take Snakemake's own end for an error, with 90 lines of traceback; SIGTERM is its own
scripting.end_in_order(signal.SIGINT)

with scripting.one_line_errors():
    CAMPAIGN = settings.parse_config(config, settings.name_files(CONFIG_FILES))
    TESTBEDS = {
        name: inventory.load_testbed(name, paths.TESTBEDS) for name in CAMPAIGN.testbeds
    }
    RAW = CAMPAIGN.records
    # what comes of other records is kept apart: Snakemake would take the one for the other
    RESULTS = "results" if RAW == Path("raw") else f"results/{RAW}"
    # and so are its pages: of recorded/raw in reports/recorded
    REPORTS_IN = Path("reports", RAW.parent if RAW.name == "raw" else RAW)
    SEARCHES = CAMPAIGN.searches()
    RUNS = CAMPAIGN.runs(
        crossing.read_crossings(RAW, SEARCHES),
        look.all_repeats(Path(RESULTS), CAMPAIGN),
    )
    PLANNED = [*SEARCHES, *RUNS]
    REDUCED = [run for run in RUNS if reduced.is_reduced(RAW / run.path)]
    for bed in TESTBEDS.values():
        bed.check_cores(each for each in PLANNED if each.testbed == bed.name)
    twins.check_twins(RAW, CAMPAIGN.twins)
    MODES = modes.load_modes()
    crossover.check(
        {mode for study in CAMPAIGN.studies.values() for mode in study.modes}
        | {point.mode for point in SEARCHES},
        MODES,
    )

CORES = workflow.resource_settings.cores or os.cpu_count()
# Testbeds measure side by side, each one run at a time; a simulated one as many as there are cores. On a machine
# that measures itself nothing else of ours runs meanwhile: it takes all shares of it, any other job one.
SHARES = 1000
workflow.register_resource("machine", SHARES)
TURNS = {name: f"turn_{name.replace('-', '_')}" for name in TESTBEDS}
for turn in TURNS.values():
    workflow.register_resource(turn, 1)
LANES = forecast.Lanes(
    frozenset(name for name, bed in TESTBEDS.items() if bed.is_on_this_machine),
    {name: CORES for name, bed in TESTBEDS.items() if bed.simulated},
)
# which of them are not reached: what starts a job and what tells of it look here
ASIDE = aside.Aside()
REPORTS = [
    f"{REPORTS_IN}/{study.name}-{name}.html"
    for study in CAMPAIGN.studies.values()
    if study.notebook
    for name in TESTBEDS
]
DOCUMENTS = [f"{REPORTS_IN}/{name}.html" for name in CAMPAIGN.documents]
COMBINED = {
    name: [f"{RESULTS}/{study}/{name}/summary.nc" for study in CAMPAIGN.studies]
    for name in TESTBEDS
}
# beside a reduced campaign, runs with their single messages
WHOLE = RAW.parent / "fit" if RAW != Path("raw") else RAW
# what the simulator says of the papers' testbed comes with the repository, and is not simulated where nothing is to be
RECORDED_PAPERS = paths.RECORDED_PAPERS
PAPERS_PREDICTED = (
    str(RECORDED_PAPERS)
    if CAMPAIGN.only_measured and RECORDED_PAPERS.exists()
    else f"{RESULTS}/predicted/papers.csv"
)
# and so does what it says of the runs of a campaign that comes with it, beside their records
RECORDED_PREDICTED = RAW.parent / "predicted"
# a simulated machine has no idle CPU to look at, and its runs do not disturb each other
SIMULATED = {name for name, bed in TESTBEDS.items() if bed.simulated}
LOOKS = [
    look.look_path(Path(RESULTS), study.name, name, repetitions)
    for study in CAMPAIGN.studies.values()
    for name in TESTBEDS
    for repetitions, _ in study.looks()
]
NOISE = {
    name: (
        []
        if name in SIMULATED or CAMPAIGN.only_measured and not path.exists()
        else [path]
    )
    for name in TESTBEDS
    for path in [RAW / name / "noise.json"]
}
# the place of each run in the order of measuring, as far as it is known
PLACES = {}
# how long a run should take, by its kind; looked up when the first of the kind is about to start
EXPECTED_S = {}
PAGES = [
    *REPORTS,
    *(f"{REPORTS_IN}/testbed-{name}.html" for name in TESTBEDS),
    *(f"{REPORTS_IN}/messages-{name}.html" for name in TESTBEDS),
    *DOCUMENTS,
]


wildcard_constraints:
    testbed=r"[A-Za-z0-9_-]+",
    sut=r"[a-z0-9-]+",
    mode=r"[^/]+",
    search=r"crossing|capacity~[0-9.]+~[0-9.]+",
    # one way to write a number: threads~08 would be another file of the run of threads~8
    cores=r"[1-9][0-9]*",
    threads=r"[1-9][0-9]*",
    cps=r"[1-9][0-9]*",
    rep=r"[1-9][0-9]*",
    study="|".join(CAMPAIGN.studies),
    document="|".join(CAMPAIGN.documents) or "none",


def machine_shares(wildcards):
    return SHARES if TESTBEDS[wildcards.testbed].is_on_this_machine else 1


def controller_threads(wildcards):
    # on hosts of their own: here a run of theirs waits for them
    return 0 if TESTBEDS[wildcards.testbed].kind == "ssh" else 1


def takes_turn(turn, wildcards):
    name = wildcards.testbed
    return int(TURNS[name] == turn and name not in SIMULATED)


ONE_A_TESTBED = {
    turn: functools.partial(takes_turn, turn) for turn in set(TURNS.values())
}


def check_run(wildcards):
    """Ask for no file, and refuse a run that the configuration could not ask for."""
    with scripting.one_line_errors():
        run = settings.Run.from_wildcards(wildcards)
        CAMPAIGN.check_run(run)
        TESTBEDS[run.testbed].check_cores([run])
        crossover.check([run.mode], MODES)
    return []


def check_search(wildcards):
    """The same for a search."""
    with scripting.one_line_errors():
        point = settings.Point.from_wildcards(wildcards)
        CAMPAIGN.check_search(point)
        TESTBEDS[point.testbed].check_cores([point])
        crossover.check([point.mode], MODES)
    return []


def crossing_is_found(point):
    return (RAW / point.crossing_path).is_file()


@functools.cache
def ordered(found, looked):
    crossings = crossing.read_crossings(RAW, found)
    runs = CAMPAIGN.runs(crossings, look.all_repeats(Path(RESULTS), CAMPAIGN))
    return {run: place for place, run in enumerate(runs, start=1)}


def places():
    """The place of each run in the order of measuring, by what was searched and looked at by now."""
    return ordered(
        tuple(filter(crossing_is_found, SEARCHES)), tuple(filter(Path.is_file, LOOKS))
    )


def measure_order(wildcards):
    # asked of every run that is ready before each start: files are looked at for new ones alone
    run = settings.Run.from_wildcards(wildcards)
    if run not in PLACES:
        PLACES.update(places())
    # a run that no study asks for is measured because its file was asked for
    return PLACES.get(run, 0)


def attempt_number(wildcards, attempt):
    return attempt


def expected_seconds(wildcards):
    run = settings.Run.from_wildcards(wildcards)
    kind = forecast.kind(run)
    if kind not in EXPECTED_S:
        EXPECTED_S[kind] = round(forecast.expected_s(run, places(), CAMPAIGN, RAW))
    return EXPECTED_S[kind]


def searched_points(wildcards):
    """The searches that a study's loads depend on."""
    points = CAMPAIGN.studies[wildcards.study].searches(wildcards.testbed)
    return [
        point
        for point in points
        if not CAMPAIGN.only_measured or crossing_is_found(point)
    ]


def found_crossings(wildcards):
    """All searches; of those that there are, if no more are to be made."""
    return [
        str(RAW / point.crossing_path)
        for point in SEARCHES
        if not CAMPAIGN.only_measured or crossing_is_found(point)
    ]


def study_crossings(wildcards):
    return [str(RAW / point.crossing_path) for point in searched_points(wildcards)]


def study_runs(wildcards, until=None):
    """The runs of a study, once their loads and how often they are repeated are known, at all or at a look.

    Of them those that there are, if no more are to be made.
    """
    study = CAMPAIGN.studies[wildcards.study]
    points = searched_points(wildcards)
    if not CAMPAIGN.only_measured:
        for point in points:
            checkpoints.find_crossing.get(**point.wildcards)
    crossings = crossing.read_crossings(RAW, points)
    if CAMPAIGN.only_measured:
        repeats = look.recorded_repeats(RAW, study, wildcards.testbed, crossings)
        runs = study.runs(wildcards.testbed, crossings, repeats)
        return [run for run in runs if record.is_recorded(RAW, run)]
    repeats = {}
    for now, then in study.looks(until):
        checkpoints.look_at_runs.get(
            study=study.name, testbed=wildcards.testbed, rep=now
        )
        repeats = look.read_repeats(Path(RESULTS), study, wildcards.testbed, then)
        if then not in repeats.values():
            break
    return study.runs(wildcards.testbed, crossings, repeats)


@functools.cache
def settled_runs():
    """The paths of the runs that studies' summaries were joined of and that are as they were then."""
    asked = workflow.dag_settings
    if asked.forceall or asked.forcerun:
        return frozenset()
    found = settled.settled_runs(
        RAW, Path(RESULTS), map(Path, itertools.chain(*COMBINED.values()))
    )
    # what reduced records hold is unpacked in one job, of all or of none
    return found - {str(run.path) for run in REDUCED}


def file_of(run, root, name):
    """A file of a run; of a settled one as it is, for which Snakemake looks for no job that would make it."""
    place = str(run.path)
    path = f"{root}/{place}/{name}"
    if place in settled_runs() and os.path.exists(path):
        return before_update(path)
    return path


def computed(run, name):
    return file_of(run, f"{RESULTS}/runs", name)


def looked_at(wildcards):
    """The summaries of the runs that are looked at."""
    runs = study_runs(wildcards, until=int(wildcards.rep))
    return [computed(run, reduced.SUMMARY_FILE) for run in runs]


def study_precision(wildcards):
    return str(CAMPAIGN.studies[wildcards.study].precision)


def measure_again(run):
    """Have a run measured whose record is gone: Snakemake misses no file while what is made of it is there."""
    place = str(run.path)
    path = f"{RAW}/{place}/run.json"
    summarised = os.path.exists(f"{RESULTS}/runs/{place}/{reduced.SUMMARY_FILE}")
    if summarised and not os.path.exists(path):
        workflow.dag.forcefiles.add(path)


def study_summaries(wildcards):
    runs = study_runs(wildcards)
    if workflow.is_main_process:
        for run in runs:
            measure_again(run)
    return [computed(run, reduced.SUMMARY_FILE) for run in runs]


def study_windows(wildcards):
    return [
        computed(run, "windows.nc")
        for run in study_runs(wildcards)
        if crossover.is_comparison(run.mode)
    ]


def study_limit(wildcards):
    """The packet drop rate at which capacity ends, of a study."""
    loads = CAMPAIGN.studies[wildcards.study].cps
    return loads.limit if isinstance(loads, settings.Capacity) else CAMPAIGN.pdr_limit


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


def document_windows(wildcards):
    """The windows of all comparisons of its studies."""
    return [
        windows
        for study in CAMPAIGN.documents[wildcards.document].studies
        if study in CAMPAIGN.studies
        for name in TESTBEDS
        for windows in study_windows(SimpleNamespace(study=study, testbed=name))
    ]


def document_crossings(wildcards):
    """The searches of its studies."""
    return [
        crossing_file
        for study in CAMPAIGN.documents[wildcards.document].studies
        if study in CAMPAIGN.studies
        for name in TESTBEDS
        for crossing_file in study_crossings(SimpleNamespace(study=study, testbed=name))
    ]


def document_predictions(wildcards):
    kind = CAMPAIGN.documents[wildcards.document].predictions
    if kind == "papers":
        return [PAPERS_PREDICTED]
    files = {"settings": "settings.nc", "capacity": "capacity.json"}
    return [
        f"{RESULTS}/predicted/{name}/{files[kind]}"
        for name in TESTBEDS
        if kind is not None
    ]


def recorded_prediction(name):
    """A prediction that comes with the records, if there is one."""

    def of_testbed(wildcards):
        path = RECORDED_PREDICTED / wildcards.testbed / name
        return [str(path)] if RAW != Path("raw") and path.exists() else []

    return of_testbed


def runs_of_default(wildcards):
    """The runs of mode default, of all studies."""
    found = {
        run
        for study in CAMPAIGN.studies
        for run in study_runs(SimpleNamespace(study=study, testbed=wildcards.testbed))
        if run.mode == modes.DEFAULT
    }
    return sorted(found)


def default_runs(wildcards):
    """Those on one core."""
    found = [run for run in runs_of_default(wildcards) if run.cores == 1]
    return [file_of(run, RAW, "run.json") for run in found]


def whole_runs(wildcards):
    """Their single messages, where a record keeps them."""
    found = [run for run in runs_of_default(wildcards) if run not in REDUCED]
    return [computed(run, "messages.nc") for run in found]


def testbed_summaries(wildcards):
    return COMBINED[wildcards.testbed]


def testbed_noise(wildcards):
    return NOISE[wildcards.testbed]


def tell_missing():
    """Say how many of the runs that were asked for are missing, and what to do about it."""
    jobs = [
        job for job in workflow.dag.jobs if job.name in ("measure_run", "find_crossing")
    ]
    left = [
        job
        for job in jobs
        if workflow.dag.needrun(job) and not workflow.dag.finished(job)
    ]
    # of what is settled there is no job
    settled_summaries = {
        path
        for job in workflow.dag.jobs
        for path in job.input
        if path.endswith(reduced.SUMMARY_FILE) and is_flagged(path, "before_update")
    }
    lost = missing.Missing(
        planned=sum(job.name == "measure_run" for job in jobs) + len(settled_summaries),
        runs=tuple(
            settings.Run.from_wildcards(job.wildcards_dict)
            for job in left
            if job.name == "measure_run"
        ),
        searches=tuple(
            settings.Point.from_wildcards(job.wildcards_dict)
            for job in left
            if job.name == "find_crossing"
        ),
    )
    line = lost.line(sum(not scripting.may_pass(Path(job.log[0])) for job in left))
    if line:
        logger.info(line, extra=terminal.OURS)
        if any(job.name == "render_index" for job in workflow.dag.jobs):
            logger.info(
                "snakemake --config only_measured=True makes the pages of what there is",
                extra=terminal.OURS,
            )


def outlook_lines():
    """Say of each testbed how far it is, and when it would be done."""
    now = datetime.now(UTC)
    return [
        progress.line(each, now)
        for each in forecast.outlooks(CAMPAIGN, RAW, LANES, Path(RESULTS))
    ]


# a dry run ends with it
if workflow.is_main_process and not CAMPAIGN.only_measured:
    logger.info("the outlook: snakemake -n", extra=terminal.outlook(outlook_lines))
