"""Estimated starts of waiting workloads: the queue is simulated with runtimes learned from ended workloads."""
