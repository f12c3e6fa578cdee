"""Test that a command reproduces the picture in README.md, and the times in the picture, from the recorded runs."""

import re
import subprocess
import sys

import pytest

from sipsched.paths import PROJECT_ROOT

PICTURE = PROJECT_ROOT / "docs" / "picture.svg"
NUMBER = re.compile(r"-?\d+\.\d+")
NAMES = re.compile(r"\b[mp][0-9a-f]{10}\b")
"""Names of markers and clip paths in an SVG file. The names are hashes, which the comparison ignores."""


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    path = tmp_path_factory.mktemp("picture") / "picture.svg"
    script = PROJECT_ROOT / "docs" / "picture.py"
    subprocess.run([sys.executable, str(script), str(path)], check=True, cwd=PROJECT_ROOT)
    return path.read_text()


def test_the_command_reproduces_the_picture(made):
    kept = PICTURE.read_text()
    assert "Made by: .venv/bin/python docs/picture.py." in kept
    assert len(kept) < 200_000
    new, old = (NAMES.sub("name", text) for text in (made, kept))
    assert NUMBER.sub("0", new) == NUMBER.sub("0", old)
    # allow 0.02, because another CPU may round the last digit of a coordinate differently
    result, expected = (list(map(float, NUMBER.findall(text))) for text in (new, old))
    assert result == pytest.approx(expected, abs=0.02)


def test_the_times_in_the_readme_are_computed(made):
    readme = " ".join((PROJECT_ROOT / "README.md").read_text().split())
    described = re.search(r"<desc>(.*?)</desc>", made, re.DOTALL)[1].replace("\u202f", " ")
    computed = set(re.findall(r"[\d ]+ to [\d ]+ µs", described))
    printed = set(re.findall(r"(?<=than)[\d ]+ to [\d ]+ µs", readme))
    assert len(printed) == 2
    assert printed <= computed
    assert "](docs/picture.svg)" in readme
