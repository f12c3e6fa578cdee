# Pages beside the studies' reports: one a testbed, and the one that links all.
rule render_testbed:
    input:
        notebook="notebooks/testbed.ipynb",
        summaries=testbed_summaries,
        noise=testbed_noise,
    output:
        html=f"{REPORTS_IN}/testbed-{{testbed}}.html",
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
        crossings=found_crossings,
        pages=PAGES,
    output:
        html=f"{REPORTS_IN}/index.html",
    log:
        "logs/report/index.log",
    params:
        pdr_limit=CAMPAIGN.pdr_limit,
    script:
        "../scripts/render_index.py"
