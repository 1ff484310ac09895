"""Reconciles the database and the clusters, in both directions."""
