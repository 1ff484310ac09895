"""What the pods of a cluster really use, as measured by its Prometheus (or by the embedded cluster itself)."""
