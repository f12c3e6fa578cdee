"""Run a Jupyter notebook, and write the HTML page of the notebook.

A parameter of the notebook gets the input, param or wildcard of the rule with the same name.
"""

from pathlib import Path

from sipsched import scripting
from sipsched.pages import render


def paths(files):
    """Return an input of the Snakemake job as a path, or as a list of paths if the input is a list."""
    return Path(files) if isinstance(files, str) else [Path(file) for file in files]


log = snakemake.log[0]
inputs = {name: paths(files) for name, files in snakemake.input.items()}
notebook = inputs.pop("notebook")
# A notebook must have the parameter `summary`. Without the parameter, the page would show the notebook's default study.
required = {name: inputs[name] for name in ("summary",) if name in inputs}
offered = {**snakemake.wildcards, **inputs, **snakemake.params}
with scripting.one_line_errors(log), scripting.stderr_into(log):
    page, outline = Path(snakemake.output.html), Path(snakemake.output.outline)
    render.render(notebook, page, outline, required, offered, snakemake.params.overview)
