"""A Cluster row and its driver: which driver it has, what the driver is given, and whether the cluster answers."""
