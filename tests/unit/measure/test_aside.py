"""When a testbed that is not reached waits, and until when."""

from sipsched.measure.aside import AGAIN_S, Aside


def test_one_attempt_that_is_lost_is_a_hiccup_and_two_set_aside() -> None:
    aside = Aside()
    assert not aside.lost("rack", 0) and not aside.waits("rack", 1)
    assert not aside.reached("rack")
    assert not aside.lost("rack", 2)
    assert aside.lost("rack", 3) and aside.waits("rack", 4)
    assert not aside.waits("other", 4)


def test_what_is_set_aside_is_tried_from_time_to_time_until_it_is_reached() -> None:
    aside = Aside()
    assert [aside.lost("rack", now) for now in (0, 1)] == [False, True]
    assert aside.waits("rack", AGAIN_S) and not aside.waits("rack", 1 + AGAIN_S)
    # said once
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
    # another attempt that had begun before says nothing new
    assert not aside.lost("rack", 4)
