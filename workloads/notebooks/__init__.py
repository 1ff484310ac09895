"""Who may open a notebook or a service, and the proxy that leads there."""
