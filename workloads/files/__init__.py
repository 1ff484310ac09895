"""Logs and working directories of workloads: reading and deleting them."""
