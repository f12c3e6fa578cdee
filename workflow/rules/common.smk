# This file makes the plan of this invocation, and the objects of the planner that the rules use (src/sipsched/planner).
import gc
import os
import signal
from datetime import UTC, datetime

import snakemake_logger_plugin_campaign as terminal
from sipsched import paths, versions
from sipsched.pages import outline, progress
from sipsched.plan.crossover import is_comparison
from sipsched.plan.study import TESTBED_PAGES
from sipsched.planner.campaign import Plan
from sipsched.planner.claims import Claims
from sipsched.planner.needs import Needs
from snakemake_executor_plugin_campaign import internals

# Collect garbage rarely, because collection takes a third of the time to build a large DAG (9.4 s instead of 6.6 s for 18,000
# jobs).
gc.set_threshold(200_000, 50, 1000)

ALIVE = scripting.clear_dead_locks()
# Handle SIGINT like SIGTERM, because Snakemake would print a traceback of 90 lines after a second Ctrl-C.
scripting.end_in_order(signal.SIGINT)

with scripting.one_line_errors():
    # The campaign plugins of Snakemake read the variable PLAN, too (src/snakemake_*_plugin_campaign).
    PLAN = Plan.load(
        config, CONFIG_FILES, workflow.resource_settings.cores or os.cpu_count()
    )
NEEDS = Needs(
    PLAN, internals.CurrentWorkflow(workflow, checkpoints), workflow.is_main_process
)
CLAIMS = Claims(PLAN)
for name, limit in CLAIMS.limits.items():
    workflow.register_resource(name, limit)

RAW, RESULTS, REPORTS_IN = PLAN.raw, PLAN.results, PLAN.reports
NOTEBOOKS = paths.provided("notebooks")


wildcard_constraints:
    testbed=r"[A-Za-z0-9_-]+",
    sut=r"[a-z0-9-]+",
    mode=r"[^/]+",
    search=r"crossing|capacity~[0-9.]+~[0-9.]+",
    # Allow no leading zeros, because threads~08 and threads~8 would be two files for the same run.
    cores=r"[1-9][0-9]*",
    threads=r"[1-9][0-9]*",
    cps=r"[1-9][0-9]*",
    rep=r"[1-9][0-9]*",
    study="|".join(PLAN.config.studies),
    page="|".join(TESTBED_PAGES),
    document="|".join(PLAN.config.documents) or "none",


def check_run(wildcards):
    """Raise an error if a run cannot be measured. Return an empty list, because the rule has no input files."""
    with scripting.one_line_errors():
        PLAN.check_run(tuples.Run.from_wildcards(wildcards))
    return []


def check_search(wildcards):
    """Raise an error if a search cannot be made. Return an empty list, because the rule has no input files."""
    with scripting.one_line_errors():
        PLAN.check_search(tuples.Point.from_wildcards(wildcards))
    return []


def outlook_lines():
    """Return one line per testbed, with the progress and the expected end of the measurements."""
    now = datetime.now(UTC)
    return [progress.line(outlook, now) for outlook in PLAN.outlooks()]


# Pass the progress of each testbed to the logger plugin, which prints the progress at the end of a dry run.
if PLUGINS_ARE_INSTALLED and workflow.is_main_process and not PLAN.config.only_measured:
    logger.info("the outlook: snakemake -n", extra=terminal.outlook(outlook_lines))
