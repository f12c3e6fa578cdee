"""The papers' tables, queues solved otherwise, scaling laws of known parameters, and plans."""

import numpy as np
import pytest
import synthetic
import xarray as xr
from scipy import linalg

from sipsched.analysis import capacity_models, statistics
from sipsched.analysis.capacity_models import BEYOND, MEASURED, PREDICTED
from sipsched.analysis.statistics import Interval
from sipsched.errors import StableError
from sipsched.records import summary

# Krishnamurthy and Rouskas 2016, tables II, V and VIII (enhanced mode): cores, processors, threads,
# last load at or under a PDR of 1 % and its PDR, first load above it and its PDR
PUBLISHED = [
    (2, 1, 2, 3800, 0.0084, 4000, 0.011),
    (2, 1, 4, 4400, 0.0086, 4600, 0.0118),
    (2, 1, 6, 3800, 0.0089, 4000, 0.0147),
    (2, 1, 8, 3200, 0.0098, 3400, 0.0149),
    (2, 1, 16, 2600, 0.0096, 2800, 0.0172),
    (4, 1, 2, 4200, 0.0092, 4400, 0.0139),
    (4, 1, 4, 5000, 0.0096, 5200, 0.013),
    (4, 1, 6, 5400, 0.0066, 5600, 0.0159),
    (4, 1, 8, 4600, 0.0088, 4800, 0.0119),
    (4, 1, 16, 4600, 0.0064, 4800, 0.0138),
    (6, 2, 4, 6000, 0.0080, 6200, 0.013),
    (6, 2, 6, 6600, 0.0072, 6800, 0.0117),
    (6, 2, 8, 6400, 0.0090, 6600, 0.0146),
    (6, 2, 16, 4200, 0.00935, 4400, 0.0157),
]
PROCESSORS = {6: 2}


def published():
    options = []
    for cores, _, threads, low, low_pdr, high, high_pdr in PUBLISHED:
        found = statistics.capacity([low, high], [low_pdr, high_pdr])
        options.append(
            capacity_models.measured_option("opensips", "enhanced", cores, threads, found)
        )
    return options


def option(cores, threads, cps, mode="default", basis=MEASURED):
    number = Interval.without(cps, 1)
    return capacity_models.Option("proxy", mode, cores, threads, number, cps, cps, basis)


def markov_chain(arrivals, service, servers, places):
    """Solve the birth-death chain of M/M/c/K by linear algebra."""
    generator = np.zeros((places + 1, places + 1))
    for level in range(places):
        generator[level, level + 1] = arrivals
        generator[level + 1, level] = min(level + 1, servers) / service
    np.fill_diagonal(generator, -generator.sum(axis=1))
    shares = linalg.null_space(generator.T)[:, 0]
    return shares / shares.sum()


def test_papers_model_gives_the_papers_numbers():
    # Section V: 4, 6 and 6 threads; 4000, 6000 and 6000 cps
    assert [capacity_models.paper_threads(p, c) for p, c in ((1, 2), (1, 4), (2, 6))] == [4, 6, 6]
    assert [capacity_models.paper_capacity(p, c) for p, c in ((1, 2), (1, 4), (2, 6))] == [
        4000,
        6000,
        6000,
    ]
    assert capacity_models.paper_capacity(1, 1) == 1000
    assert capacity_models.paper_capacity(1, 2, 2500) == 10_000
    with pytest.raises(StableError, match="found 2 processors and 1 cores"):
        capacity_models.paper_threads(2, 1)


def test_papers_model_finds_the_best_threads_of_the_papers_tables():
    rows = capacity_models.paper_rows(published(), processors=PROCESSORS)
    assert [row.best_threads for row in rows] == [row.model_threads for row in rows] == [4, 6, 6]
    assert [row.measured_cps for row in rows] == [4400, 5400, 6600]
    assert [round(row.error_percent, 1) for row in rows] == [-9.1, 11.1, -9.1]


@pytest.mark.parametrize(("servers", "places"), [(1, 1), (1, 7), (2, 2), (3, 12), (8, 60)])
@pytest.mark.parametrize("rho", [0.2, 0.9, 1.0, 1.5])
def test_queue_is_the_markov_chain(servers, places, rho):
    service_us = 75.0
    arrivals = rho * servers / (service_us * 1e-6)
    shares = markov_chain(arrivals, service_us * 1e-6, servers, places)
    levels = np.arange(places + 1)
    found = capacity_models.queue(arrivals, service_us, servers, places)
    waiting = shares @ np.maximum(levels - servers, 0)
    assert found.blocking == pytest.approx(shares[-1])
    assert found.waiting == pytest.approx(waiting, rel=1e-9, abs=1e-12)
    assert found.waiting_us * 1e-6 * arrivals * (1 - shares[-1]) == pytest.approx(found.waiting)
    assert found.utilisation == pytest.approx(shares @ np.minimum(levels, servers) / servers)


