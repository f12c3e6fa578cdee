# If jobs failed, print which runs are missing at the end of the invocation.
onerror:
    for line in internals.missing_lines(workflow, PLAN.index):
        logger.info(line, extra=terminal.OURS)
