"""Shows what the sandbox holds: hostile scripts, run as a node would run them."""
