"""What a process needs of its surroundings: environment, logs, keys, locks, Redis; and whether a row changed meanwhile."""
