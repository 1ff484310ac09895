"""The contract between the portal and whatever runs its workloads, and what follows from it alone."""
