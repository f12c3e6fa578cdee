"""Tests of models of capacity, on published numbers and on summaries of a known queue."""

import functools
from dataclasses import replace

import numpy as np
import page_text
import pytest
import synthetic

from sipsched.analysis import intervals, papers
from sipsched.analysis.capacity import evidence, options, predictions, scaling, simulated
from sipsched.analysis.capacity import queues as models
from sipsched.errors import StableError
from sipsched.pages.capacity_model import answer, laws, queues, sources
from sipsched.paths import PROJECT_ROOT
from sipsched.records import study_summary, summary_files
from sipsched.records.fitted import Fitted
from sipsched.records.prediction import CapacityOfCores, CapacityPrediction
from sipsched.records.system_capacity import read_capacities

ONE_CORE = {
    ("default", 1, 2): 80.0,
    ("default", 1, 8): 84.0,
    ("baseline", 1, 8): 82.0,
    ("enhanced", 1, 8): 78.0,
}
LOADS = (1000, 1400, 1800, 1900, 2000, 2100, 2200, 2400)
# the capacities follow Amdahl's law with a serial share of 10 %
SERIAL = 0.1
MANY_CORES = {
    ("enhanced", cores, scaling.paper_threads(1, cores)): 80.0 * (1 + SERIAL * (cores - 1))
    for cores in (1, 2, 3, 4)
}
MANY_LOADS = tuple(range(1000, 7401, 200))


collect = functools.partial(evidence.collect, resamples=49)


@pytest.fixture(scope="module")
def points():
    return papers.load_points()


@pytest.fixture(scope="module")
def alone(points):
    return collect(points)


@pytest.fixture(scope="module")
def one_core(points, tmp_path_factory):
    path = tmp_path_factory.mktemp("one") / "summary.nc"
    summary_files.write(synthetic.queue_summary(ONE_CORE, LOADS), path)
    return collect(points, [path])


@pytest.fixture(scope="module")
def many_cores(points, tmp_path_factory):
    path = tmp_path_factory.mktemp("many") / "summary.nc"
    summary_files.write(synthetic.queue_summary(MANY_CORES, MANY_LOADS, repetitions=3), path)
    return collect(points, path, cores_per_processor=8)


def system(known, mode):
    (result,) = [each for each in known.own if each.mode == mode]
    return result


NOT_SIMULATED = simulated.read([])
SIMULATED_CPS = {1: 2500.0, 2: 5000.0, 4: 9000.0, 8: 9000.0}


def simulation(limit=0.01, **changes):
    """Make a prediction of the simulator for kamailio-udp, without samples of the fit."""
    carried = tuple(CapacityOfCores(c, c, cps, 0.1, 0.9) for c, cps in SIMULATED_CPS.items())
    fitted = Fitted(sut="kamailio-udp", why="")
    return CapacityPrediction(fitted, limit, 4, carried, **changes)


IN_VIRTUAL_TIME = read_capacities(PROJECT_ROOT / "config" / "models" / "virtual-capacity.json")


def sized(known, prediction=NOT_SIMULATED, virtual=()):
    rows = simulated.by_cores(prediction, laws.WIDENING)
    return answer.systems(known, prediction, rows, virtual, "kamailio-udp")


def everything(known, prediction):
    systems = sized(known, prediction)
    return (
        sources.heading(known),
        sources.read(known),
        answer.answer(systems),
        answer.box(systems, 1000),
        *answer.tables(systems).parts,
        answer.reasons(systems, known, prediction),
        laws.by_cores(systems, known),
        laws.fitted(known),
        laws.simulated(prediction, simulated.by_cores(prediction, laws.WIDENING)),
        queues.measured_words(known),
        queues.curves(known),
        queues.measured(known),
        sources.settings(known),
    )


def check(known, prediction=NOT_SIMULATED):
    for part in everything(known, prediction):
        text = page_text.text(part)
        assert "nan" not in text.replace("nano", "").lower()
        for row in getattr(part, "rows", ()):
            if hasattr(part, "header"):
                assert len(row) == len(part.header), part.identity
        if groups := getattr(part, "groups", ()):
            assert sum(span for _, span in groups) == len(part.header)


@pytest.mark.parametrize("given", [None, "", [], [None, ""], ["no/such/summary.nc"]])
def test_the_model_of_published_data(points, given, alone):
    known = collect(points, given)
    assert known.own == known.services == ()
    assert known.systems[0].best == alone.systems[0].best
    missing = given == ["no/such/summary.nc"]
    said = sources.read(known).lines[0]
    assert said.startswith("no/such/summary.nc: " if missing else "No study")


