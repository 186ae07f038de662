"""Clients: tenants, their plans, users, keys and limits."""
