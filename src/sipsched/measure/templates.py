"""The rendering of files for the hosts from the templates under hardware/."""

from pathlib import Path

import jinja2

from sipsched.paths import PROJECT_ROOT

HARDWARE = PROJECT_ROOT / "hardware"


def render(template: Path, **values: object) -> str:
    """Fill in the variables of a Jinja template, and return the text of the file for the host.

    Parameters
    ----------
    template
        Path below hardware/, such as `proxies/kamailio.cfg.j2`.
    values
        The variables of the template, by name. A missing variable is an error.
    """
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(HARDWARE),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # noqa: S701  configuration files and SIP, no HTML
    )
    return environment.get_template(str(template)).render(values)
