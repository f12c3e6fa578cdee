"""Models of capacity beside published numbers, and beside summaries of a known queue."""

import dataclasses
import functools

import numpy as np
import pytest
import synthetic

from sipsched.analysis import papers, statistics
from sipsched.analysis.capacity import evidence, options, predictions, scaling
from sipsched.analysis.capacity import queues as models
from sipsched.pages.capacity_model import answer, deployments, laws, queues, sources
from sipsched.pages.parts import Figure
from sipsched.records import summary
from sipsched.records.speedups import Speedup

ONE_CORE = {
    ("default", 1, 2): 80.0,
    ("default", 1, 8): 84.0,
    ("baseline", 1, 8): 82.0,
    ("enhanced", 1, 8): 78.0,
}
LOADS = (1000, 1400, 1800, 1900, 2000, 2100, 2200, 2400)
# Amdahl's law with a serial share of 10 %, by cores
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
    summary.write(synthetic.queue_summary(ONE_CORE, LOADS), path)
    return collect(points, [path])


@pytest.fixture(scope="module")
def many_cores(points, tmp_path_factory):
    path = tmp_path_factory.mktemp("many") / "summary.nc"
    summary.write(synthetic.queue_summary(MANY_CORES, MANY_LOADS, repetitions=3), path)
    return collect(points, path, cores_per_processor=8)


def system(known, mode):
    (found,) = [each for each in known.own if each.mode == mode]
    return found


def everything(known):
    return (
        sources.heading(known),
        sources.read(known),
        answer.words(known, 5000, 8),
        answer.smallest(known, 5000, 8),
        answer.carried(known, 5000, 8),
        laws.by_cores(known, 8),
        laws.rule_words(known),
        laws.rule(known),
        laws.fitted(known),
        laws.left_out(known),
        queues.measured_words(known),
        queues.curves(known),
        queues.measured(known),
        queues.published_words(known),
        queues.published(known),
        sources.settings(known),
    )


def check(known):
    for part in everything(known):
        text = part._repr_html_()
        assert "nan" not in text.replace("nano", "").lower()
        for row in getattr(part, "rows", ()):
            assert len(row) == len(part.header), part.identity
        if groups := getattr(part, "groups", ()):
            assert sum(span for _, span in groups) == len(part.header)
        if hasattr(part, "svg"):
            assert "prefers-color-scheme:dark" in part.svg


@pytest.mark.parametrize("given", [None, "", [], [None, ""], ["no/such/summary.nc"]])
def test_published_data_alone(points, given, alone):
    known = collect(points, given)
    assert known.own == known.services == ()
    assert known.systems[0].best == alone.systems[0].best
    missing = given == ["no/such/summary.nc"]
    said = (
        "no/such/summary.nc: not there, left out."
        if missing
        else "No summary of a study was given."
    )
    assert sources.read(known).lines[0] == said


def test_page_of_published_data_alone(alone):
    check(alone)
    baseline, enhanced = alone.systems
    assert [option.threads for option in enhanced.best] == [2, 4, 6, 6]
    assert [option.capacity.estimate for option in enhanced.best] == [2400, 4400, 5400, 6600]
    assert [option.grid_cps for option in baseline.best] == [2200, 3600, 5000, 6000]
    assert laws.rule_words(alone).lines == (
        "papers' OpenSIPS, enhanced: off by −9.1\u00a0% to +11\u00a0% over 3 numbers of cores; T(p,c) is the best "
        "number of threads in 3.",
    )
    (found,) = answer.plans(alone, 5200, 8)
    assert (found.choice.mode, found.choice.cores, found.choice.threads) == ("enhanced", 4, 6)
    assert "published: carries 5\u202f400 cps" in answer.words(alone, 5200, 8).lines[0]
    assert "not measured" in answer.words(alone, 5200, 8).lines[-1]
    # One core with 2 threads, enhanced: the queue of one server and 200 places
    (row,) = [r for r in queues.published(alone).rows if r[:3] == ("enhanced", "1", "2")]
    assert row[3:5] == ("77.2", "2\u202f400")
    assert row[7].replace("\u202f", ",") == f"{models.queue_capacity_cps(77.21, 1, 201):,.0f}"


