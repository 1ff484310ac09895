"""Changing how a node shares its cards: a workflow that may be killed at any line and goes on from its row."""
