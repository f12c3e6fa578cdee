# This rule simulates the testbed of the papers, and writes a table with the mean values per simulated run.
rule predict_papers:
    input:
        points=str(paths.provided("config/published/points.csv")),
        comparison=str(paths.provided("config/published/comparison.csv")),
        model=str(paths.provided("config/models/opensips-papers.yaml")),
        modes=str(paths.provided("config/modes.yaml")),
        # If this recorded file exists, the job simulates only a grid of settings. If the results for the grid differ from
        # the file, the job simulates everything.
        recorded=[str(path) for path in [paths.RECORDED_PAPERS] if path.exists()],
    output:
        predictions=f"{RESULTS}/predicted/papers.csv",
    log:
        "logs/predict/papers.log",
    benchmark:
        f"{RESULTS}/benchmarks/papers.tsv"
    conda:
        "../envs/measure.yaml"
    # The job occupies all CPUs, so no measurement on this machine runs at the same time.
    threads: PLAN.cpus
    resources:
        machine=1,
    params:
        schema_version=versions.PREDICTION_VERSION,
    message:
        "Simulate the tables and figures of the papers."
    script:
        "../scripts/predict_papers.py"
