"""Runs workloads on the GPU quota portal from a terminal or a pipeline."""
