"""Pages of workloads, one module for each subject."""
