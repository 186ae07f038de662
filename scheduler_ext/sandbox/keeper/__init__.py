"""The keeper: one small process for each slot, which starts a script, limits it and ends all of it."""
