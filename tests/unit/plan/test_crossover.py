"""Tests of runs that compare modes: the compared modes, and the random order of windows."""

from collections import Counter
from dataclasses import replace
from itertools import groupby, pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sipsched.errors import StableError
from sipsched.paths import PROJECT_ROOT
from sipsched.plan import config, crossover, documents
from sipsched.plan.crossover import Crossover, Instance, call_tail_s, choose, draw, lengths
from sipsched.plan.loads import SharesOfCrossing
from sipsched.plan.modes import find_mode, load_modes
from sipsched.plan.run import Run

MODES = ("default", "batch")
PLANNED = Crossover(
    mode_s=30.0, window_s="auto", washout_s="auto", retransmissions=False, steal_share=0.05
)
LOAD = replace(config.load_config().load, duration_s=90)


@pytest.fixture
def document() -> dict[str, Any]:
    result: dict[str, Any] = documents.read_yaml(PROJECT_ROOT / "config/config.yaml")
    return result


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("default,fast", "mode 'fast': 'fast' is not declared"),
        ("default,baseline,default", "comparison .*'default' is named twice"),
        ("default,", "mode '': '' is not declared"),
        (
            "default,default+threads=2+start=2",
            "a further start of 'default.threads=2', which .* lacks",
        ),
    ],
)
def test_an_impossible_comparison_is_one_clear_error(name: str, message: str) -> None:
    with pytest.raises(StableError, match=message):
        crossover.check([name], load_modes())


@pytest.mark.parametrize(
    ("mode", "sut", "message"),
    [
        ("default,default+sut=other", "kamailio-udp", "'other' is not defined under suts"),
        ("default,default+threads=2", "kamailio-tcp-listeners", "has deployment listeners"),
        ("default,default+sut=kamailio-udp-front", "kamailio-udp", "has deployment front"),
        ("default,default+threads=2", "kamailio-tcp-dispatcher", "has deployment dispatcher"),
        ("default,default+sut=kamailio-tcp", "kamailio-udp", "kamailio-tcp differ in transport"),
        (
            "default,default+sut=kamailio-tcp-per-call",
            "kamailio-tcp",
            "kamailio-tcp-per-call differ in transport or connections",
        ),
        ("default,default+sut=opensips-udp", "kamailio-udp", "opensips-udp runs opensips"),
        (
            "default,default+receive_buffer_bytes=65536",
            "kamailio-tcp",
            "is TCP, and receive_buffer",
        ),
        (
            "default,default+receive_buffer_bytes=262144",
            "kamailio-udp",
            "kamailio-udp already has a receive buffer of 262144 bytes",
        ),
        ("default+threads=2,default", "kamailio-udp", "the reference has .*write 'default'"),
        ("default+threads=2", "kamailio-udp", "the reference has .*write 'default'"),
    ],
)
def test_instances_that_cannot_be_compared_are_one_clear_error(
    mode: str, sut: str, message: str
) -> None:
    planned = config.load_config()
    with pytest.raises(StableError, match=message):
        planned.check_run(Run("local", sut, mode, 1, 8, 100, 1))


@pytest.mark.parametrize("sut", ["kamailio-udp", "kamailio-udp-partitioned"])
def test_proxies_with_several_sockets_are_compared(sut: str) -> None:
    other = "kamailio-udp-sockets"
    mode = f"default,default+sut={other},default+sut={other}+cores=2,default+threads=2"
    config.load_config().check_run(Run("local", sut, mode, 1, 8, 100, 1))
    modes = [find_mode(name, load_modes()) for name in crossover.compared(mode)]
    started = crossover.instances(modes, sut, 8, 1).started
    assert started == (
        *(Instance(sut, 8, 1), Instance(other, 8, 1)),
        *(Instance(other, 8, 2), Instance(sut, 2, 1), Instance(sut, 8, 1)),
    )


def test_each_combination_has_an_instance_and_the_sham_has_its_own() -> None:
    names = ("default", "batch", "default+threads=2", "batch+threads=2", "default+threads=8")
    modes = [find_mode(name, load_modes()) for name in names]
    instances = crossover.instances(modes, "kamailio-udp", 8, 1)
    eight, two = Instance("kamailio-udp", 8, 1), Instance("kamailio-udp", 2, 1)
    assert instances.started == (eight, two, eight)
    assert instances.of_mode == (0, 0, 1, 1, 0)
    windows = draw(names, 60, 0.5, 0.05, 1).windows
    assert {instances.of_window(window) for window in windows if window.sham} == {2}
    assert {instances.of_window(window) for window in windows if window.mode == 3} == {1}
    assert {instances.of_window(w) for w in windows if w.mode == 0 and not w.sham} == {0}


def test_each_receive_buffer_has_an_instance() -> None:
    names = ("default", "default+receive_buffer_bytes=65536", "batch+receive_buffer_bytes=65536")
    modes = [find_mode(name, load_modes()) for name in names]
    instances = crossover.instances(modes, "kamailio-udp", 8, 1)
    own, small = Instance("kamailio-udp", 8, 1), Instance("kamailio-udp", 8, 1, 65536)
    assert instances.started == (own, small, own)
    assert instances.of_mode == (0, 1, 1)


