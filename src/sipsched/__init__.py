"""Measure SIP proxy servers on multi-core Linux, and the scheduler under them."""
