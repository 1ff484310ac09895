"""Time zones: the choices, and which one applies to a reader."""

from __future__ import annotations

import zoneinfo

from django.conf import settings

# The city list of the zone database, without its aliases.
_ALIASES = ("Etc/", "SystemV/", "US/", "posix/", "right/")
ZONES = sorted(zone for zone in zoneinfo.available_timezones() if "/" in zone and not zone.startswith(_ALIASES))
CHOICES = [("UTC", "UTC"), *((zone, zone.replace("_", " ")) for zone in ZONES)]


def zone_of(chosen: str, browser: str = "") -> zoneinfo.ZoneInfo:
    """The zone `chosen` in the profile; else the `browser`'s; else the installation's."""
    try:
        return zoneinfo.ZoneInfo(chosen or browser or settings.TIME_ZONE)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):  # OSError: the name of a folder
        return zoneinfo.ZoneInfo(settings.TIME_ZONE)
