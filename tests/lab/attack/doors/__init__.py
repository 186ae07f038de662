"""The doors: a file for each, found by itself."""
