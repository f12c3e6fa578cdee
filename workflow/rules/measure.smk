# Measuring is not computing: a rule without inputs, whose output is never removed nor made twice.
rule measure_run:
    input:
        check_run,
    output:
        run=update(f"{RAW}/{settings.RUN_PATTERN}/run.json"),
    log:
        f"logs/measure/{settings.RUN_PATTERN}.log",
    priority: 100
    # what was disturbed only, after everything else: src/snakemake_{executor,scheduler}_plugin_campaign
    retries: scripting.ATTEMPTS - 1
    threads: controller_threads
    resources:
        **ONE_A_TESTBED,
        machine=machine_shares,
        order=measure_order,
        attempt=attempt_number,
        expected_s=expected_seconds,
    script:
        "../scripts/measure_run.py"


checkpoint find_crossing:
    input:
        check_search,
    output:
        crossing=update(f"{RAW}/{settings.CROSSING_PATTERN}"),
    log:
        f"logs/measure/{settings.CROSSING_PATTERN}.log",
    priority: 101
    threads: controller_threads
    resources:
        **ONE_A_TESTBED,
        machine=machine_shares,
    script:
        "../scripts/find_crossing.py"
