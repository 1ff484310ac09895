"""People, departments and their members, tokens, sessions, and what is held against guessing."""
