"""The ASGI application of the API: threads, fast refusals, group commit, headers."""
