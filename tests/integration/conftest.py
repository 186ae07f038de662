"""Fixtures of several files."""

from tests.support.runner import runner

__all__ = ["runner"]
