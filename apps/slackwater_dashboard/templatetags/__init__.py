"""What the dashboard's templates call."""
