"""Measuring the platform, and others beside it by the same code.

``channel``, ``account``, ``peer`` and ``measure`` need nothing but the standard library: the peers of the comparison
import them in environments of their own.
"""
