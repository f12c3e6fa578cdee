"""Functions that return terminal messages about measurements which a campaign still lacks."""

from sipsched.plan.run import Point
from sipsched.records.missing import Missing, Unanswered
from sipsched.words import plural


def no_answer(unanswered: Unanswered) -> str:
    """Return a line about a study that has no answer, with the first measurement that the study lacks."""
    lacks = unanswered.lacks
    if isinstance(lacks, Point):
        named = f"the crossing of {lacks}"
    else:
        named = (
            f"{lacks.sut} {lacks.mode} cores={lacks.cores} threads={lacks.threads} cps={lacks.cps}"
        )
    return f"{unanswered.study} on {unanswered.testbed} has no answer, because nothing is recorded for {named}"


def line(missing: Missing, broken: int) -> str:
    """Return a line that lists the missing measurements and the command that makes them. Empty if none is missing.

    Parameters
    ----------
    broken
        Number of measurements that failed for a permanent reason. A repetition would fail again.
    """
    parts = []
    if missing.runs:
        verb = "is" if len(missing.runs) == 1 else "are"
        parts.append(f"{len(missing.runs)} of {plural(missing.planned, 'run')} {verb} missing")
    if missing.searches:
        verb = "was" if len(missing.searches) == 1 else "were"
        crossings = plural(len(missing.searches), "crossing")
        parts.append(f"{crossings} {verb} not found, so the loads around it are not measured")
    if not parts:
        return ""
    them = "it" if len(missing.runs) + len(missing.searches) == 1 else "them"
    later = " after the errors above are fixed" if broken else ""
    return f"{' and '.join(parts)}: snakemake measures {them}{later}"
