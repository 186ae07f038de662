"""Who orders."""
