# This file finds the Python package sipsched, and checks the configuration files before Snakemake reads them.
import sys
from importlib.util import find_spec
from pathlib import Path

PLUGINS_ARE_INSTALLED = find_spec("snakemake_executor_plugin_campaign") is not None
if not PLUGINS_ARE_INSTALLED:
    RULES = workflow.current_basedir.get_path_or_uri(secret_free=True)
    LIBRARY = Path(RULES).resolve().parents[1].joinpath("src")
    if not LIBRARY.exists():
        sys.exit(
            "error: the workflow of sipsched needs the Python package sipsched, which is not installed; clone the repository "
            "and run in the environment of Snakemake: pip install --editable CLONE"
        )
    # Snakemake passes sys.path to the scripts of the rules, so the scripts also find sipsched.
    sys.path.insert(0, str(LIBRARY))

from sipsched import scripting
from sipsched.plan import config as settings, run as tuples

# If another workflow uses this workflow as a module, the configuration can be in other files.
CONFIG_FILES = ["config/config.yaml", *workflow.configfiles]

if workflow.is_main_process:
    with scripting.one_line_errors():
        settings.check_files(CONFIG_FILES)
    if not PLUGINS_ARE_INSTALLED:
        scripting.say(
            "The Snakemake plugins of sipsched are not installed. So Snakemake starts the jobs in its own order, prints its own "
            "messages, and repeats every failed run. To install the plugins, run: make .venv/ready"
        )
