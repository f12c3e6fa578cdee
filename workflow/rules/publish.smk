# One archive with everything that a reader elsewhere needs; made when asked for.
VERSION = versions.code_version(Path(workflow.basedir))


rule publish:
    input:
        pages=PAGES,
        index=f"{REPORTS_IN}/index.html",
        summaries=[path for group in COMBINED.values() for path in group],
        noise=[path for group in NOISE.values() for path in group],
        configuration=sorted(Path("config").rglob("*.*")),
        testbeds=[paths.TESTBEDS / f"{name}.yaml" for name in TESTBEDS],
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
    params:
        version=VERSION,
    script:
        "../scripts/publish.py"
