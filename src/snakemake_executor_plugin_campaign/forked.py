"""A fork server, which has imported the modules of all job scripts, and runs jobs in forked processes.

Without the server, the imports of a job take at least half a second of CPU time, during which the testbed is idle. For
36,000 runs, the imports would take hours.
"""

import gc
import multiprocessing
import os
import resource
import runpy
import signal
import subprocess
import threading
import time
from collections.abc import Container
from datetime import timedelta
from multiprocessing import resource_tracker
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from snakemake.benchmark import BenchmarkRecord

from sipsched.errors import TransientError
from sipsched.scripting import hold_interrupts

MEASURED = ("sipsched.measure.acquisition", "sipsched.measure.crossing_search")
# xarray imports dask.array and scipy.io at its first reading or writing of a file, which takes 0.3 s. The module
# messages imports message_loop when it first parses a trace.
REDUCED = (
    *("sipsched.records.messages", "sipsched.records.run_summary", "sipsched.records.windows"),
    *("sipsched.records.message_loop", "dask.array", "scipy.io"),
)
# papermill imports black when it first sets the parameters of a notebook.
DRAWN = (
    *("sipsched.analysis.advice", "sipsched.analysis.run_table", "sipsched.pages.tables"),
    *("sipsched.pages.html", "sipsched.pages.plots", "papermill", "black"),
    *("sipsched.pages.engine", "sipsched.pages.render"),
)
FORKED, FORKED_FOR_PAGES = "forked", "forked_for_pages"
"""Resources that mark rules whose jobs are forked (always, or only if no job measures) and use one thread."""
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
NAME_LENGTH = 15
ATTEMPTS, PAUSE_S = 20, 0.1
NOT_KNOWN = 255
"""Exit code that multiprocessing reports if the fork server was killed, because the actual exit code is then lost."""
KILLED = (
    "the process that starts the jobs of Snakemake was killed; the same command repeats this job"
)


class Forks:
    """The fork server of this Snakemake process. The first job starts the server."""

    def __init__(self, pages: bool = False) -> None:
        """Prepare the fork server. With `pages`, jobs that make pages are also forked."""
        self._marks = {FORKED, FORKED_FOR_PAGES} if pages else {FORKED}
        self._context = multiprocessing.get_context("forkserver")
        # A child process needs the main module of this program (snakemake.cli) and this module, so the server imports
        # both modules in advance.
        own = ["snakemake.cli", __name__]
        self._context.set_forkserver_preload([*own, *MEASURED, *REDUCED, *(DRAWN if pages else ())])
        # Process.start() and join() both read exit codes of ended processes, and an exit code can be read only once.
        # Without the lock, one thread could lose an exit code to another thread.
        self._lock = threading.Lock()
        self._ended = False

    def takes(self, resources: Container[str]) -> bool:
        """Return whether the jobs of a rule are forked. `resources` contains the names of the rule's resources."""
        return any(mark in resources for mark in self._marks)

    def end(self) -> None:
        """Prevent further starts of scripts. A start that has already begun is completed first."""
        with self._lock:
            self._ended = True

    def run(self, script: Path, job: object, benchmark: Path | None = None) -> None:
        """Run a script in a forked process, and wait for its end.

        Parameters
        ----------
        script
            Path of a Python file.
        job
            The object `snakemake` of the script.
        benchmark
            The benchmark file of the job, if its rule has one.

        Raises
        ------
        CalledProcessError
            The exit code is not 0, or `end` was called before the start of the script.
        TransientError
            The fork server was killed. The next script starts another server.
        """
        with self._lock:
            if self._ended:
                raise subprocess.CalledProcessError(-signal.SIGTERM, [str(script)])
            # Numerical libraries read the variables in THREADS during their import. With the value 1, a library uses
            # one thread, as in jobs that Snakemake starts itself.
            os.environ.update(dict.fromkeys(THREADS, "1"))
            # ensure_running() unblocks SIGINT in this thread. hold_interrupts() blocks SIGINT again. If SIGINT stayed
            # unblocked, a new process would print a traceback after Ctrl-C.
            resource_tracker.ensure_running()
            hold_interrupts()
            process = self._start(script, job, benchmark)
        wait([process.sentinel])
        with self._lock:
            process.join()
        if process.exitcode == NOT_KNOWN:
            raise TransientError(KILLED)
        if process.exitcode:
            raise subprocess.CalledProcessError(process.exitcode, [str(script)])

    def _start(self, script: Path, job: object, benchmark: Path | None) -> BaseProcess:
        for _ in range(ATTEMPTS):
            process = self._context.Process(target=_run, args=(script, job, benchmark))
            try:
                process.start()
            except (EOFError, ConnectionError):
                # A killed fork server may exist for another moment. After its end, the next attempt starts a new fork
                # server.
                time.sleep(PAUSE_S)
            else:
                return process
        raise TransientError(KILLED)


def _run(script: Path, job: Any, benchmark: Path | None) -> None:
    # `ps` shows the content of the file comm as the name of the process.
    Path("/proc/self/comm").write_text(script.stem[:NAME_LENGTH])
    # Exclude the imported modules from garbage collection, which would otherwise search them several times per page.
    gc.freeze()
    began = time.monotonic()
    runpy.run_path(str(script), {"snakemake": job}, "__main__")
    if benchmark:
        _write_benchmark(benchmark, time.monotonic() - began)


def _write_benchmark(path: Path, took_s: float) -> None:
    """Write the time and the memory of this process in Snakemake's format for benchmarks.

    Snakemake itself measures only processes that it has started.
    """
    used = resource.getrusage(resource.RUSAGE_SELF)
    cpu_s = used.ru_utime + used.ru_stime
    values = {
        "s": f"{took_s:.4f}",
        "h:m:s": BenchmarkRecord().timedelta_to_str(timedelta(seconds=took_s)),
        "max_rss": f"{used.ru_maxrss / 1024:.2f}",
        "mean_load": f"{100 * cpu_s / took_s:.2f}",
        "cpu_time": f"{cpu_s:.2f}",
    }
    names = BenchmarkRecord.get_header()
    lines = ("\t".join(names), "\t".join(values.get(name, "NA") for name in names))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n")
