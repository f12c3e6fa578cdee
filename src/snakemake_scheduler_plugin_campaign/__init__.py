"""Snakemake's greedy scheduler, with two things more: measurements start in the order of their plan, and know it.

By itself Snakemake starts equal jobs in any order. A comparison wants the runs of a pair next to each
other and in turned order in every second block; `sipsched.plan.config.Study.runs` says which. A job's place
in that order is its resource `order`.

Nobody but the scheduler knows how many measurements an invocation is about: not those of the configuration, if
it was asked for a single file. A job finds its place among them in its environment, as `RUN_PLACE`.
"""

import os
from collections.abc import Mapping, Sequence
from typing import Any

from snakemake.scheduling import greedy

from sipsched.scripting import RUN_PLACE

LAST = 1 << 30
MEASURING = "measure_run"
"""The rule whose jobs are counted."""

SchedulerSettings = greedy.SchedulerSettings


class Scheduler(greedy.Scheduler):  # type: ignore[misc]
    """Greedy by priority first, by order second."""

    def __post_init__(self) -> None:
        """Begin with no measurement seen."""
        super().__post_init__()
        self._seen: set[Any] = set()

    def select_jobs(
        self,
        selectable_jobs: Sequence[Any],
        remaining_jobs: Sequence[Any],
        available_resources: Mapping[str, int | str],
        input_sizes: Any,
    ) -> Sequence[Any]:
        """Choose the jobs to start now, and tell a measurement among them its place."""
        chosen: Sequence[Any] = super().select_jobs(
            selectable_jobs, remaining_jobs, available_resources, input_sizes
        )
        left, started = _measuring(remaining_jobs), _measuring(chosen)
        self._seen.update(left)
        if started:
            # each inherits it when it starts; on testbeds side by side they share a place
            place = len(self._seen) - len(left) + len(started)
            os.environ[RUN_PLACE] = f"{place}/{len(self._seen)}"
        return chosen

    def job_reward(self, job: Any, input_sizes: Mapping[Any, int]) -> tuple[int, int]:
        """Rank a job: the highest is started first."""
        order = int(job.resources.get("order", LAST))
        return job.priority, -order


def _measuring(jobs: Sequence[Any]) -> list[Any]:
    return [job for job in jobs if getattr(job, "name", None) == MEASURING]
