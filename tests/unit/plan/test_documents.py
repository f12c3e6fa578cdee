"""Tests of reading handwritten YAML files: the reader is strict, and reports each mistake in one line."""

import time
from pathlib import Path
from typing import Any

import pytest

from sipsched.errors import StableError
from sipsched.paths import PROJECT_ROOT
from sipsched.plan import config, documents
from sipsched.testbed.inventory import load_testbed

BOMB = "a: &a [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 10)}]\n"
    for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"a: 1\nb: 2\na: 3\n", "line 3 is not YAML: the key 'a' exists twice"),
        (b"a: {1: x, '1': y}\n", "line 1 is not YAML: the key '1' exists twice"),
        (BOMB.encode(), "line 2 is not YAML: aliases are not read: write out what \\*a means"),
        (b"a: 1\nb: .nan\n", "line 2 is not YAML: .nan is no number that a setting can have"),
        (b"a: -.inf\n", "line 1 is not YAML: -.inf is no number"),
        (b"a: 1.0e+999\n", "line 1 is not YAML: 1.0e\\+999 is no number"),
        (b"a: !!python/object/apply:os.getcwd []\n", "line 1 is not YAML: tags are not read"),
        (b"a: !!bool maybe\n", "line 1 is not YAML: tags are not read"),
        (b"a: 2001-99-99\n", "is not YAML: month must be in 1..12"),
        (b"a: " + b"9" * 5000, "is not YAML: Exceeds the limit"),
        (b"a: 1\nb: \x91\x92\n", "line 2 is not UTF-8 text"),
        (b"a: \x00\n", "is not YAML: unacceptable character"),
        (b"a: [\n", "line 2 is not YAML"),
        (b"[" * 10_000, "is not YAML: nested too deeply"),
        (b"{[a]: b}\n", "line 1 is not YAML: a key has to be text"),
        (b"a: 1\n---\nb: 2\n", "line 2 is not YAML: but found another document"),
        (b"# " + b"x" * documents.LARGEST_BYTES, "bytes; a file of settings has at most"),
    ],
)
def test_each_mistake_is_an_error_in_one_line(
    tmp_path: Path, content: bytes, expected: str
) -> None:
    path = tmp_path / "file.yaml"
    path.write_bytes(content)
    started = time.process_time()
    with pytest.raises(StableError, match=expected) as error:
        documents.read_yaml(path)
    assert str(error.value).startswith(f"{path}: ")
    assert "\n" not in str(error.value)
    assert time.process_time() - started < 10


def test_keys_are_text(tmp_path: Path) -> None:
    path = tmp_path / "file.yaml"
    path.write_text("{by: cores, 1: 2, yes: no}")
    assert documents.read_yaml(path) == {"by": "cores", "1": 2, "yes": False}


@pytest.mark.parametrize(
    ("place", "value", "expected"),
    [
        (("load", "duration_s"), float("nan"), "load.duration_s must be a finite number"),
        (("pdr_limit",), float("inf"), "pdr_limit must be a finite number, found inf"),
        (("suts",), {1: {}}, "suts has a key that is not text: 1"),
    ],
)
def test_unknown_values_are_refused(place: tuple[str, ...], value: Any, expected: str) -> None:
    """Refuse a wrong value from Snakemake's command line, which the strict reader of YAML files does not see."""
    document = documents.read_yaml(PROJECT_ROOT / "config" / "config.yaml")
    inner = document
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    with pytest.raises(StableError, match=expected):
        config.parse_config(document)


def test_a_whole_number_names_one_file_however_it_is_written() -> None:
    document = documents.read_yaml(PROJECT_ROOT / "config" / "config.yaml")
    document["studies"]["load_sweep"] |= {"threads": [8.0], "cps": [1000]}
    runs = config.parse_config(document).studies["load_sweep"].runs("local")
    assert {type(run.threads) for run in runs} == {int}
    assert {"threads~8"} == {run.path.parts[4] for run in runs}


def test_a_yaml_bomb_that_another_reader_expanded_costs_no_time() -> None:
    bomb: Any = "x"
    for _ in range(40):
        bomb = [bomb] * 10
    started = time.process_time()
    with pytest.raises(StableError, match="unknown key 'a'") as error:
        config.parse_config({"a": bomb})
    assert len(str(error.value)) < 300
    assert time.process_time() - started < 10


def test_a_testbed_file_with_a_yaml_bomb_is_refused(tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text(BOMB)
    with pytest.raises(StableError, match=r"bad\.yaml: line 2 is not YAML: aliases are not read"):
        load_testbed("bad", tmp_path)
