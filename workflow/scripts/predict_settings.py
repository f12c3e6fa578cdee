"""Predict the result of every planned run on a testbed, with the simulator that was fitted to this testbed."""

from pathlib import Path

from sipsched import scripting
from sipsched.measure import prediction
from sipsched.plan import config
from sipsched.records import crossing, fitted
from sipsched.records.prediction import open_predictions, write_predictions

with scripting.one_line_errors(snakemake.log[0]):
    campaign = config.parse_config(snakemake.config)
    crossings = crossing.read_crossings(campaign.records, campaign.searches())
    name = snakemake.wildcards.testbed
    runs = [run for run in campaign.runs(crossings) if run.testbed == name]
    model = fitted.read_fitted(Path(snakemake.input.fit))
    recorded = [open_predictions(Path(path)) for path in snakemake.input.recorded]
    predicted = next(
        (one for one in recorded if prediction.still_predicted(one, model, runs, campaign)), None
    ) or prediction.predict(model, runs, campaign)
    write_predictions(predicted, Path(snakemake.output.predicted))
