"""The read side: tasks and what stands beside them as plain values, for the API, commands and pages."""
