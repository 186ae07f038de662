"""A pool child: it takes claims from its node's queues, runs handlers and records what happened."""