def test_each_number_of_cores_has_an_instance() -> None:
    names = ("default", "default+cores=2", "default+cores=1", "default+cores=4+threads=2")
    modes = [find_mode(name, load_modes()) for name in names]
    instances = crossover.instances(modes, "kamailio-udp", 8, 1)
    one = Instance("kamailio-udp", 8, 1)
    assert instances.started == (
        one,
        Instance("kamailio-udp", 8, 2),
        Instance("kamailio-udp", 2, 4),
        one,
    )
    assert instances.of_mode == (0, 1, 0, 2)
    assert crossover.cores_of(",".join(names), 1) == (1, 2, 1, 4)


def test_each_further_start_has_an_instance() -> None:
    names = ("default", "default+threads=2", "default+threads=2+start=2", "default+start=2")
    modes = [find_mode(name, load_modes()) for name in names]
    crossover.check([",".join(names)], load_modes())
    instances = crossover.instances(modes, "kamailio-udp", 8, 1)
    eight, two = Instance("kamailio-udp", 8, 1), Instance("kamailio-udp", 2, 1)
    assert instances.started == (eight, two, replace(two, start=2), replace(eight, start=2), eight)
    assert instances.of_mode == (0, 1, 2, 3)


def test_modes_of_one_instance_share_it_with_the_sham() -> None:
    modes = [find_mode(name, load_modes()) for name in MODES]
    instances = crossover.instances(modes, "kamailio-udp", 8, 1)
    assert instances.started == (Instance("kamailio-udp", 8, 1),)
    assert {instances.of_window(w) for w in draw(MODES, 60, 0.5, 0.05, 1).windows} == {0}


@given(
    n=st.integers(2, 12), window_s=st.floats(0.2, 4), share=st.floats(0, 0.4), seed=st.integers(0)
)
def test_windows_follow_each_other_in_whole_blocks(
    n: int, window_s: float, share: float, seed: int
) -> None:
    modes = [f"mode{i}" for i in range(n)]
    total_s = 8 * (n + 1) * window_s
    design = draw(modes, total_s, window_s, share * window_s, seed)
    assert all(a.start_ns + a.length_ns == b.start_ns for a, b in pairwise(design.windows))
    assert design.windows[0].start_ns == 0
    assert design.end_ns <= 1.1 * total_s * 1e9
    for _, group in groupby(design.windows, lambda window: window.block):
        block = list(group)
        assert len({window.length_ns for window in block}) == 1
        shams = [place for place, window in enumerate(block) if window.sham]
        assert len(shams) == 1
        assert block[shams[0]].mode == 0
        assert Counter(window.mode for window in block if not window.sham) == Counter(range(n))
        shortest_s = min(window.length_ns for window in block) / 1e9
        assert shortest_s > 2 * design.washout_s


def test_every_order_of_modes_and_sham_is_equally_likely() -> None:
    orders: Counter[tuple[tuple[int, bool], ...]] = Counter()
    for seed in range(100):
        windows = draw(("a", "b"), 60, 0.5, 0.05, seed).windows
        for _, group in groupby(windows, lambda window: window.block):
            orders[tuple((window.mode, window.sham) for window in group)] += 1
    # 4000 blocks have 6 possible orders: 667 blocks per order, with 5 standard errors of 118
    assert len(orders) == 6
    assert all(549 < count < 785 for count in orders.values())


def test_the_same_seed_draws_the_same_windows() -> None:
    assert draw(("a", "b"), 60, 0.5, 0.05, 7) == draw(("a", "b"), 60, 0.5, 0.05, 7)
    assert draw(("a", "b"), 60, 0.5, 0.05, 7) != draw(("a", "b"), 60, 0.5, 0.05, 8)


def test_nearer_to_the_knee_windows_are_longer() -> None:
    result = [lengths(PLANNED, busy, 60e-6, 0.05) for busy in (0.0, 0.5, 0.8, 0.95, 1.2)]
    windows = [window_s for window_s, _, _ in result]
    assert windows == sorted(windows)
    assert windows[0] == 0.5
    # the third value is the queue's relaxation time E[S] / (1 - sqrt(0.95))^2
    assert result[3][2] == pytest.approx(0.0936, rel=0.01)
    assert all(window_s >= 5 * washout_s for window_s, washout_s, _ in result)


def test_given_lengths_of_windows_are_used() -> None:
    given_both = replace(PLANNED, window_s=2.0, washout_s=0.3)
    design = choose(MODES, LOAD, given_both, 0.9, 60e-6, 1)
    assert (design.window_s, design.washout_s) == (2.0, 0.3)
    assert design.replays == 3
    assert design.call_tail_s is None
    assert choose(MODES, LOAD, replace(PLANNED, washout_s=0.3), 0.5, 60e-6, 1).window_s == 1.5
    assert choose(MODES, LOAD, PLANNED, 0.5, 60e-6, 1).utilisation == 0.5


