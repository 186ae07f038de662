"""Which running tasks make room for what waits: slices, and pools that starve."""
