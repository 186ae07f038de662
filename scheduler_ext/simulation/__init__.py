"""Simulation: the same policies and the same gate, in virtual time, over recorded or generated work."""
