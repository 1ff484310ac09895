"""The demo: people, quotas and real small programs on declared cards. `manage.py demo` is its face."""
