"""Make all missing measurements and the HTML pages, and report whether every study can be evaluated.

`make reproduce` runs this program. The program runs `snakemake`. If some runs are still missing, the program then makes
the pages of the recorded runs with `snakemake --config only_measured=True`. Finally, the program prints the three
answers of the overview page, the program's running time, and the page to open. The exit code is 0 if the pages exist
and every study has an answer (`sipsched.records.missing.Missing` defines an answer), else 1.
"""

import signal
import subprocess
import sys
import time
from pathlib import Path

ended: list[bool] = []


def end(*_: object) -> None:
    """Record that SIGINT or SIGTERM arrived, so that this program does not start Snakemake again."""
    ended.append(True)


def snakemake(*arguments: str) -> bool:
    """Run Snakemake in this terminal, and return True if Snakemake finished every requested job.

    Snakemake starts with SIGINT blocked, because Ctrl-C during Snakemake's imports would print a traceback. Snakemake
    unblocks SIGINT after the imports (`sipsched.scripting.tell_interrupts`).
    """
    command = [sys.executable, "-m", "snakemake", "--no-hooks", *arguments]
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    with subprocess.Popen(command) as child:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        signal.signal(signal.SIGTERM, lambda number, frame: child.terminate() or end())
        return child.wait() == 0


def answers(limit: float) -> list[str]:
    """Return the answers to the three questions of the overview page as lines of text for each testbed.

    Parameters
    ----------
    limit
        Packet drop rate that defines the capacity, as a share.
    """
    from sipsched.analysis import advice, run_table
    from sipsched.pages import parts
    from sipsched.pages.index import tiles

    results, raw = Path("results").resolve(), Path("raw").resolve()
    files = sorted(results.glob("*/*/summary.nc"))
    if not files:
        return ["There are no answers yet: no study has a summary under results/."]
    known = run_table.known_capacities(sorted(results.glob("capacity/*.json")))
    windows = dict.fromkeys(path for file in files for path in advice.find_windows(file))
    searches = raw.rglob("crossing.json")
    loads = [load for load in advice.read_loads(windows, searches, known) if load.one_instance]
    compared = advice.advise(loads, quantities=())
    overview = tiles.overview(run_table.read_campaigns(files, known), limit, compared, [])
    lines = []
    for testbed in overview.parts:
        assert isinstance(testbed, parts.Several)
        lines += [testbed.heading] if testbed.heading else []
        for part in testbed.parts:
            if isinstance(part, parts.Tiles):
                lines += [f"{tile.question} {tile.value}. {tile.grade}." for tile in part.tiles]
    return lines


def main() -> int:
    """Make all measurements and pages, print the answers, and return the exit code of this program."""
    # These imports come after the handler of SIGINT is set, so that Ctrl-C during the imports prints no traceback.
    from sipsched import scripting
    from sipsched.pages import missing as words
    from sipsched.plan.config import load_config
    from sipsched.records.missing import find_missing
    from sipsched.records.progress import in_minutes

    page = Path("reports/index.html")
    with scripting.one_line_errors():
        config = load_config(Path("config/config.yaml"))
        began = time.time()
        whole = not ended and snakemake()
        jobs_ran = any(log.stat().st_mtime >= began for log in Path("logs").rglob("*.log"))
        # If no job ran, Snakemake refused to start and has printed the reason. A second start would fail for the same
        # reason.
        helps = not ended and jobs_ran and any(config.records.rglob("rep~*/run.json"))
        pages = whole or (helps and snakemake("--config", "only_measured=True"))
        if ended or not (pages or jobs_ran):
            return 1
        if pages:
            took = in_minutes(time.time() - began)
            print(*answers(config.pdr_limit), f"This took {took}.", sep="\n")
            print(f"Open: {page.resolve()}", flush=True)
        missing = find_missing(config, config.records, Path("results"))
        wanted = (*missing.runs, *missing.searches)
        broken = sum(not scripting.may_pass(asked.log) for asked in wanted)
        lines = (words.line(missing, broken), *map(words.no_answer, missing.unanswered))
        for text in filter(None, lines):
            scripting.say(text)
        return int(not pages or bool(missing.unanswered))


signal.signal(signal.SIGINT, end)
if __name__ == "__main__":
    sys.exit(main())
