"""Fixtures for runs on the embedded testbed and on a guest."""

import dataclasses
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from helpers import Measure, build_native

from sipsched.measure import acquisition
from sipsched.plan import config
from sipsched.plan.run import Run
from sipsched.plan.sut import Sut
from sipsched.testbed import local, provision, vm
from sipsched.testbed.inventory import Testbed, load_testbed
from sipsched.validity.rules import SHARED_MACHINE, Limits


@pytest.fixture(scope="session", autouse=True)
def on_live_machine(live_machine: None) -> None:
    """Skip these tests on machines that cannot measure."""


@pytest.fixture(scope="session")
def campaign() -> config.Config:
    """Return the configuration of the default campaign with short runs and a short warm-up."""
    whole = config.load_config()
    return dataclasses.replace(
        whole, load=dataclasses.replace(whole.load, duration_s=5.0, warmup_s=0.2)
    )


@pytest.fixture(scope="session")
def guest(live_machine: None) -> Iterator[Testbed]:
    """Boot one guest (a virtual machine) for all tests, and build the guest's image the first time."""
    bed = load_testbed("vm")
    provision.prepare_machine(bed, say=lambda line: None)
    vm.bring_up(bed, say=lambda line: None)
    provision.provision(bed, say=lambda line: None)
    yield bed
    vm.take_down()


@pytest.fixture(scope="session")
def dispatcher(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the dispatchers as provisioning does."""
    return build_native("dispatcher", tmp_path_factory.mktemp("native"))


@pytest.fixture
def up(testbed: Testbed) -> Iterator[None]:
    """Start the embedded testbed before the test, and stop it afterwards."""
    local.ensure_up(testbed)
    yield
    local.take_down()


@pytest.fixture
def measure(campaign: config.Config, testbed: Testbed, tmp_path: Path) -> Measure:
    """Return a function that measures a run, with the record in a folder of this test.

    Other programs and a hypervisor may keep the test's machine busy, and most tests check only counts. The verdict's
    rules on timing, and the exclusion of windows with stolen CPU time, therefore apply only with `timing`.
    """

    # The function has twelve parameters, because each test sets only the few that it needs.
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
        mode_s: float = 4.0,
        washout_s: float | str = "auto",
        suts: Mapping[str, Sut] | None = None,
        **load: Any,
    ) -> Path:
        tolerant = dict.fromkeys(() if timing else SHARED_MACHINE, Limits(math.inf, math.inf))
        settings = dataclasses.replace(
            campaign,
            probe=probe,
            load=dataclasses.replace(campaign.load, **load),
            crossover=dataclasses.replace(
                campaign.crossover,
                mode_s=mode_s,
                washout_s=washout_s,
                steal_share=campaign.crossover.steal_share if timing else 1.0,
            ),
            validity={**campaign.validity, **tolerant},
            suts=suts or campaign.suts,
        )
        run = Run(bed.name, sut, mode, cores, threads, cps, rep)
        return acquisition.measure(run, settings, bed, tmp_path / "raw")

    return measure_one
