"""A next release of the platform, whose schema has a column and an index more."""
