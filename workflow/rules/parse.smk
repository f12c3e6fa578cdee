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
        summary=f"{RESULTS}/runs/{settings.RUN_PATTERN}/summary.nc",
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


rule combine_summaries:
    input:
        crossings=study_crossings,
        summaries=study_summaries,
        # where a study's summary is, its windows are: pages look for them beside it
        windows=study_windows,
    output:
        summary=f"{RESULTS}/{{study}}/{{testbed}}/summary.nc",
    log:
        "logs/combine/{study}-{testbed}.log",
    resources:
        machine=1,
    params:
        schema_version=versions.SUMMARY_VERSION,
    script:
        "../scripts/combine_summaries.py"
