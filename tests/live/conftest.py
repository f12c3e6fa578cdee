"""Runs on the embedded testbed and on a guest."""

import dataclasses
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers import TIMING_RULES

from sipsched.measure import acquisition
from sipsched.plan import config
from sipsched.testbed import provision, vm
from sipsched.testbed.inventory import Testbed, load_testbed

Measure = Callable[..., Path]


@pytest.fixture(scope="session", autouse=True)
def on_live_machine(live_machine: None) -> None:
    """Skip all of them elsewhere."""


@pytest.fixture(scope="session")
def campaign() -> config.Config:
    """Short runs with little warm-up."""
    whole = config.load_config()
    return dataclasses.replace(
        whole, load=dataclasses.replace(whole.load, duration_s=5.0, warmup_s=0.2)
    )


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
        mode_s: float = 4.0,
        washout_s: float | None = None,
        **load: Any,
    ) -> Path:
        tolerant = dict.fromkeys(() if timing else TIMING_RULES, config.Limits(math.inf, math.inf))
        settings = dataclasses.replace(
            campaign,
            probe=probe,
            load=dataclasses.replace(campaign.load, **load),
            crossover=dataclasses.replace(campaign.crossover, mode_s=mode_s, washout_s=washout_s),
            validity={**campaign.validity, **tolerant},
        )
        run = config.Run(bed.name, sut, mode, cores, threads, cps, rep)
        return acquisition.measure(run, settings, bed, tmp_path / "raw")

    return measure_one
