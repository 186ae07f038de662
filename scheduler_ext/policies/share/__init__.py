"""Shares between lines: each decides which line is served next."""
