"""Live state: the change feed, statuses from memory, long polls and event streams."""
