"""What templates need beyond Django's own tags."""

from django import template

register = template.Library()
