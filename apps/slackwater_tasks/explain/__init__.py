"""Why a task waits, what would remove each blocker, and when the task will likely start."""
