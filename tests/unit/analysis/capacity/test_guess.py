"""Tests of the load at which a capacity search begins."""

import pytest

from sipsched.analysis.capacity.guess import guess_cps
from sipsched.plan.loads import Capacity
from sipsched.plan.run import Point

GOAL = Capacity(0.01, 0.02)


def place(cores: int, threads: int, mode: str = "baseline", sut: str = "a") -> Point:
    return Point("bed", sut, mode, cores, threads, GOAL)


def test_a_sut_without_known_crossings_has_no_guess() -> None:
    assert guess_cps(place(1, 8), {}) is None
    assert guess_cps(place(1, 8), {place(1, 8, sut="b"): (900, 1000)}) is None


def test_another_mode_of_the_cell_is_nearer_than_the_same_mode_elsewhere() -> None:
    result = {place(1, 8, "enhanced"): (900, 1000), place(2, 8): (4000, 4000)}
    assert guess_cps(place(1, 8), result) == pytest.approx((900 * 1000) ** 0.5)


def test_one_known_number_of_cores_is_scaled_in_proportion_to_usable_cores() -> None:
    result = {place(2, 8): (2000, 2000)}
    assert guess_cps(place(4, 8), result) == pytest.approx(4000)
    # two threads cannot use more than two cores
    assert guess_cps(place(4, 2), result) == pytest.approx(2000)


def test_two_known_numbers_of_cores_are_extrapolated_by_amdahls_law() -> None:
    """The capacities follow Amdahl's law with a serial share of a tenth."""

    def law(cores: int) -> float:
        return 1000 * cores / (1 + 0.1 * (cores - 1))

    result = {place(cores, 16): (round(law(cores)), round(law(cores))) for cores in (2, 4)}
    assert guess_cps(place(8, 16), result) == pytest.approx(law(8), rel=0.01)
