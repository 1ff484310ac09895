"""The nodes of clusters: what they offer, what others use of them, and how they are changed."""
