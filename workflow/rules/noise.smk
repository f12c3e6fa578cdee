# This rule measures once how often programs are interrupted on the idle testbed. Snakemake never removes or repeats the
# output, as for a run.
rule measure_noise:
    output:
        noise=update(f"{RAW}/{{testbed}}/noise.json"),
    log:
        "logs/noise/{testbed}.log",
    priority: 101
    conda:
        "../envs/measure.yaml"
    threads: CLAIMS.threads
    resources:
        **CLAIMS.turns,
        measures=1,
        machine=CLAIMS.machine,
    message:
        "Measure the interruptions of the idle CPUs of {wildcards.testbed}."
    script:
        "../scripts/measure_noise.py"
