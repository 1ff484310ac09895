"""What a change would do to others: the engine is asked for the plan with and without it."""
