"""The dispatcher and what it speaks to: queues, locks, hints and the change feed in Redis."""
