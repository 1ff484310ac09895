"""What workers and the beat run for the portal itself. Nobody imports this."""

from __future__ import annotations

from typing import Any

from celery import shared_task
from django.utils import timezone

from portal import cleaning
from portal.background.jobs import claimed_tick
from portal.notify import sender


@shared_task(name="portal.deliver")
def deliver(*, tick: bool = False, **_: Any) -> None:
    """Mails and webhooks that are due: sent by threads of their own, so this returns at once."""
    with claimed_tick("portal.deliver", tick=tick) as run:
        if run:
            sender.ring()


@shared_task(name="portal.clean_up")
def clean_up(*, tick: bool = False, **_: Any) -> None:
    """What is kept for a time only; and tokens whose holders should hear of their end."""
    with claimed_tick("portal.clean_up", tick=tick) as run:
        if run:
            cleaning.clean_up(now=timezone.now())
