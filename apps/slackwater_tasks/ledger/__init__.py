"""The ledger as the engine uses it: statements, transitions, claims and the state a round needs."""
