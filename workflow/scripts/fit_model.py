"""Fit the parameters of the simulator to a testbed's measured runs with the default scheduler settings."""

from pathlib import Path

from sipsched import scripting
from sipsched.analysis import model_fit
from sipsched.plan import config
from sipsched.records import fitted

with scripting.one_line_errors(snakemake.log[0]):
    campaign = config.parse_config(snakemake.config)
    records = [Path(path).parent for path in snakemake.input.runs]
    noise = next((Path(path) for path in snakemake.input.noise), None)
    model = model_fit.fit_campaign(records, noise, campaign.suts)
    fitted.write_fitted(model, Path(snakemake.output.fit))
