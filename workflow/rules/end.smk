# Print these messages at the end of an invocation in which jobs failed.
onerror:
    for line in internals.missing_lines(workflow, PLAN.index):
        logger.info(line, extra=terminal.OURS)
