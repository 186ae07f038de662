"""What handlers import: the running task's context, effects, checkpoints, artifacts."""
