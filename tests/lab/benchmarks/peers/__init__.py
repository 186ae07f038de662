"""The other task queues of the comparison: one script each, run in environments of their own."""
