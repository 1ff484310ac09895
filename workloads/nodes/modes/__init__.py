"""Changing how a node shares its cards: a workflow whose state is in its row, so that it survives a kill at any line."""
