"""Runs that a study's summary was joined of, `settled.json` beside it: while they are so, they need no job.

A job of Snakemake costs 0.65 ms whether there is something to do or not, and a run has three.
"""

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sipsched.errors import StableError
from sipsched.files import read_json, whole
from sipsched.versions import MESSAGES_VERSION, SUMMARY_VERSION, WINDOWS_VERSION

SCHEMA_VERSION = 1
VERSIONS = [MESSAGES_VERSION, SUMMARY_VERSION, WINDOWS_VERSION]
MADE = ("messages.nc", "windows.nc", "summary.nc.zst")
REMEDY = "delete it and run snakemake"

Stamps = list[int | None]
"""When the record of a run was written and what is made of it, `MADE`; ns since the epoch, None: it is not there."""


@dataclass(frozen=True)
class Settled:
    """What a study's summary was joined of.

    Attributes
    ----------
    stamps
        Of each run, by its path, before it was read.
    attrs
        What its summary says of it in attributes, likewise.
    """

    stamps: Mapping[str, Stamps]
    attrs: Mapping[str, Mapping[str, Any]]

    def unchanged(self, raw: Path, results: Path) -> set[str]:
        """Give the paths of the runs whose files are as they were then."""
        return {path for path, stamp in self.stamps.items() if stamp == stamps(raw, results, path)}


NOTHING = Settled({}, {})


def stamps(raw: Path, results: Path, path: str) -> Stamps:
    """Look when the files of a run were written.

    Parameters
    ----------
    raw, results
        Folder of the records, and of what is computed from them.
    path
        Of the run.
    """
    files = (f"{raw}/{path}/run.json", *(f"{results}/runs/{path}/{name}" for name in MADE))
    return [_written_ns(file) for file in files]


def _written_ns(file: str) -> int | None:
    try:
        # of a large campaign 144,000, for which a Path each would double the time
        return os.stat(file).st_mtime_ns  # noqa: PTH116
    except OSError:
        return None


def settled_file(summary: Path) -> Path:
    """Say where it is noted what a study's summary was joined of."""
    return summary.with_name("settled.json")


def write_settled(summary: Path, settled: Settled) -> None:
    """Write beside a study's summary what it was joined of.

    Raises
    ------
    StableError
        The disk is full or not writable.
    """
    texts: dict[str, int] = {}
    runs = {
        path: [
            stamp,
            {key: texts.setdefault(text, len(texts)) for key, text in settled.attrs[path].items()},
        ]
        for path, stamp in settled.stamps.items()
    }
    document = {
        "schema_version": SCHEMA_VERSION,
        "versions": VERSIONS,
        "summary_bytes": summary.stat().st_size,
        "texts": list(texts),
        "runs": runs,
    }
    with whole(settled_file(summary)) as partial:
        partial.write_text(json.dumps(document))


def read_settled(summary: Path) -> Settled:
    """Read what a study's summary was joined of.

    Of no run where that is not known: nothing is noted beside it, or it is damaged, or of another summary or of other
    versions of the datasets. Then Snakemake looks at all jobs, and the join reads all runs.
    """
    try:
        document = read_json(settled_file(summary), SCHEMA_VERSION, REMEDY)
        if document["versions"] != VERSIONS or document["summary_bytes"] != summary.stat().st_size:
            return NOTHING
        texts, runs = document["texts"], document["runs"]
        return Settled(
            {path: stamp for path, (stamp, _) in runs.items()},
            {
                path: {key: texts[place] for key, place in about.items()}
                for path, (_, about) in runs.items()
            },
        )
    except (StableError, OSError, LookupError, TypeError, ValueError, AttributeError):
        return NOTHING


def settled_runs(raw: Path, results: Path, summaries: Iterable[Path]) -> frozenset[str]:
    """Give the paths of all runs that some studies' summaries were joined of and that are as they were."""
    unchanged = (read_settled(each).unchanged(raw, results) for each in summaries)
    return frozenset().union(*unchanged)
