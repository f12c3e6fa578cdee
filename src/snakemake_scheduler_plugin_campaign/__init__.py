"""Snakemake's greedy scheduler, with two things more: measurements in the order of their plan, and again last.

By itself Snakemake starts equal jobs in any order. A comparison wants the runs of a pair next to each
other and in turned order in every second block; `sipsched.plan.config.Study.runs` says which. A job's place
in that order is its resource `order`.

What was disturbed is tried again after everything else that can be done by then, when the machine may be quiet.
"""

from collections.abc import Mapping
from typing import Any

from snakemake.scheduling import greedy

LAST = 1 << 30
AFTER_ALL = -1
"""The priority of another attempt; Snakemake's lowest is 0."""

SchedulerSettings = greedy.SchedulerSettings


class Scheduler(greedy.Scheduler):  # type: ignore[misc]
    """Greedy by priority first, by order second; another attempt after all first ones."""

    def job_reward(self, job: Any, input_sizes: Mapping[Any, int]) -> tuple[int, int, int]:
        """Rank a job: the highest is started first."""
        order = int(job.resources.get("order", LAST))
        return job.priority if job.attempt == 1 else AFTER_ALL, -job.attempt, -order
