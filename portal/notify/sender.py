"""Threads that send what is due, one for each lane, so that neither scheduled jobs nor pages wait for other servers.

They run in any process that runs the job `portal.deliver`. If it is killed, its rows are tried again and its lanes are free
when their leases end (portal/notify/outbox.py).
"""

from __future__ import annotations

import threading

import structlog
from django.db import connections
from django.utils import timezone

from portal.notify import outbox

MOST = 8  # hosts at a time in one process, besides the mail server
log = structlog.get_logger(__name__)
_running: set[str] = set()
_guard = threading.Lock()


def ring() -> None:
    """Starts a thread for each lane that has something due and no thread yet; returns at once."""
    for lane in outbox.lanes_due(timezone.now()):
        with _guard:
            if lane in _running or (lane != outbox.MAIL and len(_running - {outbox.MAIL}) >= MOST):
                continue
            _running.add(lane)
        threading.Thread(target=_send, args=(lane,), name=f"sender {lane}", daemon=True).start()


def _send(lane: str) -> None:
    try:
        outbox.drain(lane)
    except Exception:
        log.exception("sender.failed", lane=lane)
    finally:
        with _guard:
            _running.discard(lane)
        connections.close_all()
