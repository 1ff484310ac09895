"""Idle policies: when a workload is idle, what happens to it then, and the record of that."""
