"""Snakemake's greedy scheduler, with one thing more: measurements start in the order of their plan.

By itself Snakemake starts equal jobs in any order. A comparison wants the runs of a pair next to each
other and in turned order in every second block; `sipsched.plan.config.Study.runs` says which. A job's place
in that order is its resource `order`.
"""

from collections.abc import Mapping
from typing import Any

from snakemake.scheduling import greedy

LAST = 1 << 30

SchedulerSettings = greedy.SchedulerSettings


class Scheduler(greedy.Scheduler):  # type: ignore[misc]
    """Greedy by priority first, by order second."""

    def job_reward(self, job: Any, input_sizes: Mapping[Any, int]) -> tuple[int, int]:
        """Rank a job: the highest is started first."""
        order = int(job.resources.get("order", LAST))
        return job.priority, -order
