"""The agent: one process beside each worker; lease, caps, scripts, drain."""
