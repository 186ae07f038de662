"""Measurements of single steps."""
