"""Versions: of the datasets' formats (docs/data-format.md), and of the code.

Apart from the modules that read and write the datasets: the workflow needs the numbers each time it
starts, and not xarray.
"""

import subprocess
from importlib.metadata import version as package_version
from pathlib import Path

from sipsched.paths import PROJECT_ROOT

MESSAGES_VERSION = 2
"""Of `messages.nc`, raised when its numbers change: then every run is parsed anew."""
SUMMARY_VERSION = 10
"""Of each `summary.nc` and `summary.nc.zst`, likewise."""
WINDOWS_VERSION = 2
"""Of `windows.nc`, likewise."""
PREDICTION_VERSION = 1
"""Of what the simulator predicts, and of what it is fitted to, likewise."""


def code_version(root: Path = PROJECT_ROOT) -> str:
    """Name the version of the code: of the package, and what git says of the folder.

    Returns
    -------
    str
        Such as `0.1.0-g5898eb6`, with `-dirty` where files differ from the commit; without a git
        repository the package's version alone.
    """
    package = package_version("sipsched")
    if not (root / ".git").exists():
        return package
    command = ["git", "-C", str(root), "describe", "--always", "--exclude=*", "--dirty"]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    return f"{package}-g{done.stdout.strip()}" if done.returncode == 0 else package
