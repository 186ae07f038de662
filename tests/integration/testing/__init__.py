"""The fixtures for tests of one's own."""
