"""Names of files as a person can read them."""

from __future__ import annotations

from django import template

from workloads.files.names import display_name

register = template.Library()
register.filter("display_name", display_name)
