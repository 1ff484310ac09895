"""Makes the cluster what the database says, and the database what the cluster says."""
