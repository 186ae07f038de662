"""Tests on the real PostgreSQL and Redis."""
