"""The version numbers of the file formats (docs/data-format.md), and the version of the code.

The versions are in a separate module, because each start of the workflow needs the versions but not xarray.
"""

import subprocess
from pathlib import Path

from sipsched.paths import PROJECT_ROOT

VERSION = "1.0.0"
"""Version of the package. pyproject.toml reads this line; CITATION.cff and CHANGELOG.md repeat the version."""
MESSAGES_VERSION = 3
"""Format version of `messages.nc`. After a change of this version, the workflow computes every `messages.nc` again."""
SUMMARY_VERSION = 12
"""Format version of `summary.nc` and `summary.nc.zst`, raised if the numbers in these files change."""
WINDOWS_VERSION = 3
"""Format version of `windows.nc`, raised if the numbers in this file change."""
CAPACITY_VERSION = 2
"""Format version of the files `results/capacity/TESTBED.json`, raised if the numbers in these files change."""
PREDICTION_VERSION = 1
"""Format version of files with predictions and fits of the simulator, raised if the numbers change."""


def code_version(root: Path = PROJECT_ROOT) -> str:
    """Return the version of the code as text, which consists of the package's version and the git commit.

    Returns
    -------
    str
        Version such as `1.0.0-g5898eb6`, with the suffix `-dirty` if files differ from the commit. Without a git
        repository, the result is only the version of the package.
    """
    if not (root / ".git").exists():
        return VERSION
    command = ["git", "-C", str(root), "describe", "--always", "--exclude=*", "--dirty"]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    return f"{VERSION}-g{done.stdout.strip()}" if done.returncode == 0 else VERSION
