"""Tests of the counters of the proxy's tasks that are read from the output of a host."""

import pytest

from sipsched.errors import StableError
from sipsched.measure.factors import parse_tasks
from sipsched.records.cpu_report import TaskCounts


def test_counts_are_read_and_subtracted() -> None:
    before = parse_tasks("9 100 50 3 250 125\n100\n", "here")
    after = parse_tasks("9 700 60 3 350 175\n100\n", "here")

    assert before.user_ns == 2_500_000_000
    assert after - before == TaskCounts(9, 600, 10, 0, 1_000_000_000, 500_000_000)


def test_migrations_are_none_where_the_kernel_hides_them() -> None:
    hidden = parse_tasks("1 2 3 -1 4 5\n100\n", "here")

    assert hidden.migrations is None
    assert (parse_tasks("1 2 3 7 4 5\n100\n", "here") - hidden).migrations is None


@pytest.mark.parametrize("text", ["", "1 2 3 4 5 6", "1 2 3 4 5 6\n100\n7", "1 2 x 4 5 6\n100"])
def test_other_output_is_an_error(text: str) -> None:
    with pytest.raises(StableError, match="here: expected seven counts"):
        parse_tasks(text, "here")
