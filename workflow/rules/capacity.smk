# This rule estimates the capacity of each system from all searches and runs of a testbed. Every page reads capacities from the
# output file, so all pages state the same capacity.
rule estimate_capacities:
    input:
        crossings=NEEDS.testbed_crossings,
        summaries=NEEDS.loaded_summaries,
    output:
        capacities=f"{RESULTS}/capacity/{{testbed}}.json",
    log:
        "logs/capacity/{testbed}.log",
    benchmark:
        f"{RESULTS}/benchmarks/{{testbed}}-capacities.tsv"
    conda:
        "../envs/analysis.yaml"
    resources:
        forked_for_pages=1,
        machine=1,
    params:
        limits=PLAN.limits,
        schema_version=versions.CAPACITY_VERSION,
    message:
        "Estimate the capacity of each system on {wildcards.testbed}."
    script:
        "../scripts/estimate_capacities.py"
