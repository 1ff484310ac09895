"""When work counts as idle, what happens to it then, and what was done about it."""
