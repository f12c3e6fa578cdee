"""Tests that the reader accepts the output of the program that measures idle CPUs."""

import json
import shutil
import subprocess

import numpy as np
import pytest
import synthetic

from sipsched.errors import StableError
from sipsched.paths import PROJECT_ROOT
from sipsched.records.noise_record import read_noise

SOURCE = PROJECT_ROOT / "hardware" / "scheduler" / "jitter.c"


def test_numbers_of_a_cpu(tmp_path):
    path = tmp_path / "noise.json"
    path.write_text(synthetic.sealed(synthetic.noise()))
    (cpu,) = read_noise(path).cpus
    assert cpu.gaps_us.tolist() == [3, 1000]
    assert cpu.gaps_at_ns == (4_000_000, 8_000_000)
    assert cpu.resolution_ns == 50
    assert cpu.lost_share == pytest.approx(1_003_000 / 2e9)


def test_another_version_a_broken_and_a_missing_file_are_refused(tmp_path):
    path = tmp_path / "noise.json"
    with pytest.raises(StableError, match="no such file"):
        read_noise(path)
    path.write_text("{")
    with pytest.raises(StableError, match="not JSON"):
        read_noise(path)
    path.write_text(synthetic.sealed(synthetic.noise() | {"schema_version": 1}))
    with pytest.raises(StableError, match="expected 2, found 1; move the file away"):
        read_noise(path)


@pytest.fixture(scope="module")
def jitter(tmp_path_factory):
    if shutil.which("gcc") is None:
        pytest.skip("no gcc")
    program = tmp_path_factory.mktemp("jitter") / "jitter"
    flags = ("-O2", "-std=gnu11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror")
    subprocess.run(["gcc", *flags, str(SOURCE), "-o", str(program)], check=True)
    return program


def test_the_program_lists_its_gaps_in_order_and_within_its_time(jitter, tmp_path):
    done = subprocess.run([jitter, "0.2"], check=True, capture_output=True, text=True)
    path = tmp_path / "noise.json"
    noise = synthetic.noise(**(json.loads(done.stdout) | {"steal_s": 0.0}))
    path.write_text(synthetic.sealed(noise))
    (cpu,) = read_noise(path).cpus
    assert cpu.duration_s >= 0.2
    assert cpu.resolution_ns < 100_000
    at_us = np.array(cpu.gaps_at_ns) / 1e3
    assert len(at_us) == len(cpu.gaps_us)
    assert (cpu.gaps_us > 1).all()
    ends = at_us + cpu.gaps_us
    assert (ends[:-1] <= at_us[1:] + 1e-3).all()
    assert 0 <= cpu.lost_share < 1


@pytest.mark.parametrize("arguments", [(), ("0",), ("x",), ("61",), ("1", "2")])
def test_the_program_says_how_to_use_it(jitter, arguments):
    done = subprocess.run([jitter, *arguments], check=False, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.startswith("jitter: usage: jitter SECONDS")
