"""The parts of the page that compares kernels. The page has the form of the page `modes`, but compares kernels."""

from sipsched.pages.modes.message_time import parts_figures, parts_table
from sipsched.pages.modes.percent_lower import answer, figure, measured, tables
from sipsched.pages.modes.settings import table as settings_table

__all__ = [
    "answer",
    "figure",
    "measured",
    "parts_figures",
    "parts_table",
    "settings_table",
    "tables",
]
