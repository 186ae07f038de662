"""Sandboxes: one protocol, and a level for each way of containing a script."""
