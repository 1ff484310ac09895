"""The entry point for ASGI servers: `portal.asgi:application` (portal/server/application.py)."""

import os

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "portal.settings")
django.setup()

from portal.server.application import application  # noqa: E402

__all__ = ["application"]
