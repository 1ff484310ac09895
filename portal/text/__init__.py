"""Words, numbers and times as people read and write them. Imports nothing above Django."""
