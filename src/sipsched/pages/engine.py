"""An engine of papermill that runs a notebook by IPython in this process.

A kernel of Jupyter, a process of its own, would load for seconds what is loaded here.
"""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output
from nbformat import v4
from papermill.engines import Engine, NotebookExecutionManager, papermill_engines
from traitlets.config import Config

from sipsched.errors import StableError

NAME = "this process"
INJECTED = "injected-parameters"
"""Tag of the cell that papermill adds, with the values of parameters."""


class ThisProcess(Engine):  # type: ignore[misc]
    """Runs the cells one after the other and keeps what they show."""

    @classmethod
    def execute_managed_notebook(
        cls, nb_man: NotebookExecutionManager, kernel_name: str, **options: Any
    ) -> None:
        """Run it.

        Raises
        ------
        StableError
            An error in a cell, by its number in the stored notebook.
        """
        number = 0
        with _shell() as shell:
            for index, cell in enumerate(nb_man.nb.cells):
                injected = INJECTED in cell.metadata.get("tags", ())
                number += not injected
                if cell.cell_type != "code":
                    continue
                nb_man.cell_start(cell, index)
                error = _run(shell, cell)
                if error is not None:
                    nb_man.cell_exception(cell, index)
                    first = next((line for line in cell.source.splitlines() if line.strip()), "")
                    place = f"cell {'of parameters' if injected else number} ({first})"
                    what = " ".join(str(error).split())
                    raise StableError(f"{place}: {type(error).__name__}: {what}") from None
                nb_man.cell_complete(cell, index)


@contextmanager
def _shell() -> Iterator[InteractiveShell]:
    """Give an IPython of its own, without the history and the settings of whoever runs it."""
    with tempfile.TemporaryDirectory(prefix="sipsched-report-") as scratch:
        settings = Config({"HistoryManager": {"enabled": False}})
        try:
            yield InteractiveShell.instance(config=settings, ipython_dir=scratch)
        finally:
            InteractiveShell.clear_instance()


def _run(shell: InteractiveShell, cell: Any) -> BaseException | None:
    """Run a cell and keep what it showed; give the error that ended it.

    Raises
    ------
    KeyboardInterrupt
        Somebody interrupted it: no error of the cell.
    """
    # inside the trap, which would else put the shell's own display hook in place of that which keeps
    with shell.display_trap, capture_output() as shown:
        result = shell.run_cell(cell.source, store_history=False)  # type: ignore[no-untyped-call]
    error: BaseException | None = result.error_before_exec or result.error_in_exec
    if isinstance(error, KeyboardInterrupt):
        raise error
    printed = (("stdout", shown.stdout), ("stderr", shown.stderr))
    cell.outputs = [
        v4.new_output("stream", name=name, text=text)  # type: ignore[no-untyped-call]
        for name, text in printed
        if text
    ] + [
        v4.new_output("display_data", data=each.data, metadata=each.metadata)  # type: ignore[no-untyped-call]
        for each in shown.outputs
    ]
    return error


papermill_engines.register(NAME, ThisProcess)
