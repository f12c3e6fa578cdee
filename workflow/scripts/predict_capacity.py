"""Predict what numbers of cores and threads carry, by the simulator as it was fitted."""

from pathlib import Path

from sipsched import scripting
from sipsched.measure import prediction
from sipsched.plan import config
from sipsched.records import fitted
from sipsched.records.prediction import read_capacity, write_capacity

with scripting.one_line_errors(snakemake.log[0]):
    campaign = config.parse_config(snakemake.config)
    model = fitted.read_fitted(Path(snakemake.input.fit))
    before = [read_capacity(Path(path)) for path in snakemake.input.recorded]
    found = next(
        (each for each in before if prediction.still_carried(each, model, campaign)), None
    ) or prediction.predict_capacity(model, campaign)
    write_capacity(found, Path(snakemake.output.capacity))
