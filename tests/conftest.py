"""Fixtures for tests on the embedded testbed, which need root and `fab provision`."""

import os
import platform
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from sipsched.testbed import local
from sipsched.testbed.inventory import Testbed, load_testbed

ON_A_TESTBED = {"live", "faults"}
"""Folders whose tests measure on a testbed."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--renew",
        action="store_true",
        help="write the files in tests/golden from the present pages",
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if ON_A_TESTBED & set(item.path.parts):
            item.add_marker(pytest.mark.live)
    # Run the search for leftovers last, because this search checks that no test left processes, links or groups behind.
    items.sort(key=lambda item: item.path.stem == "test_nothing_left")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Yield a folder on a file system of 64 KiB, on which tests can produce the error of a full disk."""
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        pytest.skip(f"cannot mount a small file system: {done.stderr.strip()}")
    yield tmp_path
    subprocess.run(["umount", str(tmp_path)], check=True)


@pytest.fixture(scope="session")
def live_machine() -> None:
    if platform.system() != "Linux" or os.geteuid() != 0:
        pytest.skip("needs root on Linux: network namespaces and eBPF")
    missing = [name for name in ("kamailio", "sshd") if shutil.which(name) is None]
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)}; run: fab provision")


@pytest.fixture(scope="session")
def testbed(live_machine: None) -> Iterator[Testbed]:
    yield load_testbed("local")
    local.take_down()
