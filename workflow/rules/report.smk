rule render_report:
    input:
        notebook=study_notebook,
        summary=f"{RESULTS}/{{study}}/{{testbed}}/summary.nc",
        windows=study_windows,
        crossings=study_crossings,
    output:
        html=f"{REPORTS_IN}/{{study}}-{{testbed}}.html",
    log:
        "logs/report/{study}-{testbed}.log",
    resources:
        machine=1,
    params:
        messages_root=f"{RESULTS}/runs",
        pdr_limit=study_limit,
    script:
        "../scripts/render_report.py"


rule render_document:
    input:
        notebook=document_notebook,
        files=document_files,
        summaries=document_summaries,
        windows=document_windows,
        crossings=document_crossings,
        predictions=document_predictions,
    output:
        html=f"{REPORTS_IN}/{{document}}.html",
    log:
        "logs/report/{document}.log",
    resources:
        machine=1,
    params:
        pdr_limit=CAMPAIGN.pdr_limit,
    script:
        "../scripts/render_document.py"
