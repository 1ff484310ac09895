"""A Cluster row and its driver: which driver a row has, what it is given, and whether it answers."""
