"""Management commands of the platform itself; each app has its own for its own models."""
