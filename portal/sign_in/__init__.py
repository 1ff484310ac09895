"""Signing in: allauth's adapters, the throttle on guessed passwords, identity providers, and roles from their groups."""
