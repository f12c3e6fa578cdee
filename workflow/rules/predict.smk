# These rules fit the simulator to the runs of a testbed in the default mode, and predict other runs. The rules need neither the
# testbed's hosts nor root.
rule fit_model:
    input:
        runs=NEEDS.single_core_records,
        # Snakemake compares modification times, so Snakemake does not notice that an older record has replaced a
        # record. The summaries are an input, because the workflow computes the summaries again after such a
        # replacement.
        summaries=NEEDS.single_core_summaries,
        noise=NEEDS.testbed_noise,
    output:
        fit=f"{RESULTS}/predicted/{{testbed}}/fit.json",
    log:
        "logs/predict/{testbed}-fit.log",
    benchmark:
        f"{RESULTS}/benchmarks/{{testbed}}-fit.tsv"
    conda:
        "../envs/measure.yaml"
    resources:
        forked_for_pages=1,
        machine=1,
    params:
        schema_version=versions.PREDICTION_VERSION,
    message:
        "Fit the simulator to the runs of the default mode on {wildcards.testbed}."
    script:
        "../scripts/fit_model.py"


rule predict_settings:
    input:
        fit=f"{RESULTS}/predicted/{{testbed}}/fit.json",
        crossings=NEEDS.all_crossings,
        # If a recorded prediction has the same fit, the job simulates only one setting, and reuses the other predictions.
        recorded=NEEDS.recorded_prediction("settings.nc"),
    output:
        predicted=f"{RESULTS}/predicted/{{testbed}}/settings.nc",
    log:
        "logs/predict/{testbed}-settings.log",
    benchmark:
        f"{RESULTS}/benchmarks/{{testbed}}-settings.tsv"
    conda:
        "../envs/measure.yaml"
    threads: PLAN.cpus
    resources:
        machine=1,
    params:
        schema_version=versions.PREDICTION_VERSION,
    message:
        "Simulate every run of the campaign on {wildcards.testbed}."
    script:
        "../scripts/predict_settings.py"


rule predict_capacity:
    input:
        fit=f"{RESULTS}/predicted/{{testbed}}/fit.json",
        recorded=NEEDS.recorded_prediction("capacity.json"),
    output:
        capacity=f"{RESULTS}/predicted/{{testbed}}/capacity.json",
    log:
        "logs/predict/{testbed}-capacity.log",
    benchmark:
        f"{RESULTS}/benchmarks/{{testbed}}-capacity.tsv"
    conda:
        "../envs/measure.yaml"
    threads: PLAN.cpus
    resources:
        machine=1,
    params:
        schema_version=versions.PREDICTION_VERSION,
    message:
        "Simulate the capacity of {wildcards.testbed} for other numbers of cores and threads."
    script:
        "../scripts/predict_capacity.py"


# No page requests the output of this rule, because the rule takes minutes. Pages read a recorded copy of the output in
# recorded/predicted instead.
rule predict_speedups:
    input:
        fit=f"{RESULTS}/predicted/{{testbed}}/fit.json",
    output:
        speedups=f"{RESULTS}/predicted/{{testbed}}/speedups.csv",
    log:
        "logs/predict/{testbed}-speedups.log",
    benchmark:
        f"{RESULTS}/benchmarks/{{testbed}}-speedups.tsv"
    conda:
        "../envs/measure.yaml"
    threads: PLAN.cpus
    resources:
        machine=1,
    params:
        schema_version=versions.PREDICTION_VERSION,
    message:
        "Simulate how the deployments of the proxy on {wildcards.testbed} scale with cores."
    script:
        "../scripts/predict_speedups.py"
