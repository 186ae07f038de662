"""Unit tests: one file per module of the engine; no Django, no services."""
