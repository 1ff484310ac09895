"""What workloads leave behind: their logs, their working directories, and how both are read and removed."""
