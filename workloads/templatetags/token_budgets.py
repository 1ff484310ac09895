"""What is used of a token's GPU-hours, on the pages that list tokens."""

from __future__ import annotations

from django import template
from django.utils import timezone

from portal.models import ApiToken
from workloads.requests.token_budgets import use_of

register = template.Library()


@register.simple_tag
def token_use(token: ApiToken) -> str:
    use = use_of(token, now=timezone.now())
    return use.sentence if use else ""