@pytest.mark.parametrize("rho", [0.5, 0.97, 1.02])
def test_queue_of_one_server_is_the_closed_form(rho):
    places = 229
    found = capacity_models.queue(rho / 75e-6, 75, 1, places)
    assert found.blocking == pytest.approx((1 - rho) * rho**places / (1 - rho ** (places + 1)))


def test_queue_is_stable_with_much_room():
    under = capacity_models.queue(24_000, 75, 2, 1_000_000)
    assert (under.blocking, under.utilisation) == (0, pytest.approx(0.9))
    assert under.waiting_us == pytest.approx(capacity_models.endless_wait_us(24_000, 75, 2))
    over = capacity_models.queue(40_000, 75, 2, 1_000_000)
    assert over.blocking == pytest.approx(1 - 1 / 1.5)
    many = capacity_models.queue(20e6, 75, 2000, 3000)
    assert 0 < many.blocking < 1e-6


@pytest.mark.parametrize("scv", [0, 0.3, 1, 4])
def test_queue_with_much_room_waits_as_allen_and_cunneen_say(scv):
    wait = capacity_models.endless_wait_us(24_000, 75, 2, scv)
    assert capacity_models.queue(24_000, 75, 2, 20_000, scv).waiting_us == pytest.approx(wait)
    # Pollaczek and Khinchine, exact for one server
    one = capacity_models.endless_wait_us(12_000, 75, 1, scv)
    assert one == pytest.approx((1 + scv) / 2 * 0.9 / 0.1 * 75)
    assert capacity_models.endless_wait_us(30_000, 75, 2) == np.inf


@pytest.mark.parametrize("scv", [0, 0.3, 4])
def test_queue_without_waiting_places_is_erlangs_for_any_service(scv):
    # Erlang's loss formula by its recursion
    loss = 1.0
    for servers in range(1, 6):
        loss = 3 * loss / (servers + 3 * loss)
    assert capacity_models.queue(3e6 / 75, 75, 5, 5, scv).blocking == pytest.approx(loss)


def test_queue_refuses_what_it_cannot_answer():
    with pytest.raises(StableError, match="1 ≤ servers ≤ places"):
        capacity_models.queue(1000, 75, 4, 3)
    with pytest.raises(StableError, match=r"utilisation 2\.25 is beyond"):
        capacity_models.queue(30_000, 75, 1, 10, 0)


def test_queue_capacity_is_where_one_percent_is_turned_away():
    for scv in (0.0, 1.0, 2.5):
        cps = capacity_models.queue_capacity_cps(75, 2, 229, scv)
        assert capacity_models.queue(6 * cps, 75, 2, 229, scv).blocking == pytest.approx(0.01)
    # Erlang's loss formula of one server: ρ / (1 + ρ)
    assert capacity_models.queue_capacity_cps(75, 1, 1) == pytest.approx(1 / 99 / 75e-6 / 6)
    # All the room in the world: what the servers can do, and 1 % more
    endless = capacity_models.queue_capacity_cps(75, 2, 1_000_000)
    assert endless == pytest.approx(2 / 75e-6 / 0.99 / 6, rel=1e-4)


def test_places_are_charged_as_the_kernel_does():
    # 524288 bytes held 227 datagrams of the size of an INVITE, charged 2304 bytes each
    assert capacity_models.system_places(524_288, 2304, 2) == 227 + 2


def test_scaling_law_recovers_its_parameters():
    cores = np.array([1, 2, 3, 4, 6, 8])
    found = capacity_models.fit_scaling(
        cores, capacity_models.scaling_law(cores, 1000, 0.08, 0.004), resamples=9
    )
    law = (found.single_cps, found.contention, found.coherency, found.peak_cores)
    truth = (1000, 0.08, 0.004, np.sqrt(0.92 / 0.004))
    assert [each.estimate for each in law] == pytest.approx(truth, rel=1e-4)
    assert found.predict(10).estimate == pytest.approx(
        capacity_models.scaling_law(10, 1000, 0.08, 0.004), rel=1e-4
    )


