"""Tests on the embedded testbed: real proxy, real sockets, real eBPF. They need root and `fab provision`."""

import dataclasses
import math
import os
import platform
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sipsched.measure import acquisition
from sipsched.plan import config
from sipsched.testbed import local, provision, vm
from sipsched.testbed.inventory import Testbed, load_testbed

Measure = Callable[..., Path]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "live" in item.path.parts:
            item.add_marker(pytest.mark.live)
    # what is left is looked at when all others have run
    items.sort(key=lambda item: item.path.stem == "test_nothing_left")


@pytest.fixture(scope="session", autouse=True)
def live_machine() -> None:
    if platform.system() != "Linux" or os.geteuid() != 0:
        pytest.skip("needs root on Linux: network namespaces and eBPF")
    missing = [name for name in ("kamailio", "sipp", "sshd") if shutil.which(name) is None]
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)}; run: fab provision")


TIMING_RULES = (
    *("rate_error", "ks_excess", "cv_error", "lateness_p99_us"),
    *("generator_cpu_share", "steal_share"),
)


@pytest.fixture(scope="session")
def campaign() -> config.Config:
    """Short runs with little warm-up."""
    whole = config.load_config()
    return dataclasses.replace(
        whole, load=dataclasses.replace(whole.load, duration_s=5.0, warmup_s=0.2)
    )


@pytest.fixture(scope="session")
def testbed(live_machine: None) -> Iterator[Testbed]:
    yield load_testbed("local")
    local.take_down()


@pytest.fixture(scope="session")
def guest(live_machine: None) -> Iterator[Testbed]:
    """Boot one guest for all tests; the first time, build its image."""
    bed = load_testbed("vm")
    provision.prepare_machine(bed, say=lambda line: None)
    vm.bring_up(bed, say=lambda line: None)
    provision.provision(bed, say=lambda line: None)
    yield bed
    vm.take_down()


@pytest.fixture
def measure(campaign: config.Config, testbed: Testbed, tmp_path: Path) -> Measure:
    """Measure a run into a folder of this test.

    What is checked are counts; the machine of the test may be busy with something else. So the
    verdict's rules on timing apply only where `timing` asks for them.
    """

    def measure_one(
        sut: str = "kamailio-udp",
        threads: int = 4,
        cps: int = 200,
        rep: int = 1,
        bed: Testbed = testbed,
        probe: str = "auto",
        timing: bool = False,
        mode: str = "default",
        cores: int = 1,
        **load: Any,
    ) -> Path:
        tolerant = dict.fromkeys(() if timing else TIMING_RULES, config.Limits(math.inf, math.inf))
        settings = dataclasses.replace(
            campaign,
            probe=probe,
            load=dataclasses.replace(campaign.load, **load),
            validity={**campaign.validity, **tolerant},
        )
        run = config.Run(bed.name, sut, mode, cores, threads, cps, rep)
        return acquisition.measure(run, settings, bed, tmp_path / "raw")

    return measure_one
