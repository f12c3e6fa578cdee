"""Predict the capacity for various numbers of cores and threads, with the simulator that was fitted to a testbed."""

from pathlib import Path

from sipsched import scripting
from sipsched.measure import prediction
from sipsched.plan import config
from sipsched.records import fitted
from sipsched.records.prediction import read_capacity, write_capacity

with scripting.one_line_errors(snakemake.log[0]):
    campaign = config.parse_config(snakemake.config)
    model = fitted.read_fitted(Path(snakemake.input.fit))
    recorded = [read_capacity(Path(path)) for path in snakemake.input.recorded]
    predicted = next(
        (one for one in recorded if prediction.still_carried(one, model, campaign)), None
    ) or prediction.predict_capacity(model, campaign)
    write_capacity(predicted, Path(snakemake.output.capacity))
