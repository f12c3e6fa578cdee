# Files of the configuration, read by us before Snakemake reads them with more trust. No rules in here.
from sipsched import scripting
from sipsched.plan import config as settings

CONFIG_FILES = ["config/config.yaml", *workflow.configfiles]

if workflow.is_main_process:
    with scripting.one_line_errors():
        settings.check_files(CONFIG_FILES)
