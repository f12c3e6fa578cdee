rule parse_run:
    input:
        run=NEEDS.record_for("messages.nc"),
    output:
        messages=f"{RESULTS}/runs/{tuples.RUN_PATTERN}/messages.nc",
    log:
        f"logs/parse/{tuples.RUN_PATTERN}.log",
    conda:
        "../envs/analysis.yaml"
    resources:
        forked=1,
        machine=1,
    params:
        schema_version=versions.MESSAGES_VERSION,
    message:
        "Parse the trace of a run into one row per message."
    script:
        "../scripts/parse_run.py"


rule summarise_run:
    input:
        run=NEEDS.record_for("summary.nc.zst"),
        messages=f"{RESULTS}/runs/{tuples.RUN_PATTERN}/messages.nc",
    output:
        summary=f"{RESULTS}/runs/{tuples.RUN_PATTERN}/summary.nc.zst",
    log:
        f"logs/summarise/{tuples.RUN_PATTERN}.log",
    conda:
        "../envs/analysis.yaml"
    resources:
        forked=1,
        machine=1,
    params:
        schema_version=versions.SUMMARY_VERSION,
    message:
        "Summarise the messages of a run."
    script:
        "../scripts/summarise_run.py"


rule reduce_windows:
    input:
        run=NEEDS.record_for("windows.nc"),
        messages=f"{RESULTS}/runs/{tuples.RUN_PATTERN}/messages.nc",
    output:
        windows=f"{RESULTS}/runs/{tuples.RUN_PATTERN}/windows.nc",
    log:
        f"logs/windows/{tuples.RUN_PATTERN}.log",
    conda:
        "../envs/analysis.yaml"
    resources:
        forked=1,
        machine=1,
    params:
        schema_version=versions.WINDOWS_VERSION,
    message:
        "Compute statistics per window from the messages of a run that compares modes."
    script:
        "../scripts/reduce_windows.py"


if PLAN.reduced:

    ruleorder: unpack_reduced > parse_run
    ruleorder: unpack_reduced > summarise_run
    ruleorder: unpack_reduced > reduce_windows

    # One job unpacks all reduced records. With one job per record, the imports of Python modules would take most of the time.
    rule unpack_reduced:
        input:
            runs=NEEDS.reduced_records,
        output:
            messages=[f"{RESULTS}/runs/{run.path}/messages.nc" for run in PLAN.reduced],
            summaries=[
                f"{RESULTS}/runs/{run.path}/summary.nc.zst" for run in PLAN.reduced
            ],
            windows=[
                f"{RESULTS}/runs/{run.path}/windows.nc"
                for run in PLAN.reduced
                if is_comparison(run.mode)
            ],
        log:
            f"logs/parse/{RAW}-reduced.log",
        benchmark:
            f"{RESULTS}/benchmarks/unpack.tsv"
        conda:
            "../envs/analysis.yaml"
        resources:
            forked_for_pages=1,
            machine=1,
        params:
            schema_versions=(
                versions.MESSAGES_VERSION,
                versions.SUMMARY_VERSION,
                versions.WINDOWS_VERSION,
            ),
        message:
            "Unpack the reduced records of this campaign."
        script:
            "../scripts/unpack_reduced.py"


checkpoint look_at_runs:
    input:
        crossings=NEEDS.study_crossings,
        summaries=NEEDS.looked_at,
    output:
        look=f"{RESULTS}/{{study}}/{{testbed}}/look~{{rep}}.json",
    log:
        "logs/look/{study}-{testbed}-{rep}.log",
    benchmark:
        f"{RESULTS}/benchmarks/look/{{study}}-{{testbed}}-{{rep}}.tsv"
    # Run this job early, because the file of this job decides which measurements follow.
    priority: 102
    conda:
        "../envs/analysis.yaml"
    resources:
        machine=1,
    params:
        results=lambda _: str(RESULTS),
        precision=NEEDS.study_precision,
        schema_version=versions.SUMMARY_VERSION,
    message:
        "Decide which points of {wildcards.study} on {wildcards.testbed} need more repetitions."
    script:
        "../scripts/look_at_runs.py"


rule combine_summaries:
    input:
        crossings=NEEDS.study_crossings,
        summaries=NEEDS.study_summaries,
        # The script does not read the windows. They are an input, because each page that reads the summary also reads
        # the windows.
        windows=NEEDS.study_windows,
    output:
        # `update` keeps the existing summary, because the job reads the summary and adds the new runs.
        summary=update(f"{RESULTS}/{{study}}/{{testbed}}/summary.nc"),
    log:
        "logs/combine/{study}-{testbed}.log",
    benchmark:
        f"{RESULTS}/benchmarks/combine/{{study}}-{{testbed}}.tsv"
    conda:
        "../envs/analysis.yaml"
    resources:
        forked_for_pages=1,
        machine=1,
    params:
        results=lambda _: str(RESULTS),
        precision=NEEDS.study_precision,
        schema_version=versions.SUMMARY_VERSION,
    message:
        "Combine the summaries of all runs of {wildcards.study} on {wildcards.testbed}."
    script:
        "../scripts/combine_summaries.py"