def test_the_page_of_published_data(alone):
    check(alone)
    baseline, enhanced = alone.systems
    assert [option.threads for option in enhanced.best] == [2, 4, 6, 6]
    assert [option.capacity.estimate for option in enhanced.best] == [2400, 4400, 5400, 6600]
    assert [option.grid_cps for option in baseline.best] == [2200, 3600, 5000, 6000]
    for each in alone.systems:
        for option in each.options:
            assert option.interval.estimate == option.capacity.estimate == option.grid_cps
    (papers_sized,) = sized(alone)
    assert answer.box([papers_sized], 1000).kinds[0] == options.PUBLISHED
    assert papers_sized.known.enough(5200).cores == 4
    assert papers_sized.known.enough(7000) is None
    assert "Nothing was measured here" in answer.answer([papers_sized]).line


def test_published_capacities_are_equal_on_all_pages(points, alone):
    edges = papers.crossings(points).set_index(["mode", "cores", "threads"])["last_cps"]
    for each in alone.systems:
        for option in each.options:
            assert option.grid_cps == edges[option.mode, option.cores, option.threads]


def test_the_queue_predicts_its_own_capacity_on_one_core(one_core):
    check(one_core)
    assert len(one_core.services) == len(ONE_CORE)
    for service in one_core.services:
        truth = ONE_CORE[service.facet[1], service.facet[2], service.threads]
        cps = models.queue_capacity_cps(truth, 1, 228)
        assert service.cpu_us.low < truth < service.cpu_us.high
        prediction = service.predict("cores", general=False)
        assert (prediction.low < cps < prediction.high, prediction.n) == (True, 5)
        assert service.predict("cores", general=True).estimate == pytest.approx(
            prediction.estimate, rel=0.01
        )
        # Allow 2 %, because the capacity is interpolated between loads that are 100 cps apart.
        assert service.measured.interval.estimate == pytest.approx(cps, rel=0.02)
        if service.threads > 1:
            assert service.predict("threads", general=False).estimate > 1.5 * cps / 2
    assert len(queues.curves(one_core).seen) == len(ONE_CORE)


def test_one_core_is_extrapolated_by_the_law_of_the_papers_server(one_core):
    default = system(one_core, "default")
    (best,) = default.best
    name, predict = predictions.predictor(default, one_core)
    assert name == predictions.BORROWED
    four = predict(4)
    assert four.low < four.estimate < 4 * best.capacity.estimate
    first = sized(one_core, simulation())[0]
    assert first.system == default
    assert first.extrapolated.enough(500).basis == options.MEASURED
    assert first.extrapolated.enough(1.5 * best.capacity.estimate).cores > 1
    assert first.simulated.enough(4000).cores == 2
    assert first.simulated.steps[-1].cores == 4
    check(one_core, simulation())
    assert "Only one core was measured" in answer.answer([first]).line


def test_several_cores_recover_the_law(many_cores):
    check(many_cores)
    enhanced = system(many_cores, "enhanced")
    single = enhanced.best[0].capacity
    assert single.estimate == pytest.approx(models.queue_capacity_cps(80, 1, 228), rel=0.05)
    rule, _, amdahl = enhanced.models
    assert [model.points for model in enhanced.models] == [4, 4, 4]
    contention = {name: value for name, _, value in amdahl.parameters}["σ"]
    assert contention.estimate == pytest.approx(SERIAL, abs=0.03)
    assert amdahl.rms_percent < rule.rms_percent
    chosen = predictions.choose(enhanced.models)
    assert chosen.name in (predictions.AMDAHL, predictions.LAW)
    truth = 8 / (1 + SERIAL * 7) * single.estimate
    assert amdahl.predict(8).estimate == pytest.approx(truth, rel=0.1)
    assert all(len(row) == 4 for row in (model.left_out for model in enhanced.models))
    first = sized(many_cores)[0]
    beyond = first.extrapolated.enough(1.02 * max(option.carries_cps for option in enhanced.best))
    assert beyond.basis == options.EXTRAPOLATED
    assert beyond.cores > 4


def test_two_cores_determine_amdahls_law(points, tmp_path):
    path = tmp_path / "summary.nc"
    two = {key: value for key, value in MANY_CORES.items() if key[1] < 3}
    summary_files.write(synthetic.queue_summary(two, MANY_LOADS, repetitions=5), path)
    known = collect(points, path, cores_per_processor=8)
    check(known, simulation())
    (own,) = known.own
    name, predict = predictions.predictor(own, known)
    assert name == predictions.AMDAHL
    for option in own.best:
        fitted = predict(option.cores)
        assert fitted.estimate == pytest.approx(option.capacity.estimate, rel=1e-3)
        assert fitted.low == pytest.approx(option.capacity.low, rel=1e-3)
    (shown,) = [row[4] for row in laws.fitted(known).parts[0].rows if row[:2] == (own.name, name)]
    assert shown.interval == predict(8)
    assert shown.interval.known
    truth = 8 / (1 + SERIAL * 7) * models.queue_capacity_cps(80, 1, 228)
    assert predict(8).estimate == pytest.approx(truth, rel=0.25)


