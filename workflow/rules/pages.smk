# Pages beside the studies' reports: one a testbed, and the one that links all.
COMBINED = {
    name: [
        f"results/{study}/{testbed}/summary.nc"
        for study, testbed in SUMMARIES
        if testbed == name
    ]
    for name in TESTBEDS
}
NOISE = {
    name: [] if CAMPAIGN.only_measured and not path.exists() else [path]
    for name in TESTBEDS
    for path in [RAW / name / "noise.json"]
}
PAGES = [
    *REPORTS,
    *(f"reports/testbed-{name}.html" for name in TESTBEDS),
    *DOCUMENTS,
]


def testbed_summaries(wildcards):
    return COMBINED[wildcards.testbed]


def testbed_noise(wildcards):
    return NOISE[wildcards.testbed]


rule render_testbed:
    input:
        notebook="notebooks/testbed.ipynb",
        summaries=testbed_summaries,
        noise=testbed_noise,
    output:
        html="reports/testbed-{testbed}.html",
    log:
        "logs/report/testbed-{testbed}.log",
    params:
        noise=f"{RAW}/{{testbed}}/noise.json",
    script:
        "../scripts/render_testbed.py"


rule render_index:
    input:
        notebook="notebooks/index.ipynb",
        summaries=[path for paths in COMBINED.values() for path in paths],
        pages=PAGES,
    output:
        html="reports/index.html",
    log:
        "logs/report/index.log",
    params:
        pdr_limit=CAMPAIGN.pdr_limit,
    script:
        "../scripts/render_index.py"
