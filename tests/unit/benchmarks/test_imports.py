"""Test that every benchmark can be imported, because the other tests run only a few benchmarks."""

import importlib.util
from pathlib import Path

import pytest

from sipsched.paths import PROJECT_ROOT

BENCHMARKS = sorted((PROJECT_ROOT / "benchmarks").glob("*.py"))


@pytest.mark.parametrize("path", BENCHMARKS, ids=lambda path: path.stem)
def test_a_benchmark_can_be_imported(path: Path) -> None:
    spec = importlib.util.spec_from_file_location(f"imported_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    spec.loader.exec_module(importlib.util.module_from_spec(spec))
