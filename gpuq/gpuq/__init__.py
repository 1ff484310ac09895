"""Run work on the GPU quota portal from a terminal or a pipeline."""
