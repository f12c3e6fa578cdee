import pytest
import synthetic

from sipsched.pages import drawing, load_sweep
from sipsched.records import summary

DRAWINGS = (
    load_sweep.pdr,
    load_sweep.receive_time,
    load_sweep.service_time,
    load_sweep.receive_parts,
    load_sweep.load,
)


@pytest.mark.parametrize("draw", DRAWINGS)
def test_figures_of_nothing_measured_still_say_so(draw):
    ds = summary.combine([], [synthetic.Run(cps=500), synthetic.Run(cps=1000)])
    figure = draw(ds)
    assert "No valid run" in figure.seen[0]
    assert "Fidelity: unknown" in figure.provenance
    assert figure.svg.startswith("<?xml")


def test_colours_follow_the_reader():
    svg = load_sweep.pdr(summary.combine([], [synthetic.Run()])).svg
    assert "prefers-color-scheme:dark" in svg
    assert "var(--ink)" in svg
    assert not any(marker in svg for marker in drawing.THEME)
