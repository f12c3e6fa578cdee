# Check the configuration files strictly, before Snakemake reads them.
from sipsched import scripting
from sipsched.plan import config as settings, run as tuples

CONFIG_FILES = ["config/config.yaml", *workflow.configfiles]

if workflow.is_main_process:
    with scripting.one_line_errors():
        settings.check_files(CONFIG_FILES)
