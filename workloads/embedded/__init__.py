"""The driver that runs workloads as processes of this machine, for the demo and tests."""
