"""What a change would do to others: the engine asked as it is and as it would be."""
