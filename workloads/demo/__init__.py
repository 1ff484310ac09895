"""The demo: people, quotas, and small real programs on declared cards. `manage.py demo` starts it."""
