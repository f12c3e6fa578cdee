# What the simulator says of the papers' testbed. Its runs are no records, and nothing is measured.
rule predict_papers:
    input:
        points="config/published/points.csv",
        comparison="config/published/comparison.csv",
        model="config/models/opensips-papers.yaml",
        modes="config/modes.yaml",
        # if there is one: then the grid alone is simulated, and all of it if that comes out otherwise
        recorded=[str(RECORDED_PAPERS)] if RECORDED_PAPERS.exists() else [],
    output:
        predictions=f"{RESULTS}/predicted/papers.csv",
    log:
        "logs/predict/papers.log",
    # it takes all CPUs, and so runs beside no measurement on this machine
    threads: CORES
    resources:
        machine=1,
    params:
        schema_version=versions.PREDICTION_VERSION,
    script:
        "../scripts/predict_papers.py"
