"""The picture of README.md is what its command makes of the recorded runs, and its sentence is computed."""

import re
import subprocess
import sys

import pytest

from sipsched.paths import PROJECT_ROOT

PICTURE = PROJECT_ROOT / "docs" / "picture.svg"
NUMBER = re.compile(r"-?\d+\.\d+")
NAMES = re.compile(r"\b[mp][0-9a-f]{10}\b")
"""Of markers and clip paths: hashes of their content."""


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    path = tmp_path_factory.mktemp("picture") / "picture.svg"
    script = PROJECT_ROOT / "docs" / "picture.py"
    subprocess.run([sys.executable, str(script), str(path)], check=True, cwd=PROJECT_ROOT)
    return path.read_text()


def test_the_picture_is_what_its_command_makes(made):
    kept = PICTURE.read_text()
    assert "Made by: .venv/bin/python docs/picture.py." in kept
    assert len(kept) < 200_000
    new, old = (NAMES.sub("name", text) for text in (made, kept))
    assert NUMBER.sub("0", new) == NUMBER.sub("0", old)
    # another CPU may round the last digit of a place the other way
    found, expected = (list(map(float, NUMBER.findall(text))) for text in (new, old))
    assert found == pytest.approx(expected, abs=0.02)


def test_its_sentence_in_the_readme_is_one_that_is_computed(made):
    readme = " ".join((PROJECT_ROOT / "README.md").read_text().split())
    told = re.search(r"<desc>(.*?)</desc>", made, re.DOTALL)[1].replace("\u202f", " ")
    quoted = re.findall(r"“([^”]+)”", readme)
    assert any(sentence in told for sentence in quoted), told
    assert "](docs/picture.svg)" in readme
