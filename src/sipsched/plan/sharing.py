"""Which of several testbeds of the same hardware measures what of a study."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from sipsched.paths import RUN_FILE


@dataclass(frozen=True)
class Sharing:
    """Twins, which share out the runs of each study among them.

    What is compared stays together: the runs of a block (all SUTs and modes at one number of cores, threads, load and
    repetition) are measured on one of them. What is recorded stays where it is.

    Attributes
    ----------
    twins
        Their names; none: every testbed measures all.
    aside
        Of them, those whose share is given to the others.
    records
        Folder of the records.
    """

    twins: tuple[str, ...] = ()
    aside: frozenset[str] = frozenset()
    records: Path = Path("raw")

    def concerns(self, testbed: str) -> bool:
        """Tell whether a testbed has a twin."""
        return testbed in self.twins

    @property
    def _at_work(self) -> tuple[str, ...]:
        return tuple(name for name in self.twins if name not in self.aside)

    def measures(self, paths: Iterable[Path], turn: int) -> str:
        """Say who measures a block.

        Parameters
        ----------
        paths
            Its runs, relative to a testbed's folder.
        turn
            Blocks of one turn after the other go round.

        Returns
        -------
        str
            Name of the twin that has the whole block recorded, or else whose turn it is.
        """
        wanted = tuple(paths)
        for name in self.twins:
            if all((self.records / name / path / RUN_FILE).is_file() for path in wanted):
                return name
        return self._at_work[turn % len(self._at_work)]

    def searches(self, path: Path) -> str:
        """Say who searches for the loads of all, by the path of the search relative to a testbed's folder."""
        for name in self.twins:
            if (self.records / name / path).is_file():
                return name
        return self._at_work[0]


UNSHARED = Sharing()
"""Every testbed measures all."""
