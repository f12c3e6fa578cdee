# How quiet the testbed is while nothing runs. As with a run: measured once, never removed, never made again.
rule measure_noise:
    output:
        noise=update(f"{RAW}/{{testbed}}/noise.json"),
    log:
        "logs/noise/{testbed}.log",
    priority: 101
    threads: controller_threads
    resources:
        **ONE_A_TESTBED,
        machine=machine_shares,
    script:
        "../scripts/measure_noise.py"
