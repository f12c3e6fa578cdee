# The end of an invocation. Snakemake's exit code is 1 as soon as a job failed; workflow/reproduce.py knows more.
onerror:
    tell_missing()
