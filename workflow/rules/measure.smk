# Rules that measure have no input files, so Snakemake never removes or repeats their outputs. These rules have no
# directive `benchmark`, because the records contain the times, and Snakemake's benchmark would use CPU time during the
# measurement. The plugins read three resources: `measures` marks rules that measure on a testbed, `expected_s` marks
# rules that measure a run, and `forked` marks rules whose jobs start fast, as forks of a process with all imports
# (src/snakemake_executor_plugin_campaign).
rule measure_run:
    input:
        check_run,
    output:
        run=update(f"{RAW}/{tuples.RUN_PATTERN}/run.json"),
    log:
        tuples.RUN_LOG,
    priority: 100
    # The plugins repeat only disturbed runs, after all other jobs (src/snakemake_{executor,scheduler}_plugin_campaign).
    retries: scripting.ATTEMPTS - 1
    conda:
        "../envs/measure.yaml"
    threads: CLAIMS.threads
    resources:
        **CLAIMS.turns,
        measures=1,
        forked=1,
        machine=CLAIMS.machine,
        order=CLAIMS.order,
        attempt=CLAIMS.attempt,
        expected_s=CLAIMS.expected_s,
    message:
        "Measure {wildcards.sut} in mode {wildcards.mode} at {wildcards.cps} cps on {wildcards.testbed}, repetition {wildcards.rep}."
    script:
        "../scripts/measure_run.py"


checkpoint find_crossing:
    input:
        check_search,
    output:
        crossing=update(f"{RAW}/{tuples.CROSSING_PATTERN}"),
    log:
        tuples.CROSSING_LOG,
    priority: 101
    conda:
        "../envs/measure.yaml"
    threads: CLAIMS.threads
    resources:
        **CLAIMS.turns,
        measures=1,
        forked=1,
        machine=CLAIMS.machine,
    message:
        "Search for the load at which {wildcards.sut} in mode {wildcards.mode} drops more than the limit on {wildcards.testbed}."
    script:
        "../scripts/find_crossing.py"
