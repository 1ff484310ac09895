"""People, departments and their members, tokens, sessions, and the throttle on guessed passwords."""