def test_scaling_law_with_noise_has_intervals_and_wider_predictions():
    rng = np.random.default_rng(2)
    cores = np.array([1, 2, 3, 4, 6, 8])
    cps = capacity_models.scaling_law(cores, 1000, 0.08, 0.004) + rng.normal(0, 50, 6)
    found = capacity_models.fit_scaling(cores, cps, resamples=199)
    for each, truth in zip(
        (found.single_cps, found.contention, found.coherency), (1000, 0.08, 0.004), strict=True
    ):
        assert each.low < truth < each.high
    inside, outside = found.predict(5), found.predict(24)
    assert inside.low < capacity_models.scaling_law(5, 1000, 0.08, 0.004) < inside.high
    assert outside.high - outside.low > 3 * (inside.high - inside.low)
    assert found.predict(5) == capacity_models.fit_scaling(cores, cps, resamples=199).predict(5)


def test_scaling_law_with_few_points_says_so():
    three = capacity_models.fit_scaling([2, 4, 6, 8], [4400, 5400, 6600, np.nan])
    assert three.single_cps.why == "too few points for an interval, 0 to spare"
    assert str(three.predict(8)).endswith("n = 3: too few points for an interval, 0 to spare")
    assert three.peak_cores.estimate == np.inf
    amdahl = capacity_models.fit_scaling([1, 2], [1000, 1900], contention_only=True)
    assert amdahl.contention.estimate == pytest.approx(2 * 1000 / 1900 - 1, rel=1e-4)
    assert str(amdahl.coherency) == "0, n = 2: held at 0"
    with pytest.raises(StableError, match="at least 3 different numbers of cores, found 2"):
        capacity_models.fit_scaling([2, 2, 4], [4400, 4300, 5400])


def test_papers_rule_fitted_to_the_papers_capacities():
    rule = capacity_models.fit_rule([2, 4, 6], [4400, 5400, 6600], PROCESSORS)
    # T = 4, 6, 6: C(1,1) = (4 · 4400 + 6 · 5400 + 6 · 6600) / 88
    assert rule.single_cps.estimate == pytest.approx(89_600 / 88)
    assert rule.single_cps.low < 1000 < rule.single_cps.high
    eight = rule.predict(8)
    assert eight.estimate == pytest.approx(10 * 89_600 / 88)
    assert eight.low < 10 * rule.single_cps.low < 10 * rule.single_cps.high < eight.high
    two = capacity_models.fit_rule([2, 4], [4400, 5400], PROCESSORS)
    assert str(two.predict(6)).endswith("n = 2: too few points for an interval, 1 to spare")
    with pytest.raises(StableError, match="found none"):
        capacity_models.fit_rule([], [], PROCESSORS)


def test_papers_rule_covers_what_it_predicts():
    rng = np.random.default_rng(3)
    cores = np.array([1, 2, 4, 6, 8])
    threads = np.array([1, 4, 6, 8, 10])
    held = 0
    for _ in range(400):
        found = capacity_models.fit_rule(cores, 1000 * threads + rng.normal(0, 200, 5), {}).predict(
            12
        )
        held += found.low < 14_000 + rng.normal(0, 200) < found.high
    assert 0.92 < held / 400 < 0.98


def test_leave_one_out_of_the_papers_capacities():
    cores, cps = [2, 4, 6], [4400, 5400, 6600]
    papers = capacity_models.leave_one_out(cores, cps, capacity_models.paper_model(PROCESSORS))
    # Without 2 cores: C(1,1) = (6 · 5400 + 6 · 6600) / 72 = 1000
    assert papers[0].predicted_cps == pytest.approx(4000)
    assert papers[0].error_percent == pytest.approx(-100 / 11)
    law = capacity_models.leave_one_out(cores, cps, capacity_models.law_model)
    assert all(np.isnan(row.predicted_cps) for row in law)
    exact = capacity_models.scaling_law(np.array([1, 2, 4, 8, 16]), 1000, 0.1, 0)
    rows = capacity_models.leave_one_out([1, 2, 4, 8, 16], exact, capacity_models.contention_model)
    assert [row.error_percent for row in rows] == pytest.approx([0] * 5, abs=1e-3)


