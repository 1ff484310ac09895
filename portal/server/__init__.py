"""The web process: ASGI application, limits on what it accepts, held requests, probes, metrics, start and stop."""
