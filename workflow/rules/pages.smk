# The page that links all others, and the names of those.
PAGES = [*REPORTS, *DOCUMENTS]
COMBINED = [f"results/{study}/{name}/summary.nc" for study, name in SUMMARIES]


rule render_index:
    input:
        notebook="notebooks/index.ipynb",
        summaries=COMBINED,
        pages=PAGES,
    output:
        html="reports/index.html",
    log:
        "logs/report/index.log",
    params:
        pdr_limit=CAMPAIGN.pdr_limit,
    script:
        "../scripts/render_index.py"
