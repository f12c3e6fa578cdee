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
        # SEE PEP 562. Each job of the workflow imports sipsched, so importing sipsched must be fast.
        # Modules are therefore imported only when a name is used for the first time.
        if name in __all__:
            return getattr(import_module("sipsched.lab"), name)
        raise AttributeError(f"module 'sipsched' has no attribute {name!r}")
