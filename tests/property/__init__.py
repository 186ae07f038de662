"""Properties, checked on generated cases."""
