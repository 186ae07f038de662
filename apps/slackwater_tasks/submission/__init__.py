"""From what a client hands in to stored tasks: checks, admission by the plan, and the one transaction."""
