"""Snakemake's greedy scheduler, with three things more: measurements in the order of their plan, and again last.

By itself Snakemake starts equal jobs in any order. A comparison wants the runs of a pair next to each
other and in turned order in every second block; `sipsched.plan.config.Study.runs` says which. A job's place
in that order is its resource `order`.

What was disturbed is tried again after everything else that can be done by then, when the machine may be quiet.

What is to be measured on a testbed that is not reached waits (`sipsched.measure.aside`): until it is tried again, and
where nothing else is left to do, until it has been tried for the last time.
"""

import time
from collections.abc import Mapping, Sequence
from typing import Any

from snakemake.scheduling import greedy

from sipsched.measure.aside import Aside
from snakemake_logger_plugin_campaign import MEASURING

LAST = 1 << 30
AFTER_ALL = -1
"""The priority of another attempt; Snakemake's lowest is 0."""

SchedulerSettings = greedy.SchedulerSettings


class Scheduler(greedy.Scheduler):  # type: ignore[misc]
    """Greedy by priority first, by order second; another attempt after all first ones."""

    def select_jobs(
        self,
        selectable_jobs: Sequence[Any],
        remaining_jobs: Sequence[Any],
        available_resources: Mapping[str, Any],
        input_sizes: Mapping[Any, int],
    ) -> Sequence[Any]:
        """Choose what is started now."""
        workflow = self.dag.workflow
        aside: Aside = workflow.globals["ASIDE"]
        waiting = _by_testbed(selectable_jobs, aside)
        held = {job for jobs in waiting.values() for job in jobs}
        ready = [job for job in selectable_jobs if job not in held]
        rest = (remaining_jobs, available_resources, input_sizes)
        chosen: Sequence[Any] = super().select_jobs(ready, *rest) if ready else []
        if chosen or workflow.scheduler.running or not waiting:
            return chosen
        given_up = [job for name in waiting if aside.is_given_up(name) for job in waiting[name]]
        if given_up:
            # none of them is started, so they need no room
            return given_up
        for name in waiting:
            aside.try_for_the_last_time(name)
        firsts = [
            max(jobs, key=lambda job: self.job_reward(job, input_sizes))
            for jobs in waiting.values()
        ]
        chosen = super().select_jobs(firsts, *rest)
        return chosen

    def job_reward(self, job: Any, input_sizes: Mapping[Any, int]) -> tuple[int, int, int]:
        """Rank a job: the highest is started first."""
        order = int(job.resources.get("order", LAST))
        return job.priority if job.attempt == 1 else AFTER_ALL, -job.attempt, -order


def _by_testbed(jobs: Sequence[Any], aside: Aside) -> dict[str, list[Any]]:
    """Put the measurements that have to wait together, by their testbeds."""
    now, found = time.monotonic(), dict[str, list[Any]]()
    for job in jobs:
        name = "" if job.is_group() or job.name not in MEASURING else job.wildcards_dict["testbed"]
        if name and aside.waits(name, now):
            found.setdefault(name, []).append(job)
    return found
