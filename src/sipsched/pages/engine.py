"""A papermill engine that runs a notebook with IPython in this process.

The usual engine starts a Jupyter kernel, a separate process that needs seconds to load the libraries.
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
"""Tag of the cell that papermill adds to a notebook to set the parameters."""


class ThisProcess(Engine):  # type: ignore[misc]
    """The papermill engine that runs the cells of a notebook in order and keeps the page parts that the cells show."""

    @classmethod
    def execute_managed_notebook(
        cls,
        nb_man: NotebookExecutionManager,
        kernel_name: str,
        *,
        shown: dict[int, list[Part]],
        **options: Any,
    ) -> None:
        """Run all code cells of a notebook in one IPython shell.

        Parameters
        ----------
        shown
            Receives the page parts that each cell shows. The key is the index of the cell.

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
    """Yield an IPython shell that ignores the user's history and settings, for one notebook."""
    with tempfile.TemporaryDirectory(prefix="sipsched-report-") as scratch:
        settings = Config({"HistoryManager": {"enabled": False}})
        try:
            yield InteractiveShell.instance(config=settings, ipython_dir=scratch)
        finally:
            InteractiveShell.clear_instance()


class _Keeper(DisplayFormatter):
    """An IPython display formatter that keeps page parts unchanged and converts other objects into page parts."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.kept: list[Part] = []

    def format(
        self, obj: Any, include: Any = None, exclude: Any = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Keep a displayed object as a page part. Return no representation, so that IPython itself shows nothing."""
        if isinstance(obj, Part):
            self.kept.append(obj)
        else:
            forms, _ = super().format(obj, include, exclude)  # type: ignore[no-untyped-call]
            self.kept.append(_foreign(forms))
        return {}, {}


def _foreign(forms: Mapping[str, Any]) -> Part:
    """Return a page part made from the representations that IPython has computed, such as HTML and text."""
    if "application/vnd.jupyter.widget-view+json" in forms:
        return Prose("The controls work in JupyterLab.")
    if "text/html" in forms:
        return Foreign(forms["text/html"])
    return Printed(forms.get("text/plain", ""))


def _run(shell: InteractiveShell, source: str) -> tuple[list[Part], BaseException | None]:
    """Run a cell. Return the page parts and the text that the cell showed, and its error or None.

    Raises
    ------
    KeyboardInterrupt
        The user interrupted the cell.
    """
    keeper = _Keeper(parent=shell)
    shell.display_formatter = keeper
    # `capture_output` must start inside `display_trap`, which would otherwise replace the hook of `capture_output`.
    with shell.display_trap, capture_output() as printed:
        result = shell.run_cell(source, store_history=False)  # type: ignore[no-untyped-call]
    error: BaseException | None = result.error_before_exec or result.error_in_exec
    if isinstance(error, KeyboardInterrupt):
        raise error
    texts = [Printed(text) for text in (printed.stdout, printed.stderr) if text]
    return [*keeper.kept, *texts], error


papermill_engines.register(NAME, ThisProcess)