def test_one_core_is_predicted_by_the_queue_it_is(one_core):
    check(one_core)
    assert len(one_core.services) == len(ONE_CORE)
    for each in one_core.services:
        truth = ONE_CORE[each.facet[1], each.facet[2], each.threads]
        cps = models.queue_capacity_cps(truth, 1, 228)
        assert each.cpu_us.low < truth < each.cpu_us.high
        found = each.predict("cores", general=False)
        assert (found.low < cps < found.high, found.n) == (True, 5)
        assert each.predict("cores", general=True).estimate == pytest.approx(
            found.estimate, rel=0.01
        )
        # Lines between loads 100 cps apart
        assert each.measured.interval.estimate == pytest.approx(cps, rel=0.02)
        if each.threads > 1:
            assert each.predict("threads", general=False).estimate > 1.5 * cps / 2
    words = queues.measured_words(one_core).lines
    assert words[0].startswith("M/M/c/K with cores, CPU time: off by ")
    assert len(queues.curves(one_core).seen) == len(ONE_CORE)
    assert all("the intervals overlap" in line for line in queues.curves(one_core).seen)


def test_one_core_is_carried_to_several_with_a_warning(one_core):
    default = system(one_core, "default")
    single = predictions.single_core(default).capacity
    (words,) = [line for line in sources.read(one_core).lines if default.name in line]
    assert "2 threads, the best measured on one core. The papers' one thread was not" in words
    said = predictions.extrapolations(default, one_core, 4)
    assert said[predictions.RULE_OF_ONE].estimate == pytest.approx(6 * single.estimate)
    assert said[predictions.LINEAR].estimate == pytest.approx(4 * single.estimate)
    borrowed = said[predictions.BORROWED]
    assert borrowed.low < borrowed.estimate < said[predictions.LINEAR].estimate
    assert predictions.predictor(default, one_core)[0] == predictions.LEAST
    rows = [row for row in laws.rule(one_core).rows if row[0] == default.name]
    assert [row[1:4] for row in rows] == [("2", "1", "4"), ("4", "1", "6"), ("6", "2", "6")]
    assert all(
        row[7:] == ("beyond the data", "not measured", "not measured", "no check") for row in rows
    )
    assert all(row[4].interval.n == 40 for row in rows)
    assert [model.why for model in default.models][1:] == [
        "expected capacities of at least 3 different numbers of cores, found 1",
        "expected capacities of at least 2 different numbers of cores, found 1",
    ]
    assert "cannot be checked here" in laws.rule_words(one_core).lines[1]
    papers, own = answer.plans(one_core, 3000, 8)
    assert papers.choice.basis == options.PUBLISHED
    assert (own.choice.basis, own.known) == (options.BEYOND, None)
    assert answer.plans(one_core, 1500, 8)[1].choice.cores == 1
    text = answer.words(one_core, 3000, 8).lines[1]
    assert "beyond the data" in text
    assert "Predicted by: the least of T(p,c)" in text


def test_several_cores_recover_the_law(many_cores):
    check(many_cores)
    enhanced = system(many_cores, "enhanced")
    single = predictions.single_core(enhanced).capacity
    assert sources.read(many_cores).lines[-1].endswith("one thread, as the papers define it.")
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
    two = [row for row in laws.rule(many_cores).rows if row[:2] == (enhanced.name, "2")]
    assert two[0][7:9] == ("measured", "4")
    assert two[0][10].startswith("+")
    plan = answer.plans(many_cores, 9000, 16)[1]
    assert plan.choice is None or plan.choice.basis == options.BEYOND


def test_studies_of_one_testbed_are_put_together(points, tmp_path):
    first = synthetic.queue_summary({("default", 1, 8): 80.0}, LOADS[:4])
    both = {("default", 1, 8): 80.0, ("baseline", 1, 8): 80.0}
    second = synthetic.queue_summary(both, LOADS[3:])
    paths = [tmp_path / name / "local" / "summary.nc" for name in ("sweep", "single")]
    for data, path in zip((first, second), paths, strict=True):
        path.parent.mkdir(parents=True)
        summary.write(data, path)
    known = collect(points, [*paths, tmp_path / "third" / "local" / "summary.nc"])
    assert sources.read(known).lines[:3] == (
        "sweep/local/summary.nc: 20 runs that count, on 1 core.",
        "single/local/summary.nc: 50 runs that count, on 1 core.",
        "third/local/summary.nc: not there, left out.",
    )
    # The load that both have counts once.
    (default,) = system(known, "default").options
    assert default.interval.n == 5 * len(LOADS)
    assert [each.mode for each in known.own] == ["default", "baseline"]
    summary.write(second.assign_attrs(testbed="other"), paths[1])
    names = {each.name for each in collect(points, paths).own}
    assert "kamailio-udp on synthetic, default" in names
    assert "kamailio-udp on other, baseline" in names


