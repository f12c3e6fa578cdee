# This rule makes one archive with the pages, the summaries, the configuration and the versions, for `make publish`.
VERSION = versions.code_version(Path(workflow.basedir))


rule publish:
    input:
        pages=PLAN.pages,
        nested=NESTED_PAGES,
        index=PLAN.index,
        outlines=[*PLAN.outlines, f"{RESULTS}/pages/index.json"],
        summaries=PLAN.all_summaries,
        noise=[path for files in PLAN.noise.values() for path in files],
        configuration=sorted(Path("config").rglob("*.*")),
        testbeds=[paths.TESTBEDS / f"{name}.yaml" for name in PLAN.testbeds],
        workflow=[
            "Snakefile",
            *sorted(
                path
                for path in Path("workflow").rglob("*")
                if path.is_file() and path.suffix != ".pyc"
            ),
        ],
        environment=[
            "requirements.lock",
            "pyproject.toml",
            "environment.yml",
            "LICENSE",
        ],
    output:
        archive=f"publish/sipsched-{VERSION}.zip",
    log:
        "logs/publish.log",
    benchmark:
        f"{RESULTS}/benchmarks/publish.tsv"
    conda:
        "../envs/analysis.yaml"
    resources:
        machine=1,
    params:
        version=VERSION,
    message:
        "Make one archive with the pages, the summaries and the configuration."
    script:
        "../scripts/publish.py"
