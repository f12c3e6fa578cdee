# Pages beside the studies' reports: two a testbed, and the one that links all.
rule render_testbed:
    input:
        notebook="notebooks/testbed.ipynb",
        summaries=testbed_summaries,
        noise=testbed_noise,
    output:
        html=f"{REPORTS_IN}/testbed-{{testbed}}.html",
    log:
        "logs/report/testbed-{testbed}.log",
    resources:
        machine=1,
    params:
        noise=f"{RAW}/{{testbed}}/noise.json",
    script:
        "../scripts/render_testbed.py"


rule render_messages:
    input:
        notebook="notebooks/messages.ipynb",
        messages=whole_runs,
    output:
        html=f"{REPORTS_IN}/messages-{{testbed}}.html",
    log:
        "logs/report/messages-{testbed}.log",
    resources:
        machine=1,
    params:
        records=[str(folder) for folder in dict.fromkeys((RAW, WHOLE))],
    script:
        "../scripts/render_messages.py"


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
    resources:
        machine=1,
    params:
        pdr_limit=CAMPAIGN.pdr_limit,
    script:
        "../scripts/render_index.py"
