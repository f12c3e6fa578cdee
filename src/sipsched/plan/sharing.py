"""The distribution of a study's runs among testbeds with the same hardware."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from sipsched.paths import RUN_FILE


@dataclass(frozen=True)
class Sharing:
    """The twins of a campaign, which are testbeds with the same hardware that share the runs of each study.

    A single twin measures all runs of a block: all SUTs and modes with the same cores, threads, load and repetition. If
    a twin has already recorded a block, the block stays with this twin.

    Attributes
    ----------
    twins
        Names of the twins. Without twins, every testbed measures every run.
    aside
        Names of the twins that do not measure now. All other twins measure the blocks of these twins.
    recorded
        Function that returns whether the file of a run or of a search exists, from its path in the folder of records.
    """

    twins: tuple[str, ...] = ()
    aside: frozenset[str] = frozenset()
    recorded: Callable[[Path], bool] = field(default=lambda _: False, compare=False)

    def concerns(self, testbed: str) -> bool:
        """Return True if a testbed shares its runs with another testbed."""
        return testbed in self.twins

    @property
    def _at_work(self) -> tuple[str, ...]:
        return tuple(name for name in self.twins if name not in self.aside)

    def measures(self, paths: Iterable[Path], turn: int) -> str:
        """Return the testbed that measures a block of runs (all runs with equal cores, threads, load and repetition).

        Parameters
        ----------
        paths
            Paths of the block's runs, relative to the folder of a testbed.
        turn
            Number of the block. The twins measure consecutive blocks in turn.

        Returns
        -------
        str
            Name of the twin that has recorded the whole block. For unrecorded blocks, the twins take turns.
        """
        wanted = tuple(paths)
        for name in self.twins:
            if all(self.recorded(Path(name, path, RUN_FILE)) for path in wanted):
                return name
        return self._at_work[turn % len(self._at_work)]

    def searches(self, path: Path) -> str:
        """Return the testbed whose capacity search sets the loads of all testbeds with the same hardware.

        Parameters
        ----------
        path
            Path of the search, relative to the folder of a testbed.
        """
        for name in self.twins:
            if self.recorded(Path(name, path)):
                return name
        return self._at_work[0]


UNSHARED = Sharing()
"""The value for a campaign without twins, in which every testbed measures every run."""
