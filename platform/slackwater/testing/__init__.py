"""For tests of one's own: what a test submits, run in its own process and transaction, with accidents on demand."""
