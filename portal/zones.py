"""The time zones people choose from."""

from __future__ import annotations

import zoneinfo

# The city list of the zone database, without its aliases.
_ALIASES = ("Etc/", "SystemV/", "US/", "posix/", "right/")
ZONES = sorted(zone for zone in zoneinfo.available_timezones() if "/" in zone and not zone.startswith(_ALIASES))
CHOICES = [("UTC", "UTC"), *((zone, zone.replace("_", " ")) for zone in ZONES)]
