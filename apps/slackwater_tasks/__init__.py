"""Tasks: the ledger of all work, and the only writer of their states."""
