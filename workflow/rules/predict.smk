# What the simulator says of a testbed, fitted to the runs of mode default there: no host, no root.
rule fit_model:
    input:
        runs=default_runs,
        noise=testbed_noise,
    output:
        fit=f"{RESULTS}/predicted/{{testbed}}/fit.json",
    log:
        "logs/predict/{testbed}-fit.log",
    resources:
        machine=1,
    params:
        schema_version=versions.PREDICTION_VERSION,
    script:
        "../scripts/fit_model.py"


rule predict_settings:
    input:
        fit=f"{RESULTS}/predicted/{{testbed}}/fit.json",
        crossings=found_crossings,
        # that of the same fit is taken, and one setting of it simulated again
        recorded=recorded_prediction("settings.nc"),
    output:
        predicted=f"{RESULTS}/predicted/{{testbed}}/settings.nc",
    log:
        "logs/predict/{testbed}-settings.log",
    threads: CORES
    resources:
        machine=1,
    params:
        schema_version=versions.PREDICTION_VERSION,
    script:
        "../scripts/predict_settings.py"


rule predict_capacity:
    input:
        fit=f"{RESULTS}/predicted/{{testbed}}/fit.json",
        recorded=recorded_prediction("capacity.json"),
    output:
        capacity=f"{RESULTS}/predicted/{{testbed}}/capacity.json",
    log:
        "logs/predict/{testbed}-capacity.log",
    threads: CORES
    resources:
        machine=1,
    params:
        schema_version=versions.PREDICTION_VERSION,
    script:
        "../scripts/predict_capacity.py"


# minutes of two CPUs: no page asks for it, and what is in recorded/predicted was made with it
rule predict_speedups:
    input:
        fit=f"{RESULTS}/predicted/{{testbed}}/fit.json",
    output:
        speedups=f"{RESULTS}/predicted/{{testbed}}/speedups.csv",
    log:
        "logs/predict/{testbed}-speedups.log",
    threads: CORES
    resources:
        machine=1,
    params:
        schema_version=versions.PREDICTION_VERSION,
    script:
        "../scripts/predict_speedups.py"
