"""Endpoints: each parses, calls a service or the read side, and renders."""