def test_a_study_without_a_run_is_named_and_left_out(points, tmp_path):
    path = tmp_path / "summary.nc"
    summary.write(summary.combine([], [synthetic.Run()]), path)
    known = collect(points, [path])
    assert known.own == ()
    assert sources.read(known).lines[0].endswith("no run measured, left out.")


def test_without_the_kernels_part_no_cpu_time_and_why(points, tmp_path):
    data = synthetic.queue_summary({("default", 1, 2): 80.0}, LOADS)
    data["k_stack_mean"][:] = np.nan
    path = tmp_path / "summary.nc"
    summary.write(data, path)
    known = collect(points, [path])
    check(known)
    cores, threads = queues.measured(known).rows
    assert str(cores[5]) == "the probe did not see the kernel's part"
    assert threads[6].endswith("%")


def test_a_capacity_outside_the_loads_is_no_point(points, tmp_path):
    data = synthetic.queue_summary({("default", 1, 2): 80.0, ("default", 1, 8): 80.0}, LOADS[:2])
    path = tmp_path / "summary.nc"
    summary.write(data, path)
    known = collect(points, [path])
    check(known)
    default = system(known, "default")
    assert default.fitted == ()
    assert np.isnan(predictions.single_core(default).capacity.estimate)
    assert sources.read(known).lines[-1] == (
        f"C(1,1) of {default.name}: none: no capacity of one core lies between the loads measured."
    )
    assert predictions.predictor(default, known) is None
    assert answer.smallest(known, 5000, 8).rows[-1][1] == "no, at most:"


def test_where_every_load_was_too_much_none_can_be_relied_on(points, tmp_path):
    path = tmp_path / "summary.nc"
    summary.write(synthetic.queue_summary({("default", 1, 2): 200.0}, LOADS[-2:]), path)
    known = collect(points, [path])
    check(known)
    (row,) = [row for row in answer.smallest(known, 5000, 1).rows if "default" in row[0]]
    assert row[1] == "no, at most:"
    assert row[4] == "none"
    assert "no load measured is sure to stay under the limit" in answer.carried(known, 5000, 1).alt
    assert "No load that was measured is sure" in answer.words(known, 5000, 1).lines[-1]


def test_one_run_a_load_has_no_interval_and_says_so(points, tmp_path):
    path = tmp_path / "summary.nc"
    summary.write(synthetic.queue_summary({("default", 1, 2): 80.0}, LOADS, 1), path)
    known = collect(points, [path])
    check(known)
    assert sources.settings(known).rows[-1][5].interval.why == statistics.TOO_FEW


def test_the_rule_needs_one_core(points, tmp_path):
    several = {key: value for key, value in MANY_CORES.items() if key[1] > 1}
    path = tmp_path / "summary.nc"
    summary.write(synthetic.queue_summary(several, MANY_LOADS, 3), path)
    known = collect(points, [path])
    check(known)
    assert predictions.single_core(known.own[0]).capacity.why == "one core was not measured"
    assert laws.rule_words(known).lines[1].endswith("nothing predicted, C(1,1) is not known.")


def test_threads_that_are_allowed(alone):
    (found,) = answer.plans(alone, 5000, 8, threads=[16])
    assert found.choice is None
    (found,) = answer.plans(alone, 4000, 8, threads=[16])
    assert (found.choice.threads, found.choice.cores) == (16, 4)
    assert dataclasses.replace(found, choice=None).largest.threads == 16


def made_up(cores, threads, cps, basis=options.MEASURED):
    number = statistics.Interval.without(cps, 1)
    return options.Option("proxy", "enhanced", cores, threads, number, cps, cps, basis)


