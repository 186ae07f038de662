"""What is ordered."""
