"""Distribution of a study's runs among testbeds of the same hardware."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from sipsched.paths import RUN_FILE


@dataclass(frozen=True)
class Sharing:
    """The twins of a campaign: testbeds of the same hardware, each of which measures a part of every study.

    One twin measures all runs of a block: all SUTs and modes at the same cores, threads, load and repetition. A block
    that is recorded stays with the twin that measured it.

    Attributes
    ----------
    twins
        Names of the twins. Empty: every testbed measures every run.
    aside
        Names of twins that measure nothing now. The other twins measure their blocks.
    records
        Folder of the records.
    """

    twins: tuple[str, ...] = ()
    aside: frozenset[str] = frozenset()
    records: Path = Path("raw")

    def concerns(self, testbed: str) -> bool:
        """Report whether a testbed has a twin."""
        return testbed in self.twins

    @property
    def _at_work(self) -> tuple[str, ...]:
        return tuple(name for name in self.twins if name not in self.aside)

    def measures(self, paths: Iterable[Path], turn: int) -> str:
        """Return the twin that measures a block.

        Parameters
        ----------
        paths
            Paths of the block's runs, relative to the folder of a testbed.
        turn
            Number of the block. Consecutive numbers are assigned to the twins in turn.

        Returns
        -------
        str
            Name of the twin that has recorded the whole block. If no twin has, the twin whose turn it is.
        """
        wanted = tuple(paths)
        for name in self.twins:
            if all((self.records / name / path / RUN_FILE).is_file() for path in wanted):
                return name
        return self._at_work[turn % len(self._at_work)]

    def searches(self, path: Path) -> str:
        """Return the twin that searches the loads for all twins.

        Parameters
        ----------
        path
            Path of the search, relative to the folder of a testbed.
        """
        for name in self.twins:
            if (self.records / name / path).is_file():
                return name
        return self._at_work[0]


UNSHARED = Sharing()
"""The value without twins: every testbed measures every run."""
