"""Tests of the mode that `fab tune` derives from measurements, and of the comparisons that test this mode."""

from types import SimpleNamespace

import pytest

from sipsched.analysis.advice import ModeEffect
from sipsched.measure.simulated_point import plan_point
from sipsched.plan import crossover
from sipsched.plan.config import load_config
from sipsched.plan.crossover import compared
from sipsched.plan.keys import ModeName, read_value
from sipsched.plan.modes import Counts, Setting, find_mode, load_modes
from sipsched.plan.run import Point
from sipsched.testbed.inventory import load_testbed
from sipsched.tune import derive, setting

PAPERS = [(79.58, 2, 100_000), (146.25, 4, 150_000), (203.9, 6, 250_000), (429.83, 16, 450_000)]


@pytest.mark.parametrize(("t_sip_us", "threads", "granularity_ns"), PAPERS)
def test_the_papers_service_times_lead_close_to_the_papers_settings(
    t_sip_us: float, threads: int, granularity_ns: int
) -> None:
    declared, counts = load_modes(), Counts(1, threads, 1)
    derived = find_mode(derive(t_sip_us, 1, eevdf=False).mode, declared).settings(counts)
    papers = find_mode("enhanced", declared).settings(counts)
    granularity = derived.pop(Setting.MIN_GRANULARITY)
    # the derived granularity is at most one step of 50 µs above the papers' value
    assert granularity == granularity_ns
    assert granularity - papers.pop(Setting.MIN_GRANULARITY) in (0, 50_000)
    assert derived == papers


@pytest.mark.parametrize("eevdf", [False, True])
@pytest.mark.parametrize(("cores", "processors"), [(1, 1), (4, 1), (4, 2), (100, 2)])
@pytest.mark.parametrize("t_sip_us", [20, 260, 2000])
def test_neighbours_differ_from_the_derived_mode_in_one_setting(
    t_sip_us: float, cores: int, processors: int, eevdf: bool
) -> None:
    derived, declared = derive(t_sip_us, cores, eevdf), load_modes()
    crossover.check(derived.comparisons, declared)
    first, *others = derived.comparisons
    assert compared(first) == ("default", derived.mode)
    counts = Counts(cores, 8, processors)
    own = find_mode(derived.mode, declared).settings(counts)
    for comparison in others:
        read_value(ModeName, comparison, "comparison")
        reference, *neighbours = compared(comparison)
        assert reference == derived.mode and neighbours
        for name in neighbours:
            settings = find_mode(name, declared).settings(counts)
            assert sum(settings[key] != value for key, value in own.items()) == 1


def test_only_a_system_with_several_cores_compares_the_migration_cost() -> None:
    one, two = ("".join(derive(100, cores, eevdf=False).comparisons) for cores in (1, 2))
    assert "migration_cost" not in one and "migration_cost" in two


@pytest.mark.parametrize("cores", [1, 4, 8])
def test_a_kernel_can_switch_between_all_modes_of_each_comparison(cores: int) -> None:
    config, testbed = load_config(), load_testbed("simulated-cfs")
    for comparison in derive(260, cores, eevdf=False).comparisons:
        point = Point(testbed.name, "kamailio-udp", comparison, cores, 8)
        planned = plan_point(point, config, testbed)
        # The first four cores belong to one processor, and eight cores belong to two processors.
        assert planned.numbers["cores"] == cores
        assert planned.modes
        assert [state.mode.name for state in planned.modes.modes] == [*compared(comparison)]


def advised(reference: str, mode: str, verdict: ModeEffect) -> SimpleNamespace:
    """Return the advice of a comparison at two loads. At the lower load, the mode is always worse."""
    rankings = []
    for cps, result in ((1000, ModeEffect.WORSE), (2000, verdict)):
        candidate = SimpleNamespace(mode=mode, verdict=result)
        best = candidate if result is ModeEffect.BETTER else None
        load = SimpleNamespace(cps=cps)
        rankings.append(SimpleNamespace(load=load, candidates=(candidate,), best=best))
    return SimpleNamespace(place=SimpleNamespace(reference=reference), rankings=tuple(rankings))


@pytest.mark.parametrize(
    ("against_default", "neighbour", "expected"),
    [
        (ModeEffect.BETTER, ModeEffect.WORSE, "own"),
        (ModeEffect.BETTER, ModeEffect.BETTER, "near"),
        (ModeEffect.WORSE, ModeEffect.BETTER, "default"),
    ],
)
def test_the_comparisons_at_the_highest_load_choose_the_setting(
    against_default: ModeEffect, neighbour: ModeEffect, expected: str
) -> None:
    result = [advised("default", "own", against_default), advised("own", "near", neighbour)]
    assert setting(result, "own").startswith(f"The setting: {expected}. ")
    assert setting([], "own").startswith("The setting: own. ")
