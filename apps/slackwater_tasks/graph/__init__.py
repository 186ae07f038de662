"""The graph around a task: ancestors, descendants, order, critical path; fast on 100,000 edges."""
