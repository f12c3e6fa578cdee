"""Tests of when the workflow tries a testbed again that was unreachable (set aside)."""

from sipsched.measure.aside import AGAIN_S, Aside


def test_two_failed_attempts_in_a_row_set_a_testbed_aside() -> None:
    aside = Aside()
    assert not aside.lost("rack", 0) and not aside.waits("rack", 1)
    assert not aside.reached("rack")
    assert not aside.lost("rack", 2)
    assert aside.lost("rack", 3) and aside.waits("rack", 4)
    assert not aside.waits("other", 4)


def test_a_testbed_that_is_set_aside_is_tried_again_after_a_while() -> None:
    aside = Aside()
    assert [aside.lost("rack", now) for now in (0, 1)] == [False, True]
    assert aside.waits("rack", AGAIN_S) and not aside.waits("rack", 1 + AGAIN_S)
    # the workflow reports only the attempt that sets the testbed aside
    assert not aside.lost("rack", 1 + AGAIN_S) and aside.waits("rack", 2 + AGAIN_S)
    assert aside.reached("rack") and not aside.waits("rack", 2 + AGAIN_S)


def test_the_last_attempt_decides() -> None:
    aside = Aside()
    for now in (0, 1):
        aside.lost("rack", now)
    aside.try_for_the_last_time("rack")
    assert not aside.waits("rack", 2) and not aside.is_given_up("rack")
    assert aside.lost("rack", 3)
    assert aside.is_given_up("rack") and aside.waits("rack", 10 * AGAIN_S)
    # the workflow does not report a further failed attempt
    assert not aside.lost("rack", 4)
