"""How people get in: allauth's adapters, guessed passwords, identity providers, and what groups there give here."""
