"""What would happen: the same policies and the same gate, in virtual time, over recorded or made-up work."""
