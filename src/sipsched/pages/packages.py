"""The parts of the page that compares two processor packages with one. The page has the form of the page `kernels`."""

from sipsched.pages.kernels import (
    answer,
    figure,
    measured,
    parts_figures,
    parts_table,
    settings_table,
    tables,
)

__all__ = [
    "answer",
    "figure",
    "measured",
    "parts_figures",
    "parts_table",
    "settings_table",
    "tables",
]
