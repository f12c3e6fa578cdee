"""Snakemake's greedy scheduler, extended so that measurements start in a fixed order.

- Measurements start in the order of the plan (`sipsched.plan.study.Study.runs`). Snakemake alone would start equal jobs
  in any order. The resource `order` of a job is its position in the plan.
- A disturbed measurement is repeated after all other jobs, because the machine may be quiet by then.
- Measurements on an unreachable testbed wait for the next attempt to reach the testbed (`sipsched.measure.aside`). The
  last attempt follows when all other jobs have ended.
"""

import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

from snakemake.scheduling import greedy

from sipsched.measure.aside import Aside
from snakemake_executor_plugin_campaign.internals import (
    look_for_jobs,
    measures,
    plan_of,
    runs_jobs,
    start_jobs_without_limit,
)

LAST = 1 << 30
LOOK_AGAIN_S = 1.0
AFTER_ALL = -1
"""Priority of a repeated measurement, below Snakemake's lowest priority (0), so that all other jobs start earlier."""

SchedulerSettings = greedy.SchedulerSettings


class Scheduler(greedy.Scheduler):  # type: ignore[misc]
    """A scheduler that prefers jobs that have not failed, then a high priority, then an early position in the plan."""

    def __post_init__(self) -> None:  # noqa: D105
        super().__post_init__()
        start_jobs_without_limit(self.dag.workflow)
        self._timer = threading.Timer(0, int)

    def select_jobs(
        self,
        selectable_jobs: Sequence[Any],
        remaining_jobs: Sequence[Any],
        available_resources: Mapping[str, Any],
        input_sizes: Mapping[Any, int],
    ) -> Sequence[Any]:
        """Return the jobs that Snakemake starts now. Measurements on unreachable testbeds are held back."""
        workflow = self.dag.workflow
        aside = plan_of(workflow).aside
        waiting = _by_testbed(selectable_jobs, aside)
        held = {job for jobs in waiting.values() for job in jobs}
        ready = [job for job in selectable_jobs if job not in held]
        rest = (remaining_jobs, available_resources, input_sizes)
        chosen: Sequence[Any] = super().select_jobs(ready, *rest) if ready else []
        if chosen or not waiting:
            return chosen
        if runs_jobs(workflow.scheduler):
            self._look_again(workflow.scheduler)
            return chosen
        given_up = [job for name in waiting if aside.is_given_up(name) for job in waiting[name]]
        if given_up:
            # The executor starts none of the jobs on testbeds that were given up, so limits on resources do not matter.
            return given_up
        for name in waiting:
            aside.try_for_the_last_time(name)
        firsts = [
            max(jobs, key=lambda job: self.job_reward(job, input_sizes))
            for jobs in waiting.values()
        ]
        chosen = super().select_jobs(firsts, *rest)
        return chosen

    def _look_again(self, scheduler: Any) -> None:
        """Make Snakemake look for jobs again after a second, because runs wait for a testbed.

        If a timer already runs, do nothing, because several timers would only cost CPU time.
        """
        if not self._timer.is_alive():
            self._timer = threading.Timer(LOOK_AGAIN_S, look_for_jobs, [scheduler])
            self._timer.daemon = True
            self._timer.start()

    def job_reward(self, job: Any, input_sizes: Mapping[Any, int]) -> tuple[int, int, int]:
        """Return the rank of a job. The job with the highest rank starts first."""
        order = int(job.resources.get("order", LAST))
        return job.priority if job.attempt == 1 else AFTER_ALL, -job.attempt, -order


def _by_testbed(jobs: Sequence[Any], aside: Aside) -> dict[str, list[Any]]:
    """Return the measurements that must wait for an unreachable testbed, by the name of the testbed."""
    now, waiting = time.monotonic(), dict[str, list[Any]]()
    for job in jobs:
        name = job.wildcards_dict["testbed"] if measures(job) else ""
        if name and aside.waits(name, now):
            waiting.setdefault(name, []).append(job)
    return waiting
