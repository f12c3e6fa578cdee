"""Tools to measure SIP proxy servers. `sipsched.open` returns the recorded runs (docs/api.md)."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sipsched.lab import Plots, Runs, Watched, open, open_messages, open_watched, quantiles

__all__ = [
    "Plots",
    "Runs",
    "Watched",
    "open",
    "open_messages",
    "open_watched",
    "quantiles",
]

if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        # SEE PEP 562. Names are imported on first use, because each job of the workflow imports this package
        # and must not wait for the import of all its modules.
        if name in __all__:
            return getattr(import_module("sipsched.lab"), name)
        raise AttributeError(f"module 'sipsched' has no attribute {name!r}")
