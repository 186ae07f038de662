"""Sandboxes: one interface, and a level for each way of containing a script."""
