"""Watching: health, metrics, alerts and notifications."""
