"""Starting processes so that none outlives its parent, and running servers without the powers of root."""
