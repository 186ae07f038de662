"""Alerts to the administrators about the platform itself: one notice when raised, one when cleared."""
