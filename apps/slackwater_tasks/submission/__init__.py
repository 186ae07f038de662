"""From what a client submits to stored tasks: checks, admission by the plan, and the one transaction."""
