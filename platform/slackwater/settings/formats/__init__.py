"""How pages write moments: one form, with the zone."""
