"""The check that twins (testbeds that share the runs of a campaign) have the same hardware."""

import itertools
from collections.abc import Iterable
from pathlib import Path

from sipsched.errors import StableError
from sipsched.paths import RUN_FILE
from sipsched.records.run_document import RunDocument, read_run

ALIKE = ("kernel", "cpu_model", "clocksource", "governor", "versions")
"""Facts about hosts, such as the CPU model, that must be equal on all twins for hosts of the same role."""
RUNS = f"*/*/cores~*/threads~*/cps~*/rep~*/{RUN_FILE}"


def check_twins(raw: Path, twins: Iterable[str]) -> None:
    """Raise an error if the records of twins (testbeds that share runs) show different hardware or kernels.

    Raises
    ------
    StableError
        The message names the host and the difference.
    """
    recorded = {name: document for name in twins if (document := _any_record(raw / name))}
    for (one, first), (other, second) in itertools.combinations(recorded.items(), 2):
        for role in ("uac", "sps", "uas"):
            for what in ALIKE:
                values = [
                    getattr(getattr(run_document.hosts, role), what)
                    for run_document in (first, second)
                ]
                if values[0] != values[1]:
                    raise StableError(
                        f"config: twins: {one} and {other} have different hardware according to their records: {what} "
                        f"of the {role} is {values[0]!r} and {values[1]!r}; remove one of them from twins"
                    )


def _any_record(folder: Path) -> RunDocument | None:
    path = next(folder.glob(RUNS), None)
    return read_run(path.parent) if path else None
