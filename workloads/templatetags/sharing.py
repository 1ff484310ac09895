"""How people call a sharing system, for every page."""

from __future__ import annotations

from django import template
from django.utils.translation import gettext

from workloads.sharing import SYSTEMS

register = template.Library()


@register.filter
def sharing_name(key: str) -> str:
    """`mig` → “MIG instances”; what no module serves stays as it is."""
    system = SYSTEMS.get(key)
    return gettext(system.ABOUT.title) if system else key
