"""Jobs in processes that are forked from a server process, which has already imported the modules of the scripts.

The imports of a job take at least half a second of CPU time. The testbed idles during this time, so the imports of
36,000 runs would take hours.
"""

import multiprocessing
import os
import runpy
import signal
import subprocess
import threading
import time
from collections.abc import Container
from multiprocessing import resource_tracker
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from sipsched.errors import TransientError
from sipsched.scripting import hold_interrupts

MEASURED = ("sipsched.measure.acquisition", "sipsched.measure.crossing_search")
REDUCED = ("sipsched.records.messages", "sipsched.records.run_summary", "sipsched.records.windows")
DRAWN = (
    *("sipsched.analysis.advice", "sipsched.analysis.run_table", "sipsched.pages.tables"),
    *("sipsched.pages.html", "sipsched.pages.plots", "papermill"),
    *("sipsched.pages.engine", "sipsched.pages.render"),
)
FORKED, FORKED_FOR_PAGES = "forked", "forked_for_pages"
"""Resources of rules with forked jobs: jobs are always forked, or only if nothing is measured. They have one thread."""
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
NAME_LENGTH = 15
ATTEMPTS, PAUSE_S = 20, 0.1
NOT_KNOWN = 255
"""The exit code that multiprocessing reports if the fork server was killed and the real exit code is lost."""
KILLED = (
    "the process that starts the jobs of Snakemake was killed; the same command repeats this job"
)


class Forks:
    """The fork server of an invocation. It starts with the first job."""

    def __init__(self, pages: bool = False) -> None:
        """Prepare the server; `pages` is true if jobs of pages are forked, too."""
        self._marks = {FORKED, FORKED_FOR_PAGES} if pages else {FORKED}
        self._context = multiprocessing.get_context("forkserver")
        # A child imports the main module of this program (snakemake.cli), and this module.
        own = ["snakemake.cli", __name__]
        self._context.set_forkserver_preload([*own, *MEASURED, *REDUCED, *(DRAWN if pages else ())])
        # Starting a process collects the exit codes of all finished processes. Each exit code can be read only once.
        self._lock = threading.Lock()
        self._ended = False

    def takes(self, resources: Container[str]) -> bool:
        """Return whether the jobs of a rule with these resources are forked."""
        return any(mark in resources for mark in self._marks)

    def end(self) -> None:
        """Prevent further starts. When this returns, every script that was about to start has its process."""
        with self._lock:
            self._ended = True

    def run(self, script: Path, job: object) -> None:
        """Run a script to its end.

        Parameters
        ----------
        script
            A Python file.
        job
            The script's object `snakemake`.

        Raises
        ------
        CalledProcessError
            The exit code is not 0, or `end` was called before the start.
        TransientError
            The fork server was killed. The next script starts another one.
        """
        with self._lock:
            if self._ended:
                raise subprocess.CalledProcessError(-signal.SIGTERM, [str(script)])
            # Snakemake sets the same variables for a job of one thread. Libraries read them at their import.
            os.environ.update(dict.fromkeys(THREADS, "1"))
            # ensure_running() unblocks SIGINT in this thread. SIGINT is blocked again, so that a new process prints no
            # traceback.
            resource_tracker.ensure_running()
            hold_interrupts()
            process = self._start(script, job)
        wait([process.sentinel])
        with self._lock:
            process.join()
        if process.exitcode == NOT_KNOWN:
            raise TransientError(KILLED)
        if process.exitcode:
            raise subprocess.CalledProcessError(process.exitcode, [str(script)])

    def _start(self, script: Path, job: object) -> BaseProcess:
        for _ in range(ATTEMPTS):
            process = self._context.Process(target=_run, args=(script, job))
            try:
                process.start()
            except (EOFError, ConnectionError):
                # A killed server may still exist for a moment. After its end, the next attempt starts another server.
                time.sleep(PAUSE_S)
            else:
                return process
        raise TransientError(KILLED)


def _run(script: Path, job: Any) -> None:
    # This sets the name that `ps` shows.
    Path("/proc/self/comm").write_text(script.stem[:NAME_LENGTH])
    runpy.run_path(str(script), {"snakemake": job}, "__main__")