def test_plan_takes_fewest_cores_then_threads_then_the_preferred_mode():
    options = [
        option(1, 8, 1500),
        option(1, 2, 1400),
        option(1, 2, 1900, "enhanced"),
        option(2, 4, 4400, "enhanced"),
        option(2, 4, 3600),
    ]
    assert capacity_models.plan(1300, options, 2).choice == options[1]
    assert (
        capacity_models.plan(1300, options, 2, modes=["enhanced", "default"]).choice == options[2]
    )
    assert capacity_models.plan(1450, options, 2, modes=["default"]).choice == options[0]
    assert capacity_models.plan(1450, options, 2, threads=[4]).choice == options[4]
    found = capacity_models.plan(4000, options, 2)
    assert found.choice == found.measured == options[3]
    assert found.margin_percent == pytest.approx(10)
    assert str(found) == (
        "4\u202f000 cps: proxy, enhanced, 2 cores, 4 threads, measured: carries 4\u202f400 cps, "
        "10 % to spare."
    )
    nothing = capacity_models.plan(4000, options, 1)
    assert nothing.choice is nothing.measured is None
    assert str(nothing) == (
        "4\u202f000 cps: nothing that is known carries it. The most is 1\u202f900 cps: "
        "proxy, enhanced, 1 core, 2 threads."
    )
    assert capacity_models.plan(4000, [], 8).largest is None


def test_plan_says_what_is_predicted_and_what_lies_beyond_the_data():
    measured = published()

    def papers(cores):
        return Interval.without(
            capacity_models.paper_capacity(1, cores), 0, why="the papers' model"
        )

    predicted = capacity_models.predicted_options(
        measured,
        "opensips",
        "enhanced",
        range(1, 9),
        papers,
        lambda c: capacity_models.paper_threads(1, c),
    )
    assert [(each.cores, each.basis) for each in predicted] == [
        (1, BEYOND), (3, PREDICTED), (5, PREDICTED), (7, BEYOND), (8, BEYOND)
    ]  # fmt: skip
    options = [*measured, *predicted]
    assert capacity_models.plan(4000, options, 8).choice.basis == MEASURED
    between = capacity_models.plan(4800, options, 8)
    assert (between.choice.cores, between.choice.basis) == (3, PREDICTED)
    assert between.measured.cores == 4
    assert str(between).endswith("Smallest measured: opensips, enhanced, 4 cores, 4 threads.")
    beyond = capacity_models.plan(9500, options, 8)
    assert (beyond.choice.cores, beyond.choice.basis, beyond.measured) == (8, BEYOND, None)
    assert str(beyond).endswith("Smallest measured: none.")
    law = capacity_models.fit_scaling(
        [2, 4, 6, 2, 4, 6], [4400, 5400, 6600, 4300, 5500, 6500], resamples=99
    )
    (eight,) = capacity_models.predicted_options(
        measured, "opensips", "enhanced", [8], law.predict, lambda c: c
    )
    assert 0 < eight.carries_cps == eight.interval.low < eight.interval.estimate


def test_options_of_a_summary():
    loads, reps = [500, 1000, 1500], [1, 2, 3]
    pdr = np.full((1, 1, 1, 3, 3, 3), np.nan)
    pdr[0, 0, 0, 0] = [[0, 0, 0], [0.001, 0.002, 0.003], [0.03, 0.04, 0.05]]
    pdr[0, 0, 0, 1] = 0
    data = xr.Dataset(
        {"pdr": (summary.RUN_DIMS, pdr)},
        coords={"sut": ["kamailio-udp"], "mode": ["default"], "cores": [1]}
        | {"threads": [2, 8, 16], "cps": loads, "rep": reps},
    )
    crossing, above = capacity_models.measured_options(data)
    assert (crossing.cores, crossing.threads, crossing.grid_cps) == (1, 2, 1000)
    assert crossing.carries_cps == crossing.interval.low < crossing.interval.estimate
    assert crossing.interval.estimate == pytest.approx(1000 + 500 * 0.008 / 0.038)
    assert (above.threads, above.carries_cps, above.grid_cps) == (8, 1500, 1500)
    assert str(above.interval) == "1\u202f500, n = 9: no load was above the limit"
    assert capacity_models.best_by_cores([crossing, above]) == (above,)
    over = capacity_models.measured_option("a", "b", 1, 2, statistics.capacity([500], [0.2]))
    assert (over.carries_cps, over.interval.estimate) == (0, 0)
    assert capacity_models.plan(100, [over], 1).choice is None


def test_options_of_nothing_measured():
    assert capacity_models.measured_options(summary.combine([], [synthetic.Run()])) == ()