def test_a_busy_proxy_gets_shorter_windows_rather_than_too_few_blocks() -> None:
    modes = ["default", "slice-100us", "batch", "fifo"]
    design = choose(modes, replace(LOAD, duration_s=75.0), PLANNED, 0.999, 400e-6, 1)
    assert design.washout_s == 1
    assert design.window_s == pytest.approx(2.5)
    assert len({window.block for window in design.windows}) == 6


def test_the_washout_lasts_until_the_calls_of_the_previous_window_have_ended() -> None:
    def washout_s(**changes: Any) -> float:
        load = replace(LOAD, **changes)
        design = choose(MODES, load, PLANNED, 0, 60e-6, 1)
        assert design.call_tail_s == call_tail_s(load)
        # The relaxation time of an unused proxy is the service time of one message.
        assert design.washout_s == pytest.approx(call_tail_s(load) + 3 * 60e-6)
        return call_tail_s(load)

    assert washout_s() == 0.05
    assert washout_s(ring_time_ms=100, hold_time_ms=250) == pytest.approx(0.38)
    # 1 % of exponential times are longer than ln(100) = 4.6 times their mean
    assert washout_s(hold_time_ms=100, hold_law="exponential") == pytest.approx(0.5005, abs=1e-4)


@pytest.mark.parametrize(
    ("load", "washout_s", "message"),
    [
        ({"hold_time_ms": 961}, "auto", r"1\.001 s after .*at most 1 s .*: auto\); set .* to 2 or"),
        ({"ring_time_ms": 500}, 0.3, r"0\.54 s after .*at most 0\.3 s .*washout_s to 1 or more"),
        ({"hold_time_ms": 100, "hold_law": "exponential"}, 0.4, r"0\.500\d+ s after .*exponential"),
        (
            {"hold_time_ms": 180_000},
            "auto",
            r"180\.04 s .*cannot be compared within a run with such calls: lower load\.",
        ),
    ],
)
def test_calls_that_outlast_the_washout_are_one_clear_error(
    document: dict[str, Any], load: dict[str, Any], washout_s: Any, message: str
) -> None:
    document["load"] |= load
    document["crossover"]["washout_s"] = washout_s
    instances = ("default", "default+threads=4")
    # Comparisons of modes can have such calls, because one instance serves all calls.
    campaign = config.parse_config(document)
    run = Run("local", "kamailio-udp", "default,baseline", 1, 8, 1000, 1)
    campaign.check_run(run)
    long_calls = replace(campaign.load, hold_time_ms=180_000, duration_s=90)
    assert choose(MODES, long_calls, PLANNED, 0, 60e-6, 1).call_tail_s == 0.05
    with pytest.raises(StableError, match=rf"rep~1: calls end up to {message}"):
        campaign.check_run(replace(run, mode=",".join(instances)))
    with pytest.raises(StableError, match=rf"^crossover: calls end up to {message}"):
        choose(instances, campaign.load, campaign.crossover, 0.5, 60e-6, 1)
    document["studies"]["crossover"]["modes"] = [",".join(instances)]
    with pytest.raises(StableError, match=rf"studies\.crossover: calls end up to {message}"):
        config.parse_config(document)


def test_windows_that_the_washout_fills_are_one_clear_error() -> None:
    with pytest.raises(StableError, match=r"are too short for twice the washout of 0\.4 s"):
        draw(("a", "b"), 60, 0.8, 0.4, 1)


def test_a_load_of_a_few_blocks_is_one_clear_error() -> None:
    with pytest.raises(
        StableError, match=r"have room for 3 blocks of 3 windows of 2 s.*mode_s to 12"
    ):
        draw(("a", "b"), 20, 2, 0.1, 1)


def test_a_comparison_has_a_load_of_its_own(document: dict[str, Any]) -> None:
    campaign = config.parse_config(document)
    run = Run("local", "kamailio-udp", "default,baseline", 1, 8, 1000, 1)
    load = campaign.load_of(run)
    assert load.duration_s == 3 * campaign.crossover.mode_s
    assert load.retransmissions is False
    assert campaign.load_of(replace(run, mode="default")) is campaign.load


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        (("crossover", "window_s"), 0.5, r"window_s \(0\.5\) must be more than twice washout_s"),
        (("crossover", "mode_s"), 0, "crossover.mode_s: expected float > 0.0, found 0"),
    ],
)
def test_a_wrong_crossover_is_one_clear_error(
    document: dict[str, Any], key: tuple[str, str], value: Any, message: str
) -> None:
    document["crossover"]["washout_s"] = 0.3
    document[key[0]][key[1]] = value
    with pytest.raises(StableError, match=message):
        config.parse_config(document)


def test_shares_of_a_crossing_are_loads_in_whole_tens() -> None:
    loads = SharesOfCrossing("default", (0.5, 0.95, 0.8)).loads(2617, 2800)
    assert loads == (1310, 2090, 2490)


def test_a_crossing_of_a_comparison_is_one_clear_error(document: dict[str, Any]) -> None:
    document["studies"]["advice"]["cps"] = {
        "around_crossing_of": "default,baseline",
        "shares": [0.5],
    }
    with pytest.raises(StableError, match="'default,baseline' compares modes"):
        config.parse_config(document)