def test_a_system_that_was_only_searched_is_an_option(points, tmp_path):
    path = tmp_path / "summary.nc"
    summary_files.write(synthetic.queue_summary({("default", 1, 2): 80.0}, LOADS), path)
    searched = synthetic.capacity(3600, sut="kamailio-udp", cores=2, threads=4)
    known = collect(points, path, capacities=[searched])
    one, two = system(known, "default").best
    assert (one.cores, two.cores, two.threads) == (1, 2, 4)
    assert two.interval.estimate == searched.estimate_cps
    assert two.carries_cps == searched.low_cps
    assert sized(known)[0].known.enough(searched.low_cps) == two


def test_studies_of_one_testbed_are_combined(points, tmp_path):
    first = synthetic.queue_summary({("default", 1, 8): 80.0}, LOADS[:4])
    both = {("default", 1, 8): 80.0, ("baseline", 1, 8): 80.0}
    second = synthetic.queue_summary(both, LOADS[3:])
    paths = [tmp_path / name / "local" / "summary.nc" for name in ("sweep", "single")]
    for data, path in zip((first, second), paths, strict=True):
        path.parent.mkdir(parents=True)
        summary_files.write(data, path)
    known = collect(points, [*paths, tmp_path / "third" / "local" / "summary.nc"])
    assert [(each.name, each.runs, each.cores) for each in known.read] == [
        ("sweep/local/summary.nc", 20, (1,)),
        ("single/local/summary.nc", 50, (1,)),
        ("third/local/summary.nc", 0, ()),
    ]
    assert [each.found for each in known.read] == [True, True, False]
    # The runs of a load that occurs in both studies count only once.
    (default,) = system(known, "default").options
    assert default.interval.n == 5 * len(LOADS)
    assert [each.mode for each in known.own] == ["default", "baseline"]
    summary_files.write(second.assign_attrs(testbed="other"), paths[1])
    names = {each.name for each in collect(points, paths).own}
    assert "kamailio-udp on synthetic, default" in names
    assert "kamailio-udp on other, baseline" in names


def test_a_study_without_a_run_is_named_and_excluded(points, tmp_path):
    path = tmp_path / "summary.nc"
    summary_files.write(study_summary.combine([], [synthetic.Run()]), path)
    known = collect(points, [path])
    assert known.own == ()
    assert [(each.found, each.runs) for each in known.read] == [(True, 0)]


def test_without_the_kernels_cpu_time_the_model_gives_a_reason(points, tmp_path):
    data = synthetic.queue_summary({("default", 1, 2): 80.0}, LOADS)
    data["k_stack_mean"][:] = np.nan
    path = tmp_path / "summary.nc"
    summary_files.write(data, path)
    known = collect(points, [path])
    check(known)
    cores, threads = queues.measured(known).rows
    assert str(cores[5]) == "the probe did not see the kernel's part"
    assert threads[6].endswith("%")


def test_a_capacity_outside_the_loads_is_not_a_point_of_the_law(points, tmp_path):
    data = synthetic.queue_summary({("default", 1, 2): 80.0, ("default", 1, 8): 80.0}, LOADS[:2])
    path = tmp_path / "summary.nc"
    summary_files.write(data, path)
    known = collect(points, [path])
    check(known)
    default = system(known, "default")
    assert default.fitted == ()
    assert predictions.predictor(default, known) is None
    first = sized(known, simulation())[0]
    assert first.extrapolated.steps == ()
    assert [step.settled for step in first.known.steps] == [False]
    row = [str(cell) for cell in answer.tables([first]).parts[0].rows[0]]
    assert row[:3] == ["500", "1", f"at most {100 * 500 / LOADS[1]:.0f}"]
    assert "at least" in answer.answer([first]).line


def test_if_every_load_was_too_high_no_number_of_cores_is_enough(points, tmp_path):
    path = tmp_path / "summary.nc"
    summary_files.write(synthetic.queue_summary({("default", 1, 2): 200.0}, LOADS[-2:]), path)
    known = collect(points, [path])
    check(known)
    first = sized(known)[0]
    assert first.system.mode == "default"
    assert first.known.steps == first.extrapolated.steps == ()
    assert first.known.options[0].interval.estimate == 0


def test_numbers_of_threads_with_equal_capacities_share_an_entry():
    carried = [
        CapacityOfCores(2, n, cps, 0.1, 0.9) for n, cps in ((2, 900.0), (4, 950.0), (8, 900.0))
    ]
    prediction = CapacityPrediction(Fitted(sut="kamailio-udp", why=""), 0.01, 4, tuple(carried))
    (row,) = laws.simulated(prediction, simulated.by_cores(prediction, laws.WIDENING)).rows
    assert row[6].split("; ") == ["2 and 8: 900", "4: 950"]


