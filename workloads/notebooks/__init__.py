"""Access to notebooks and services, and the proxy to them."""
