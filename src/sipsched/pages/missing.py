"""Lines for the terminal about the missing measurements of a campaign."""

from sipsched.plan.run import Point
from sipsched.records.missing import Missing, Unanswered
from sipsched.words import plural


def no_answer(unanswered: Unanswered) -> str:
    """Describe a study without an answer and its first missing measurement, of which any repetition suffices."""
    lacks = unanswered.lacks
    if isinstance(lacks, Point):
        named = f"the crossing of {lacks}"
    else:
        named = (
            f"{lacks.sut} {lacks.mode} cores={lacks.cores} threads={lacks.threads} cps={lacks.cps}"
        )
    return (
        f"{unanswered.study} on {unanswered.testbed} has no answer: nothing is recorded of {named}"
    )


def line(missing: Missing, broken: int) -> str:
    """Return one line that lists the missing measurements and the command for them; empty if none is missing.

    Parameters
    ----------
    broken
        Number of measurements that failed for a permanent reason. Repeating them is useless.
    """
    parts = []
    if missing.runs:
        verb = "is" if len(missing.runs) == 1 else "are"
        parts.append(f"{len(missing.runs)} of {plural(missing.planned, 'run')} {verb} missing")
    if missing.searches:
        verb = "was" if len(missing.searches) == 1 else "were"
        crossings = plural(len(missing.searches), "crossing")
        parts.append(f"{crossings} {verb} not found, and the loads around it not measured")
    if not parts:
        return ""
    them = "it" if len(missing.runs) + len(missing.searches) == 1 else "them"
    later = " once the errors above are put right" if broken else ""
    return f"{' and '.join(parts)}: snakemake measures {them}{later}"
