"""The REST API of workloads: submit, read, wait, read logs and files, stop."""
