"""One scheduling round over a frozen snapshot: gate, placement, order, plan. Pure."""
