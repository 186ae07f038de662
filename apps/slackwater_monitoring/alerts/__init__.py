"""Alerts to the administrators: what is wrong with the platform itself, told once, and again when it is over."""
