"""Scripts of jobs in processes that are forked from one which has imported what scripts import.

A job is a process of its own, and its imports take a Python half a second and more of CPU time: between two runs
that is time in which a testbed idles, and with 36,000 runs it is hours of what is made of them.
"""

import multiprocessing
import os
import runpy
import signal
import subprocess
import threading
from multiprocessing import resource_tracker
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

from sipsched.scripting import hold_interrupts

MEASURED = ("sipsched.measure.acquisition", "sipsched.measure.crossing_search")
REDUCED = ("sipsched.records.messages", "sipsched.records.summary", "sipsched.records.windows")
DRAWN = (
    *("sipsched.analysis.advice", "sipsched.analysis.run_table", "sipsched.pages.tables"),
    *("sipsched.pages.drawing", "matplotlib.backends.backend_svg", "nbconvert"),
    *("papermill", "sipsched.pages.engine", "sipsched.pages.render"),
)
OF_RUNS = frozenset(
    {"measure_run", "find_crossing", "parse_run", "summarise_run", "reduce_windows"}
)
"""Rules of a job a run, each of one thread."""
OF_PAGES = frozenset(
    {
        *("combine_summaries", "unpack_reduced", "render_report", "render_document"),
        *("render_testbed", "render_messages", "render_index"),
    }
)
"""Rules of pages: forked, too, where nothing is measured, from a process that has their imports beside the others."""
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
NAME_LENGTH = 15


class Forks:
    """Runs scripts of Snakemake's rules; the process that is forked starts with the first of them."""

    def __init__(self, pages: bool = False) -> None:
        """Say whether jobs of pages are among them."""
        self.rules = OF_RUNS | OF_PAGES if pages else OF_RUNS
        self._context = multiprocessing.get_context("forkserver")
        # a child begins with what the program began with, and with this
        own = ["snakemake.cli", __name__]
        self._context.set_forkserver_preload([*own, *MEASURED, *REDUCED, *(DRAWN if pages else ())])
        # an exit code is read once, and whoever starts a process asks for those of all
        self._lock = threading.Lock()
        self._ended = False

    def end(self) -> None:
        """Start no more; a script that was about to start has its process when this comes back."""
        with self._lock:
            self._ended = True

    def run(self, script: Path, job: object) -> None:
        """Run a script to its end.

        Parameters
        ----------
        script
            A file of Python.
        job
            What it has as `snakemake`.

        Raises
        ------
        CalledProcessError
            Its exit code is not 0, or it was not started since this has ended.
        """
        process = self._context.Process(target=_run, args=(script, job))
        with self._lock:
            if self._ended:
                raise subprocess.CalledProcessError(-signal.SIGTERM, [str(script)])
            # as Snakemake has it for a job of one thread; read when a library is loaded
            os.environ.update(dict.fromkeys(THREADS, "1"))
            # it lets this thread take Ctrl-C, and what is started here would answer with a traceback
            resource_tracker.ensure_running()
            hold_interrupts()
            process.start()
        wait([process.sentinel])
        with self._lock:
            process.join()
        if process.exitcode:
            raise subprocess.CalledProcessError(process.exitcode, [str(script)])


def _run(script: Path, job: Any) -> None:
    # what `ps` shows
    Path("/proc/self/comm").write_text(script.stem[:NAME_LENGTH])
    runpy.run_path(str(script), {"snakemake": job}, "__main__")
