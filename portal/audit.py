"""The audit log: one entry for every write that people can see, in the same transaction as the write."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from django.db import connection

from portal.access import Actor
from portal.infra.logs import current_request_id
from portal.models import AuditEntry, Department
from portal.prepared import insert

_source: ContextVar[str] = ContextVar("source", default="")


@contextmanager
def applied_from(source: str) -> Iterator[None]:
    """Entries written inside have `source`, the file from which their changes were applied."""
    token = _source.set(source)
    try:
        yield
    finally:
        _source.reset(token)


def record(
    actor: Actor,
    action: str,
    target: str,
    *,
    department: Department | None = None,
    before: dict[str, Any] | None = None,
    after: dict[str, Any] | None = None,
) -> AuditEntry:
    """Writes one entry. `before` and `after` are the changed values.

    Raises RuntimeError outside a transaction, because the entry must be committed together with its change.
    """
    if not connection.in_atomic_block:
        raise RuntimeError("audit.record() belongs inside the transaction of the change it tells of")
    row = AuditEntry(
        actor=actor.user,
        actor_name=actor.name,
        token_name=actor.token.name if actor.token else "",
        action=action,
        department=department,
        target=target,
        before=before,
        after=after,
        request_id=current_request_id(),
        source=_source.get(),
    )
    return insert(row)
