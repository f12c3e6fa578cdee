# Snakemake finds this file without an option. The workflow is in workflow/Snakefile, where other workflows expect a module.
include: "workflow/Snakefile"


# Snakemake forgets the default target of an included file.
workflow.default_target = "all"
