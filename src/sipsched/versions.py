"""Versions of the datasets' formats (docs/data-format.md) and of the code.

The versions are in a separate module, because the workflow needs them at each start without importing xarray.
"""

import subprocess
from importlib.metadata import version as package_version
from pathlib import Path

from sipsched.paths import PROJECT_ROOT

MESSAGES_VERSION = 3
"""Version of `messages.nc`. A change of its numbers raises the version, and every run is parsed again."""
SUMMARY_VERSION = 12
"""Version of `summary.nc` and `summary.nc.zst`. A change of their numbers raises the version."""
WINDOWS_VERSION = 3
"""Version of `windows.nc`. A change of its numbers raises the version."""
CAPACITY_VERSION = 1
"""Version of each testbed's `capacity.json`. A change of its numbers raises the version."""
PREDICTION_VERSION = 1
"""Version of the simulator's predictions and fits. A change of their numbers raises the version."""


def code_version(root: Path = PROJECT_ROOT) -> str:
    """Return the version of the code: the version of the package, and the commit.

    Returns
    -------
    str
        Version such as `0.1.0-g5898eb6`, with the suffix `-dirty` if files differ from the commit. Without a git
        repository, only the version of the package.
    """
    package = package_version("sipsched")
    if not (root / ".git").exists():
        return package
    command = ["git", "-C", str(root), "describe", "--always", "--exclude=*", "--dirty"]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    return f"{package}-g{done.stdout.strip()}" if done.returncode == 0 else package
