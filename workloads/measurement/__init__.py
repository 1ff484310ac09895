"""What the pods of a cluster really use, as their cluster's Prometheus (or the embedded cluster itself) tells."""
