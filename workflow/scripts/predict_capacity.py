"""Predict what numbers of cores and threads carry, by the simulator as it was fitted."""

from pathlib import Path

from sipsched import scripting
from sipsched.measure import prediction
from sipsched.plan import config
from sipsched.records import fitted
from sipsched.records.prediction import write_capacity

with scripting.one_line_errors(snakemake.log[0]):
    campaign = config.parse_config(snakemake.config)
    model = fitted.read_fitted(Path(snakemake.input.fit))
    found = prediction.predict_capacity(model, campaign)
    write_capacity(found, Path(snakemake.output.capacity))
