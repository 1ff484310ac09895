"""The state of a workload in words, for pages and API."""
