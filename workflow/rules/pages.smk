# These rules run notebooks to make the pages. A parameter of a notebook gets the input, param or wildcard with the same name.
rule render_report:
    input:
        notebook=NEEDS.study_notebook,
        summary=f"{RESULTS}/{{study}}/{{testbed}}/summary.nc",
        windows=NEEDS.study_windows,
        crossings=NEEDS.study_crossings,
        capacities=[f"{RESULTS}/capacity/{{testbed}}.json"],
    output:
        html=report(
            f"{REPORTS_IN}/{{study}}-{{testbed}}.html",
            caption="../report/study.rst",
            category="Studies",
            labels={"page": "{study}", "testbed": "{testbed}"},
        ),
        outline=f"{RESULTS}/pages/{{study}}-{{testbed}}.json",
    log:
        "logs/report/{study}-{testbed}.log",
    benchmark:
        f"{RESULTS}/benchmarks/pages/{{study}}-{{testbed}}.tsv"
    conda:
        "../envs/analysis.yaml"
    resources:
        forked_for_pages=1,
        machine=1,
    params:
        overview=PLAN.overview,
        messages_root=RESULTS / "runs",
        pdr_limit=NEEDS.study_limit,
        suts=NEEDS.study_suts,
    message:
        "Make the page of {wildcards.study} on {wildcards.testbed}."
    script:
        "../scripts/render_page.py"


rule render_document:
    input:
        notebook=NEEDS.document_notebook,
        files=NEEDS.document_files,
        summaries=NEEDS.document_summaries,
        windows=NEEDS.document_windows,
        crossings=NEEDS.document_crossings,
        capacities=NEEDS.document_capacities,
        predictions=NEEDS.document_predictions,
    output:
        html=report(
            f"{REPORTS_IN}/{{document}}.html",
            caption="../report/document.rst",
            category="Several studies",
            labels={"page": "{document}"},
        ),
        outline=f"{RESULTS}/pages/{{document}}.json",
    log:
        "logs/report/{document}.log",
    benchmark:
        f"{RESULTS}/benchmarks/pages/{{document}}.tsv"
    conda:
        "../envs/analysis.yaml"
    resources:
        forked_for_pages=1,
        machine=1,
    params:
        overview=PLAN.overview,
        pdr_limit=PLAN.config.pdr_limit,
    message:
        "Make the page {wildcards.document}."
    script:
        "../scripts/render_page.py"


rule render_testbed_page:
    input:
        unpack(NEEDS.testbed_page),
        notebook=f"{NOTEBOOKS}/{{page}}.ipynb",
    output:
        html=report(
            f"{REPORTS_IN}/{{page}}-{{testbed}}.html",
            caption="../report/testbed.rst",
            category="Testbeds",
            labels={"page": "{page}", "testbed": "{testbed}"},
        ),
        outline=f"{RESULTS}/pages/{{page}}-{{testbed}}.json",
    log:
        "logs/report/{page}-{testbed}.log",
    benchmark:
        f"{RESULTS}/benchmarks/pages/{{page}}-{{testbed}}.tsv"
    conda:
        "../envs/analysis.yaml"
    resources:
        forked_for_pages=1,
        machine=1,
    params:
        overview=PLAN.overview,
        noise=lambda wildcards: RAW / wildcards.testbed / "noise.json",
        records=list(dict.fromkeys((RAW, PLAN.whole))),
    message:
        "Make the page {wildcards.page} of the testbed {wildcards.testbed}."
    script:
        "../scripts/render_page.py"


NESTED_PAGES = [
    str(page) for page in outline.nested_pages(PLAN.reports) if page.exists()
]


rule render_index:
    input:
        notebook=f"{NOTEBOOKS}/index.ipynb",
        summaries=PLAN.all_summaries,
        crossings=NEEDS.all_crossings,
        capacities=PLAN.capacities,
        outlines=PLAN.outlines,
        # The overview links these pages of other campaigns, which are in folders below this campaign's folder.
        nested=NESTED_PAGES,
    output:
        html=report(
            PLAN.index,
            caption="../report/overview.rst",
            category="Overview",
            labels={"page": "overview"},
        ),
        outline=f"{RESULTS}/pages/index.json",
    log:
        "logs/report/index.log",
    benchmark:
        f"{RESULTS}/benchmarks/pages/index.tsv"
    conda:
        "../envs/analysis.yaml"
    resources:
        forked_for_pages=1,
        machine=1,
    params:
        overview=PLAN.overview,
        pdr_limit=PLAN.config.pdr_limit,
    message:
        "Make the overview."
    script:
        "../scripts/render_page.py"
