"""What a process needs of its environment: settings, logs, keys, locks, Redis; and checks for concurrent changes."""
