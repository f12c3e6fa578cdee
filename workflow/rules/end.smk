# Messages at the end of an invocation with failed jobs.
onerror:
    for line in internals.missing_lines(workflow, PLAN.index):
        logger.info(line, extra=terminal.OURS)
