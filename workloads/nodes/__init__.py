"""Nodes of clusters: what they offer, what is used outside quota, and how their modes are changed."""
