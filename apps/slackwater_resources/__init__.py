"""Resources: tiers, and the nodes that offer them."""
