"""Celery tasks of the portal. No module imports this one."""

from __future__ import annotations

from typing import Any

from celery import shared_task
from django.utils import timezone

from portal import cleaning
from portal.background.jobs import claimed_tick
from portal.notify import sender
from portal.sign_in import directory_job


@shared_task(name="portal.deliver")
def deliver(*, tick: bool = False, **_: Any) -> None:
    """Sends due mails and webhooks in threads of their own, so it returns at once."""
    with claimed_tick("portal.deliver", tick=tick) as run:
        if run:
            sender.ring()


@shared_task(name="portal.directories")
def read_directories(*, tick: bool = False, **_: Any) -> None:
    """Reads the directories and applies the group rules."""
    with claimed_tick("portal.directories", tick=tick) as run:
        if run:
            directory_job.read_all()


@shared_task(name="portal.clean_up")
def clean_up(*, tick: bool = False, **_: Any) -> None:
    """Deletes expired rows, and notifies holders of tokens that expire soon."""
    with claimed_tick("portal.clean_up", tick=tick) as run:
        if run:
            cleaning.clean_up(now=timezone.now())
