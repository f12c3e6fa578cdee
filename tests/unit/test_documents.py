"""Test the links between the Markdown files of the repository."""

import re
from pathlib import Path

import pytest

from sipsched.paths import PROJECT_ROOT

DOCUMENTS = sorted(
    path
    for pattern in ("*.md", "docs/**/*.md", "config/**/*.md", "raw/*.md", "recorded/*.md")
    for path in PROJECT_ROOT.glob(pattern)
)


def anchors(text: str) -> set[str]:
    """Return the anchors of a page's headings, as GitHub and MyST make them."""
    outside_code = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.+)$", outside_code, re.MULTILINE)
    return {
        re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-") for heading in headings
    }


@pytest.mark.parametrize(
    "document", DOCUMENTS, ids=lambda path: str(path.relative_to(PROJECT_ROOT))
)
def test_every_link_leads_to_a_file_and_a_heading(document: Path) -> None:
    broken = []
    for link in re.findall(r"\]\(([^)\s]+)\)", document.read_text()):
        if ":" in link:
            continue
        file, _, anchor = link.partition("#")
        target = document.parent / file if file else document
        if not target.is_file() or (anchor and anchor not in anchors(target.read_text())):
            broken.append(link)
    assert broken == []


def test_the_evaluation_guide_has_the_number_of_recorded_runs_and_searches() -> None:
    raw = PROJECT_ROOT / "recorded" / "raw"
    text = (PROJECT_ROOT / "docs" / "evaluation.md").read_text()
    runs = sum(1 for _ in raw.rglob("run.json"))
    others = sum(
        1 for name in ("crossing", "capacity~*", "noise") for _ in raw.rglob(f"{name}.json")
    )
    assert f"{runs} records, 0 damaged; {others} records of searches and noise" in text
