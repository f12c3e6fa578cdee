"""Predict how the capacity of each deployment of the proxy grows with the number of cores, by simulation."""

from pathlib import Path

from sipsched import scripting
from sipsched.analysis.capacity.deployments import speedups
from sipsched.measure import prediction
from sipsched.plan import config
from sipsched.records import fitted
from sipsched.records.speedups import write_speedups

with scripting.one_line_errors(snakemake.log[0]):
    campaign = config.parse_config(snakemake.config)
    model = fitted.read_fitted(Path(snakemake.input.fit))
    capacities = prediction.predict_deployments(model, campaign)
    write_speedups(speedups(capacities), Path(snakemake.output.speedups))
