"""Test the measurement of noise on the embedded testbed."""

from pathlib import Path

import pytest

from sipsched.measure.noise import measure_noise
from sipsched.records.noise_record import read_noise
from sipsched.testbed.inventory import Testbed

pytestmark = pytest.mark.quiet


def test_every_cpu_of_the_sps_is_measured(testbed: Testbed, tmp_path: Path) -> None:
    path = tmp_path / "raw" / "local" / "noise.json"
    measure_noise(testbed, path, duration_s=0.5)
    noise = read_noise(path)
    assert [cpu.cpu for cpu in noise.cpus] == list(testbed.sps.cpus)
    for cpu in noise.cpus:
        assert 0.5 <= cpu.duration_s < 1
        assert cpu.gaps_us.size
    assert list(path.parent.iterdir()) == [path]
