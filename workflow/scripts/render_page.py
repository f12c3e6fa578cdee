"""Run a notebook and write its page.

The notebook gets each input, param and wildcard of the rule for which the notebook has a parameter.
"""

from pathlib import Path

from sipsched import scripting
from sipsched.pages import render


def paths(files):
    """Return an input as a path, or as a list of paths if the input is a list."""
    return Path(files) if isinstance(files, str) else [Path(file) for file in files]


log = snakemake.log[0]
inputs = {name: paths(files) for name, files in snakemake.input.items()}
notebook = inputs.pop("notebook")
# Require the parameter `summary`, because a notebook without this parameter would show its default study.
required = {name: inputs[name] for name in ("summary",) if name in inputs}
offered = {**snakemake.wildcards, **inputs, **snakemake.params}
with scripting.one_line_errors(log), scripting.stderr_into(log):
    page, outline = Path(snakemake.output.html), Path(snakemake.output.outline)
    render.render(notebook, page, outline, required, offered)
