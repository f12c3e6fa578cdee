# The workflow of sipsched, from a configuration to pages. The rules are in workflow/rules, one file per step.
from snakemake.utils import min_version

min_version("9.19")


include: "workflow/rules/files.smk"


configfile: "config/config.yaml"


include: "workflow/rules/common.smk"
include: "workflow/rules/measure.smk"
include: "workflow/rules/noise.smk"
include: "workflow/rules/predict_papers.smk"
include: "workflow/rules/parse.smk"
include: "workflow/rules/capacity.smk"
include: "workflow/rules/predict.smk"
include: "workflow/rules/pages.smk"
include: "workflow/rules/publish.smk"
include: "workflow/rules/end.smk"


rule all:
    default_target: True
    input:
        PLAN.pages,
        PLAN.index,
