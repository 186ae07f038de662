"""What is done to stored tasks: cancel, edit, run again, whole workflows, lines, policies, secrets."""
