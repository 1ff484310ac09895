"""The REST API of workloads: submit, look, wait, read logs and files, stop."""
