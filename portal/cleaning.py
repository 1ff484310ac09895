"""Deletes rows that are kept for a limited time. Each rule is one statement and harmless when repeated.

Files of workloads are deleted by `workloads.clean_up` (portal does not import workloads).
"""

from __future__ import annotations

import datetime as dt
from collections import Counter

import structlog
from django.contrib.sessions.models import Session
from django.db.models import Q

from portal.infra.locks import durable
from portal.models import ApiToken, Event, IdempotencyKey, InboxItem, Invitation, JobRun, WebhookDelivery
from portal.notify import notices

DAY = dt.timedelta(days=1)
EVENTS, KEYS, RUNS, DELIVERIES, READ, INVITATIONS = 14 * DAY, DAY, 7 * DAY, 30 * DAY, 90 * DAY, 30 * DAY
WARN_BEFORE = 7 * DAY
log = structlog.get_logger(__name__)


def clean_up(*, now: dt.datetime) -> Counter[str]:
    """Deletes all expired rows; returns how many of each kind."""
    deleted: Counter[str] = Counter()
    old = {
        "events": Event.objects.filter(at__lt=now - EVENTS),
        "idempotency keys": IdempotencyKey.objects.filter(created_at__lt=now - KEYS),
        "job runs": JobRun.objects.filter(started_at__lt=now - RUNS),
        "webhook deliveries": WebhookDelivery.objects.filter(created_at__lt=now - DELIVERIES),
        "inbox lines": InboxItem.objects.filter(read_at__lt=now - READ, mail_due_at=None),
        "invitations": Invitation.objects.filter(Q(expires_at__lt=now - INVITATIONS)),
        "sessions": Session.objects.filter(expire_date__lt=now),
    }
    for name, rows in old.items():
        deleted[name] = rows.delete()[0]
    deleted["tokens about to end"] = warn_of_tokens(now)
    log.info("cleaned_up", **{name.replace(" ", "_"): count for name, count in deleted.items() if count})
    return deleted


def warn_of_tokens(now: dt.datetime) -> int:
    """Notifies each holder once, a week before a token expires; for a service account's token the department's
    owners."""
    soon = ApiToken.objects.filter(revoked_at=None, expires_at__gt=now, expires_at__lte=now + WARN_BEFORE)
    already_warned = set(InboxItem.objects.filter(kind="token.expiring").values_list("data__token", flat=True))
    warned = 0
    for token in soon.select_related("holder", "department"):
        if token.prefix in already_warned or token.expires_at - token.created_at <= WARN_BEFORE:
            continue
        holder = token.holder
        people = notices.owners_of(token.department) if holder.service_of_id and token.department else [holder]
        with durable():
            notices.send(
                "token.expiring", to=people, department=token.department,
                token=token.prefix, name=token.name, expires_at=token.expires_at.isoformat(),
            )  # fmt: skip
        warned += 1
    return warned
