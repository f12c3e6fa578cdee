rule parse_run:
    input:
        run=f"{RAW}/{settings.RUN_PATTERN}/run.json",
    output:
        messages=f"{RESULTS}/runs/{settings.RUN_PATTERN}/messages.nc",
    log:
        f"logs/parse/{settings.RUN_PATTERN}.log",
    resources:
        machine=1,
    params:
        schema_version=versions.MESSAGES_VERSION,
    script:
        "../scripts/parse_run.py"


rule summarise_run:
    input:
        run=f"{RAW}/{settings.RUN_PATTERN}/run.json",
        messages=f"{RESULTS}/runs/{settings.RUN_PATTERN}/messages.nc",
    output:
        summary=f"{RESULTS}/runs/{settings.RUN_PATTERN}/summary.nc.zst",
    log:
        f"logs/summarise/{settings.RUN_PATTERN}.log",
    resources:
        machine=1,
    params:
        schema_version=versions.SUMMARY_VERSION,
    script:
        "../scripts/summarise_run.py"


rule reduce_windows:
    input:
        run=f"{RAW}/{settings.RUN_PATTERN}/run.json",
        messages=f"{RESULTS}/runs/{settings.RUN_PATTERN}/messages.nc",
    output:
        windows=f"{RESULTS}/runs/{settings.RUN_PATTERN}/windows.nc",
    log:
        f"logs/windows/{settings.RUN_PATTERN}.log",
    resources:
        machine=1,
    params:
        schema_version=versions.WINDOWS_VERSION,
    script:
        "../scripts/reduce_windows.py"


if REDUCED:

    ruleorder: unpack_reduced > parse_run
    ruleorder: unpack_reduced > summarise_run
    ruleorder: unpack_reduced > reduce_windows

    # what a reduced record holds, of all such runs in one job: each would load modules longer than it works
    rule unpack_reduced:
        input:
            runs=[f"{RAW}/{run.path}/run.json" for run in REDUCED],
        output:
            messages=[f"{RESULTS}/runs/{run.path}/messages.nc" for run in REDUCED],
            summaries=[f"{RESULTS}/runs/{run.path}/summary.nc.zst" for run in REDUCED],
            windows=[
                f"{RESULTS}/runs/{run.path}/windows.nc"
                for run in REDUCED
                if crossover.is_comparison(run.mode)
            ],
        log:
            f"logs/parse/{RAW}-reduced.log",
        resources:
            machine=1,
        params:
            schema_versions=(
                versions.MESSAGES_VERSION,
                versions.SUMMARY_VERSION,
                versions.WINDOWS_VERSION,
            ),
        script:
            "../scripts/unpack_reduced.py"


checkpoint look_at_runs:
    input:
        crossings=study_crossings,
        summaries=looked_at,
    output:
        look=f"{RESULTS}/{{study}}/{{testbed}}/look~{{rep}}.json",
    log:
        "logs/look/{study}-{testbed}-{rep}.log",
    # what is measured next hangs on it
    priority: 102
    resources:
        machine=1,
    params:
        precision=study_precision,
        schema_version=versions.SUMMARY_VERSION,
    script:
        "../scripts/look_at_runs.py"


rule combine_summaries:
    input:
        crossings=study_crossings,
        summaries=study_summaries,
        # where a study's summary is, its windows are: pages look for them beside it
        windows=study_windows,
    output:
        # what it is joined of is read from it again
        summary=update(f"{RESULTS}/{{study}}/{{testbed}}/summary.nc"),
    log:
        "logs/combine/{study}-{testbed}.log",
    resources:
        machine=1,
    params:
        precision=study_precision,
        schema_version=versions.SUMMARY_VERSION,
    script:
        "../scripts/combine_summaries.py"
