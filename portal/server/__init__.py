"""The web process: ASGI application, what it takes in, requests that are held open, probes, metrics, start and stop."""
