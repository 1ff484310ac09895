"""How a workload stands, in words: the same for pages and API."""
