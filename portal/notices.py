"""Telling people: a line in the inbox, perhaps a mail, and the department's webhooks, in the transaction of the event.

A notice is a kind and its facts; the sentence is made where it is read, in the reader's language.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from portal.models import Department, InboxItem, User
from portal.wake import wake


def tell(
    kind: str, *, to: Iterable[User], department: Department | None = None, workload: str = "", **facts: Any
) -> None:
    """One line for each person; mails and webhooks go out by portal.deliver."""
    InboxItem.objects.bulk_create(
        [InboxItem(user=user, kind=kind, department=department, workload=workload, data=facts) for user in to]
    )
    wake("portal.deliver")
