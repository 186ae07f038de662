"""The worker's side: bootsteps, the child's slice, the journal, and the agent."""
