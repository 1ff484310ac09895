"""What a change would do to others: the difference between the engine's plans with and without it."""
