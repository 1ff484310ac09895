"""The driver for Kubernetes clusters. Only driver.py and exec.py import the client library."""
