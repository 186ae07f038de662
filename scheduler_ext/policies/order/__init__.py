"""Orders inside a line: each gives a task its rank."""
