"""Periodic work: schedules, their firings, and the beat scheduler that claims them."""
