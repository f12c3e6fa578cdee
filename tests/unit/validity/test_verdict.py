"""Tests of the verdict: each rule grades by its own limits, and the worst grade decides."""

import re

import pytest

from sipsched.plan.config import load_config
from sipsched.validity.rules import RULES, SHARED_MACHINE, Limits, Rule
from sipsched.validity.verdict import (
    INVALID,
    SUSPECT,
    VALID,
    Finding,
    in_general,
    in_words,
    judge,
)

GOOD: dict[str, float | None] = dict.fromkeys(RULES, 0.0)
LIMITS = dict.fromkeys(RULES, Limits(suspect=1, invalid=2))


def test_a_clean_run_is_valid_and_has_no_reason() -> None:
    verdict = judge(GOOD, LIMITS)
    assert verdict.grade == VALID
    assert verdict.broken == ()
    assert in_words(verdict.broken) == ""
    assert [finding.rule for finding in verdict.findings] == list(RULES)


@pytest.mark.parametrize("rule", RULES)
def test_each_rule_alone_changes_the_verdict_and_gives_its_reason(rule: str) -> None:
    for value, grade in ((1.0, VALID), (1.5, SUSPECT), (2.0, SUSPECT), (2.5, INVALID)):
        verdict = judge(GOOD | {rule: value}, LIMITS)
        assert verdict.grade == grade
        limit = {VALID: None, SUSPECT: 1, INVALID: 2}[grade]
        assert verdict.broken == ((Finding(rule, value, grade, limit),) if limit else ())
    assert in_words(verdict.broken) == RULES[rule].words.format(value=2.5)
    assert not re.search("[0-9{]", in_general(rule))


def test_a_verdict_names_the_cause() -> None:
    cause = "sh (nice -20, pid 7) ran 2 s on CPU 1"
    verdict = judge(GOOD | {"competitor_share": 3.0}, LIMITS, {"competitor_share": cause})
    (finding,) = verdict.broken
    assert finding.cause == cause
    assert str(finding).endswith(cause)
    assert "nice" not in in_general("competitor_share")


def test_the_worst_finding_comes_first() -> None:
    first, *_, last = RULES
    verdict = judge(GOOD | {first: 1.5, last: 3.0}, LIMITS)
    assert verdict.grade == INVALID
    assert [finding.rule for finding in verdict.broken] == [last, first]


def test_a_rule_of_another_version_is_reported_by_its_name() -> None:
    assert str(Finding("moon_phase", 0.5, INVALID, 0.1)) == "moon_phase is 0.5"
    assert in_general("moon_phase") == "moon_phase"


def test_a_missing_measurement_breaks_no_rule() -> None:
    assert judge(dict.fromkeys(RULES), LIMITS).grade == VALID


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_a_rule_describes_its_number_and_the_reason_for_its_limits(rule: Rule) -> None:
    assert rule.words.format(value=0.25) != rule.words.format(value=0.75)
    assert rule.why.endswith(".")
    assert 0 <= rule.suspect <= rule.invalid


def test_the_configuration_accepts_the_limits_of_the_rules() -> None:
    assert load_config().validity == {name: rule.limits for name, rule in RULES.items()}


def test_some_rules_can_be_broken_by_other_work_of_the_machine() -> None:
    assert {"lateness_p99_us", "steal_share"} <= set(SHARED_MACHINE) < set(RULES)
