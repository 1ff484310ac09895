"""A Cluster row and its driver: which driver it has, the RunSpecs that the driver gets, and whether the cluster answers."""
