"""Names of files as a person can read them."""

from __future__ import annotations

from django import template

from workloads.files.names import shown

register = template.Library()
register.filter("shown", shown)
