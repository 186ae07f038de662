"""Its migrations of the ledger."""
