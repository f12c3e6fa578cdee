"""An engine of papermill that runs a notebook with IPython in this process.

A Jupyter kernel is a separate process that takes seconds to load the libraries again.
"""

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from IPython.core.formatters import DisplayFormatter
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output
from papermill.engines import Engine, NotebookExecutionManager, papermill_engines
from traitlets.config import Config

from sipsched.errors import StableError
from sipsched.pages.parts import Foreign, Part, Printed, Prose

NAME = "this process"
INJECTED = "injected-parameters"
"""Tag of the cell that papermill adds, with the values of parameters."""


class ThisProcess(Engine):  # type: ignore[misc]
    """Runs the cells one after the other and keeps the parts that they show."""

    @classmethod
    def execute_managed_notebook(
        cls,
        nb_man: NotebookExecutionManager,
        kernel_name: str,
        *,
        shown: dict[int, list[Part]],
        **options: Any,
    ) -> None:
        """Run a notebook.

        Parameters
        ----------
        shown
            Receives the parts that each cell shows, by the index of the cell.

        Raises
        ------
        StableError
            A cell raised an error. The message has the number of the cell in the stored notebook.
        """
        number = 0
        with _shell() as shell:
            for index, cell in enumerate(nb_man.nb.cells):
                injected = INJECTED in cell.metadata.get("tags", ())
                number += not injected
                if cell.cell_type != "code":
                    continue
                nb_man.cell_start(cell, index)
                shown[index], error = _run(shell, cell.source)
                if error is not None:
                    nb_man.cell_exception(cell, index)
                    first = next((line for line in cell.source.splitlines() if line.strip()), "")
                    place = f"cell {'of parameters' if injected else number} ({first})"
                    what = " ".join(str(error).split())
                    raise StableError(f"{place}: {type(error).__name__}: {what}") from None
                nb_man.cell_complete(cell, index)


@contextmanager
def _shell() -> Iterator[InteractiveShell]:
    """Make an IPython shell without the user's history and settings."""
    with tempfile.TemporaryDirectory(prefix="sipsched-report-") as scratch:
        settings = Config({"HistoryManager": {"enabled": False}})
        try:
            yield InteractiveShell.instance(config=settings, ipython_dir=scratch)
        finally:
            InteractiveShell.clear_instance()


class _Keeper(DisplayFormatter):
    """Keeps shown parts as they are, and turns other objects into parts."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.kept: list[Part] = []

    def format(
        self, obj: Any, include: Any = None, exclude: Any = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Keep an object, and return nothing for IPython to show."""
        if isinstance(obj, Part):
            self.kept.append(obj)
        else:
            forms, _ = super().format(obj, include, exclude)  # type: ignore[no-untyped-call]
            self.kept.append(_foreign(forms))
        return {}, {}


def _foreign(forms: Mapping[str, Any]) -> Part:
    """Make a part from IPython's representations of another object."""
    if "application/vnd.jupyter.widget-view+json" in forms:
        return Prose("The controls work in JupyterLab.")
    if "text/html" in forms:
        return Foreign(forms["text/html"])
    return Printed(forms.get("text/plain", ""))


def _run(shell: InteractiveShell, source: str) -> tuple[list[Part], BaseException | None]:
    """Run a cell; return its shown parts and printed text, and the error that the cell raised.

    Raises
    ------
    KeyboardInterrupt
        The user interrupted the cell.
    """
    keeper = _Keeper(parent=shell)
    shell.display_formatter = keeper
    # inside the trap, because the trap would replace the display hook of `capture_output` by the shell's own hook
    with shell.display_trap, capture_output() as printed:
        result = shell.run_cell(source, store_history=False)  # type: ignore[no-untyped-call]
    error: BaseException | None = result.error_before_exec or result.error_in_exec
    if isinstance(error, KeyboardInterrupt):
        raise error
    texts = [Printed(text) for text in (printed.stdout, printed.stderr) if text]
    return [*keeper.kept, *texts], error


papermill_engines.register(NAME, ThisProcess)
