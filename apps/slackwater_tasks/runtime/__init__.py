"""What a running task may ask of the ledger: its start and record, effects, artifacts, checkpoints, progress."""
