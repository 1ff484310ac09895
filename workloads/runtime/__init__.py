"""The contract between the portal and the clusters that run its workloads, and code that depends on it alone."""
