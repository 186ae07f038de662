"""Policies: pure functions over frozen values, chosen by name."""
