"""Whether a run counts: a table of rules, each with its number, its limits and its words."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from sipsched.plan.config import Limits

VALID, SUSPECT, INVALID = "valid", "suspect", "invalid"


@dataclass(frozen=True)
class Finding:
    """One rule applied to one run.

    Attributes
    ----------
    rule
        Name of the rule, as in the configuration.
    value
        What was found; None if it could not be known.
    grade
        `valid`, `suspect` or `invalid`.
    limit
        What the value is above: the limit of its grade. None where it is valid.
    """

    rule: str
    value: float | None
    grade: str
    limit: float | None = None

    def __str__(self) -> str:
        """Say it to a reader."""
        if self.value is None:
            return f"{self.rule}: not known"
        # a rule of another version of the program has no words here
        return RULES.get(self.rule, f"{self.rule} is {{value:g}}").format(value=self.value)


@dataclass(frozen=True)
class Verdict:
    """All findings of a run, and the worst of their grades."""

    grade: str
    findings: tuple[Finding, ...]

    @property
    def valid(self) -> bool:
        """Whether the run counts."""
        return self.grade != INVALID

    @property
    def broken(self) -> tuple[Finding, ...]:
        """Every finding that is not valid, the worst first."""
        ordered = sorted(self.findings, key=lambda finding: finding.grade != INVALID)
        return tuple(finding for finding in ordered if finding.grade != VALID)


def in_general(rule: str) -> str:
    """Say what it is to break a rule, with N in the place of the number; an unknown rule by its name."""
    return re.sub(r"\{value:[^}%]*(%?)\}", r"N\1", RULES.get(rule, rule))


def in_words(findings: Iterable[Finding]) -> str:
    """Say several findings to a reader."""
    return "; ".join(map(str, findings))


RULES: Mapping[str, str] = {
    "rate_error": "the achieved rate is {value:.2%} off the schedule's",
    "ks_excess": "inter-arrival times are {value:.3f} further from their law than chance explains",
    "cv_error": "the coefficient of variation of inter-arrival times is {value:.2f} off its law's",
    "lateness_p99_us": "one call in a hundred started more than {value:.0f} µs late",
    "generator_cpu_share": "the generator used {value:.0%} of a CPU",
    "generator_drops": "sockets of UAC and UAS refused {value:.0f} datagrams",
    "calls_not_started": "the generator did not start {value:.0f} of its calls",
    "calls_failed_unexplained": "{value:.2%} of the calls did not complete, and no drop at the SPS "
    "explains it",
    "unexpected_messages": "{value:.3f} messages a call did not fit the call's state",
    "datagrams_without_port": "{value:.0f} datagrams met no open port while UAC, SPS and UAS were up",
    "foreign_datagrams": "{value:.0f} datagrams that are none of the calls' reached the SPS",
    "link_drops": "interfaces dropped {value:.0f} packets",
    "ledger_residual": "{value:.0f} messages were sent and are not accounted for",
    "segments_again": "TCP sent {value:.0f} segments again",
    "calls_split": "{value:.0f} calls had messages at more than one of the SPS's sockets",
    "share_excess": "a worker's share of the calls is {value:.0%} off the others' beyond chance",
    "retransmission_disagreement": "UAC and SPS tell first sends and retransmissions apart "
    "differently for {value:.0f} requests",
    "probe_lost": "the probe lost {value:.0f} records",
    "probe_skipped": "stamps of {value:.0f} messages may be missing, which the kernel did not show the probe",
    "settings_unlike_asked": "{value:.0f} scheduler settings do not read back as they were written",
    "receive_buffer_shortfall": "the kernel granted {value:.0%} less receive buffer than the SUT asks for",
    "clock_step_s": "the wall clock of a host stepped by {value:.2f} s",
    "steal_share": "the hypervisor took {value:.1%} of the SPS's CPU time",
    "blocks_left_out": "{value:.0%} of the blocks of windows are left out",
    "allocation_failures": "the proxy's log tells of {value:.0f} failed allocations",
}
"""Every rule: its name, and its words when it is broken."""


def judge(numbers: Mapping[str, float | None], limits: Mapping[str, Limits]) -> Verdict:
    """Apply the rules.

    Parameters
    ----------
    numbers
        A number for each rule; None where it could not be measured, which breaks no rule.
    limits
        Limits for each rule, from the configuration.

    Raises
    ------
    KeyError
        A rule has no number: a mistake in the program, not in a run.
    """
    findings = [_apply(rule, numbers[rule], limits[rule]) for rule in RULES]
    return Verdict(_worst(finding.grade for finding in findings), tuple(findings))


def _apply(rule: str, value: float | None, limits: Limits) -> Finding:
    if value is not None:
        for grade, limit in ((INVALID, limits.invalid), (SUSPECT, limits.suspect)):
            if value > limit:
                return Finding(rule, value, grade, limit)
    return Finding(rule, value, VALID)


def _worst(grades: Iterable[str]) -> str:
    found = set(grades)
    return next((grade for grade in (INVALID, SUSPECT) if grade in found), VALID)
