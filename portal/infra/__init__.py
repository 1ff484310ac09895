"""Infrastructure of every process: environment, logs, encryption, locks, Redis; and checks for concurrent changes."""