def test_a_plan_is_a_sentence_that_names_what_its_settings_are():
    known = [made_up(1, 2, 1900), made_up(2, 4, 4400)]
    assert answer.plan_words(options.plan(4000, known, 2), options.MEASURED) == (
        "4\u202f000 cps: proxy, enhanced, 2 cores, 4 threads, measured: carries 4\u202f400 cps, "
        "10 % to spare. Its capacity: 4\u202f400\u00a0cps (one run)."
    )
    assert answer.plan_words(options.plan(4000, known, 1), options.MEASURED) == (
        "4\u202f000 cps: nothing that is known carries it. The most is 1\u202f900 cps: "
        "proxy, enhanced, 1 core, 2 threads, measured."
    )
    assert answer.plan_words(options.plan(4000, [], 8), options.MEASURED) == (
        "4\u202f000 cps: nothing that is known carries it."
    )
    four = made_up(4, 6, 5400, options.PUBLISHED)
    predicted = made_up(3, 5, 5000, options.PREDICTED)
    both = answer.plan_words(options.plan(4800, [predicted, four], 8), options.PUBLISHED)
    assert "3 cores, 5 threads, predicted: carries 5\u202f000 cps" in both
    assert " Smallest published: proxy, enhanced, 4 cores, 6 threads. Its capacity:" in both
    alone = answer.plan_words(options.plan(4800, [predicted], 8), options.PUBLISHED)
    assert " Smallest published: none. " in alone


def test_published_settings_that_do_not_suffice_are_called_published(alone):
    line = answer.words(alone, 50_000, 1).lines[0]
    assert line.endswith(
        "The most is 2\u202f400 cps: papers' OpenSIPS, enhanced, 1 core, 2 threads, published."
    )


@pytest.mark.parametrize("buffer", [227 * 2304, 425984])
def test_testbeds_with_different_buffers_are_said_not_to_be_comparable(points, tmp_path, buffer):
    paths = []
    for testbed in ("local", "vm"):
        ds = synthetic.queue_summary({("default", 1, 8): 80.0}, LOADS, testbed=testbed)
        if testbed == "vm":
            ds["so_rcvbuf"] = ds["so_rcvbuf"].where(ds["so_rcvbuf"].isnull(), float(buffer))
        paths.append(tmp_path / "load_sweep" / testbed / "summary.nc")
        summary.write(ds, paths[-1])
    told = [line for line in sources.read(collect(points, paths)).lines if "buffers" in line]
    assert told == (
        []
        if buffer == 227 * 2304
        else [
            "Receive buffers differ. 425984 bytes: kamailio-udp on vm, default; 523008 bytes: "
            "kamailio-udp on local, default. PDR and capacity depend on the size: they are not "
            "comparable between runs with different ones."
        ]
    )


def speedup(deployment, cores, times, **changes):
    """A simulated speed-up over UDP, received by one CPU, of 2000 cps on one core."""
    row = Speedup(
        *(deployment, "udp", cores, cores, 2000 * times, 1900 * times, 2100 * times),
        *(times, 0.9 * times, 1.1 * times, 1, "of a test; one CPU receives, no lock"),
    )
    return dataclasses.replace(row, **changes)


def test_speedups_of_deployments_are_told_with_who_receives():
    rows = [
        *(speedup("shared", 1, 1), speedup("shared", 8, 4), speedup("sockets", 1, 1)),
        *(speedup("sockets", 8, 5), speedup("shared", 1, 1, model="of a test; each core receives")),
        speedup("shared", 8, 2, model="each core receives, assumed lock share 0.09"),
    ]
    lines = deployments.words(rows).lines
    assert (
        "over UDP, one CPU receives, 8 cores carry as many times what one carries: sockets 5 (4.5 to"
        in lines[0]
    )
    assert lines[0].index("sockets 5") < lines[0].index("shared 4")
    assert all("not measured" in line for line in lines[:2])
    assert "9 % of the service time under one lock" in lines[2]
    drawn = deployments.figure(rows)
    assert isinstance(drawn, Figure)
    assert "not measured" in drawn.provenance
    assert len(deployments.table(rows).rows) == 6


def test_a_speedup_without_samples_has_no_interval():
    row = speedup(
        "front", 2, 1.5, **dict.fromkeys(("low", "high", "speedup_low", "speedup_high"), np.nan)
    )
    cells = deployments.table([row]).rows[0]
    assert cells[5:7] == ("3\u202f000", "1.5")


def test_without_a_simulation_of_deployments_the_page_says_so(tmp_path):
    rows = deployments.read(tmp_path / "speedups.csv")
    assert rows == ()
    assert deployments.words(rows).lines == (deployments.NONE,)
    assert deployments.figure(rows) == deployments.words(rows)
    assert deployments.table(rows).none == deployments.NONE
