"""Words, numbers and times in human-readable form. Imports nothing above Django."""
