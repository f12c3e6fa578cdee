"""The verdict on a run, which applies every rule to the run's numbers."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from sipsched.validity.rules import RULES, Limits

THOUSANDS = re.compile(r"(?<=\d),(?=\d{3})")
"""The separators in a number of a rule's text. On pages, thin spaces replace these separators."""
VALID, SUSPECT, INVALID = "valid", "suspect", "invalid"


@dataclass(frozen=True)
class Finding:
    """The result of one rule for one run: the value that the rule limits, and the grade (valid, suspect or invalid).

    Attributes
    ----------
    rule
        Name of the rule, as in the configuration.
    value
        The run's number for this rule; None if the number is unknown.
    grade
        `valid`, `suspect` or `invalid`.
    limit
        The limit that the number exceeds; None if the run is valid.
    cause
        Cause of the broken rule, such as the name of a program; empty if the cause is unknown.
    """

    rule: str
    value: float | None
    grade: str
    limit: float | None = None
    cause: str = ""

    def __str__(self) -> str:
        """Return the result of the rule for the run as text."""
        if self.value is None:
            return f"{self.rule}: unknown"
        if self.rule in RULES:
            words = RULES[self.rule].words.format(value=self.value)
            words = THOUSANDS.sub("\u202f", words)
        else:
            # The record can come from another version of sipsched that has a rule which this version lacks.
            words = f"{self.rule} is {self.value:g}"
        return f"{words}: {self.cause}" if self.cause else words


@dataclass(frozen=True)
class Verdict:
    """The results of all rules for a run, and the worst grade among these results."""

    grade: str
    findings: tuple[Finding, ...]

    @property
    def valid(self) -> bool:
        """Return True if the worst grade of the run is valid or suspect."""
        return self.grade != INVALID

    @property
    def broken(self) -> tuple[Finding, ...]:
        """Return the results of the rules that the run breaks. Rules that make the run invalid come first."""
        ordered = sorted(self.findings, key=lambda finding: finding.grade != INVALID)
        return tuple(finding for finding in ordered if finding.grade != VALID)


def in_general(rule: str) -> str:
    """Return a sentence about runs that break a rule, with the letter N instead of the measured value."""
    return RULES[rule].in_general if rule in RULES else rule


def in_words(findings: Iterable[Finding]) -> str:
    """Return the results of several rules as one text."""
    return "; ".join(map(str, findings))


def judge(
    numbers: Mapping[str, float | None],
    limits: Mapping[str, Limits],
    causes: Mapping[str, str] = MappingProxyType({}),
) -> Verdict:
    """Apply all validity rules to the numbers of a run, and return the verdict: grade and results.

    Parameters
    ----------
    numbers
        A number per rule. An unknown number is None, and breaks no rule.
    limits
        Limits per rule, from the configuration.
    causes
        Known causes, by rule.

    Raises
    ------
    KeyError
        A rule has no number, which is a defect of the program. tests/unit/measure/test_findings.py would find it.
    """
    findings = [_apply(rule, numbers[rule], limits[rule], causes.get(rule, "")) for rule in RULES]
    return Verdict(_worst(finding.grade for finding in findings), tuple(findings))


def _apply(rule: str, value: float | None, limits: Limits, cause: str) -> Finding:
    if value is not None:
        for grade, limit in ((INVALID, limits.invalid), (SUSPECT, limits.suspect)):
            if value > limit:
                return Finding(rule, value, grade, limit, cause)
    return Finding(rule, value, VALID)


def _worst(grades: Iterable[str]) -> str:
    occurring = set(grades)
    return next((grade for grade in (INVALID, SUSPECT) if grade in occurring), VALID)