def test_without_any_system_there_is_no_answer():
    assert answer.answer([]).line.startswith("There is no answer")
    assert answer.tables([]).parts == []


def test_the_capacity_of_one_core_grows_by_the_speedup_in_virtual_time(one_core):
    slow = IN_VIRTUAL_TIME[0]
    low, high = 100 / 1.1, 110.0
    one = replace(slow, cores=1, estimate_cps=100.0, low_cps=low, high_cps=high)
    four = replace(slow, cores=4, estimate_cps=300.0, low_cps=3 * low, high_cps=3 * high)
    first = sized(one_core, virtual=[four, one])[0]
    known, predicted = first.virtual.options
    assert known is first.known.options[0]
    assert (predicted.cores, predicted.threads) == (4, slow.threads)
    assert predicted.interval.estimate == pytest.approx(3 * known.capacity.estimate)
    assert predicted.carries_cps == predicted.interval.low
    # three independent errors: the capacity of one core, and both capacities in virtual time
    width = np.log(known.capacity.estimate / known.capacity.low)
    half_width = np.hypot(np.sqrt(2) * np.log(1.1), width)
    assert np.log(predicted.interval.estimate / predicted.interval.low) == pytest.approx(half_width)
    reasons = page_text.text(answer.reasons([first], one_core, NOT_SIMULATED))
    assert "On 4 cores, the speed-up is 3.0." in reasons.replace("\u00a0", " ")
    # without a capacity of one core or of several cores in virtual time, no speed-up is known
    for incomplete in ([four], [one]):
        assert sized(one_core, virtual=incomplete)[0].virtual.options == ()
    with pytest.raises(
        StableError, match=r"several systems: .*, 8 threads, limit 0.01; .*limit 0.05"
    ):
        sized(one_core, virtual=[one, replace(four, limit=0.05)])


def test_only_the_named_proxy_has_an_answer_in_virtual_time(one_core):
    for each in sized(one_core, simulation(), IN_VIRTUAL_TIME):
        is_named = (each.system.sut, each.system.mode) == ("kamailio-udp", "default")
        assert bool(each.virtual.options) == is_named


def test_capacities_in_virtual_time_are_labelled_with_the_settings_of_the_clock(one_core):
    systems = sized(one_core, simulation(), IN_VIRTUAL_TIME)
    label = f"Capacities in virtual time: {IN_VIRTUAL_TIME[0].fidelity}"
    for setting in ("2000 MIPS", "kernel weight 1", "wake-up time 2 µs", "quantum 5 µs"):
        assert setting in label
    for part in (answer.tables(systems).parts[0], laws.by_cores(systems, one_core)):
        assert part.provenance.endswith(label)
    without = sized(one_core, simulation())
    assert "virtual time" not in answer.tables(without).parts[0].provenance


def test_the_box_answers_as_the_table_does(one_core):
    systems = sized(one_core, simulation(), IN_VIRTUAL_TIME)
    box = answer.box(systems, 1000)
    table = answer.tables(systems).parts[0]
    for cps, row in zip(answer.LOADS, table.rows, strict=True):
        assert box.highest >= cps
        texts = [row.at(cps) for row in box.rows[0][1]]
        for text, cores, used in zip(texts, row[1::2], row[2::2], strict=True):
            if str(used) == "–":
                assert "used" not in text
            else:
                assert text.startswith(f"{cores} core")
                assert text.endswith(f"{used}\u00a0% used")


def test_one_run_per_load_has_no_interval_and_the_page_says_so(points, tmp_path):
    path = tmp_path / "summary.nc"
    summary_files.write(synthetic.queue_summary({("default", 1, 2): 80.0}, LOADS, 1), path)
    known = collect(points, [path])
    check(known)
    assert sources.settings(known).rows[-1][5].interval.why == intervals.TOO_FEW


@pytest.mark.parametrize("buffer", [227 * 2304, 425984])
def test_the_page_says_that_testbeds_with_different_buffers_are_not_comparable(
    points, tmp_path, buffer
):
    paths = []
    for testbed in ("local", "vm"):
        ds = synthetic.queue_summary({("default", 1, 8): 80.0}, LOADS, testbed=testbed)
        if testbed == "vm":
            ds["so_rcvbuf"] = ds["so_rcvbuf"].where(ds["so_rcvbuf"].isnull(), float(buffer))
        paths.append(tmp_path / "load_sweep" / testbed / "summary.nc")
        summary_files.write(ds, paths[-1])
    sizes = set(collect(points, paths).buffers.groups.values())
    assert len(sizes) == (1 if buffer == 227 * 2304 else 2)
