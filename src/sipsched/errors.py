"""Errors, split by what the caller may do about them."""


class SipschedError(Exception):
    """Root of all errors that this package raises on purpose."""


class StableError(SipschedError):
    """Wrong configuration or a missing feature: trying again changes nothing."""


class TransientError(SipschedError):
    """A lost link, a time-out, a run disturbed from outside: trying again may help."""
