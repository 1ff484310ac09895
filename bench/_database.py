"""Throw-away PostgreSQL and Redis with the portal's tables, for benchmarks that run in their own process."""

from __future__ import annotations

import os
import sys
import tempfile


def start() -> None:
    """Starts the servers and sets Django up. Ends the process if one of the two is not installed."""
    from tests import servers

    os.environ |= {
        "DEBUG": "true",
        "DATABASE_URL": servers.postgres() or sys.exit("needs PostgreSQL"),
        "REDIS_URL": servers.redis() or sys.exit("needs Redis"),
        "DATA_DIR": tempfile.mkdtemp(prefix="gqp-bench-"),
        "DJANGO_SETTINGS_MODULE": "portal.settings",
        "LOG_LEVEL": "ERROR",
    }
    import django

    django.setup()
    from django.core.management import call_command

    call_command("migrate", verbosity=0)
