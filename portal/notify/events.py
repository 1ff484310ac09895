"""Events: a row in the transaction of the change, and a ring of the bell after commit
(portal/notify/event_bell.py)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.db import transaction

from portal.models import Department, Event
from portal.notify import event_bell
from portal.prepared import insert

QUEUE_MOVED = "queue.moved"
"""Some of a department's waiting workloads have new positions or reasons: one event for what may be thousands of them."""


def emit(kind: str, *, department: Department | None = None, workload: str = "", **data: Any) -> Event:
    """Writes one event; readers see it once the surrounding transaction commits."""
    event = insert(Event(kind=kind, department=department, workload=workload, data=data))
    transaction.on_commit(event_bell.ring)
    return event


def emit_all(events: Iterable[Event]) -> None:
    """Writes many events with one ring of the bell."""
    Event.objects.bulk_create(events)
    transaction.on_commit(event_bell.ring)
