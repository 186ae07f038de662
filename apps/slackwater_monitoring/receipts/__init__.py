"""Receipts: what was promised of a task and what was kept, chained by tenant and signed."""
