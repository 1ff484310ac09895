"""Sends what waits to be sent: mails of inbox lines, and webhook deliveries.

A row is taken by moving its next try into the future, in one compare-and-set, so two workers never send the same one at
once; a worker killed while sending leaves a row that is tried again. Receivers can tell a repeat by its delivery id.
"""

from __future__ import annotations

import datetime as dt
import time

import httpx
import structlog
from django.conf import settings
from django.core.mail import EmailMessage
from django.db.models import F
from django.urls import NoReverseMatch, reverse
from django.utils import timezone, translation
from django.utils.translation import gettext

from portal import notices, outgoing
from portal.crypt import decrypt
from portal.errors import N_, Problem
from portal.models import InboxItem, User, WebhookDelivery, WebhookShape
from portal.names import printable
from portal.web import zone_of
from portal.webhook_shapes import Message, refusal
from portal.webhook_shapes import outgoing as shaped

PAUSES = [10, 60, 300, 1800, 7200, 21600, 86400]  # s after each failed try; then it is given up
FAR = dt.datetime(9999, 1, 1, tzinfo=dt.UTC)  # given up
AT_ONCE = 50
log = structlog.get_logger(__name__)


def send_due(*, now: dt.datetime | None = None) -> int:
    """Returns how many were sent. One failure is not another's."""
    now = now or timezone.now()
    deliveries = WebhookDelivery.objects.filter(sent_at=None, due_at__lte=now, webhook__active=True)
    items = InboxItem.objects.filter(mail_due_at__lte=now)
    sent = sum(
        deliver(row, now=now) for row in deliveries.select_related("webhook__department").order_by("id")[:AT_ONCE]
    )
    sent += sum(mail(row, now=now) for row in items.select_related("user", "department").order_by("id")[:AT_ONCE])
    return sent


def next_try(tries: int, now: dt.datetime) -> dt.datetime | None:
    """After `tries` tries; None when it is given up."""
    return now + dt.timedelta(seconds=PAUSES[tries]) if tries < len(PAUSES) else None


def deliver(row: WebhookDelivery, *, now: dt.datetime, again: bool = True) -> bool:
    """One try, the last one when `again` is False. False: somebody else has it, or it failed and says why."""
    due_at = (next_try(row.tries, now) if again else None) or FAR
    mine = WebhookDelivery.objects.filter(pk=row.pk, sent_at=None, tries=row.tries, due_at=row.due_at)
    if not mine.update(tries=F("tries") + 1, due_at=due_at):
        return False
    try:
        status, error = attempt(row)
    except Exception as unforeseen:  # whatever is wrong with this one: the others go out
        status, error = None, f"{type(unforeseen).__name__}: {unforeseen}"
    WebhookDelivery.objects.filter(pk=row.pk).update(
        status=status, error=error[:300], sent_at=None if error else timezone.now()
    )
    if error:
        log.warning("webhook.failed", webhook=row.webhook_id, delivery=row.pk, error=error, tries=row.tries + 1)
    return not error


def attempt(row: WebhookDelivery) -> tuple[int | None, str]:
    """(HTTP status, why it was not taken)."""
    hook = row.webhook
    with translation.override("en" if hook.shape == WebhookShape.GENERIC else "zh-hans"):
        text = notices.sentence(row.kind, row.data)
    address = link(hook.department.slug, str(row.data.get("workload", "")))
    if hook.shape != WebhookShape.GENERIC and address:
        text = f"{text}\n{address}"
    facts = {**row.data, "department": hook.department.slug, "at": row.created_at.isoformat(), "link": address}
    message = Message(f"{row.pk}", row.kind, text, facts, time.time())
    try:
        secret = decrypt(hook.secret, N_("The secret of the webhook %(name)s"), hook.name)
        request = shaped(hook.shape, hook.url, secret, message)
        answer = outgoing.post(request.url, request.body, request.headers)
    except Problem as error:
        return None, error.detail
    except (OSError, httpx.HTTPError, httpx.InvalidURL) as error:
        return None, f"{type(error).__name__}: {error}"
    return answer.status, refusal(hook.shape, answer.status, answer.body)


def link(department: str, workload: str) -> str:
    try:
        if workload:
            return settings.BASE_URL + reverse("workloads:detail", args=[department, workload])
        return settings.BASE_URL + reverse("portal:inbox")
    except NoReverseMatch:
        return ""


def mail(item: InboxItem, *, now: dt.datetime) -> bool:
    again = next_try(item.mail_tries, now)
    mine = InboxItem.objects.filter(pk=item.pk, mail_due_at=item.mail_due_at, mail_tries=item.mail_tries)
    if not mine.update(mail_tries=F("mail_tries") + 1, mail_due_at=again):
        return False
    try:
        letter(item, item.user).send()
    except Exception as error:  # whatever is wrong with this one: the others go out
        log.warning(
            "mail.failed", inbox=item.pk, error=f"{type(error).__name__}: {error}", again=again and again.isoformat()
        )
        return False
    InboxItem.objects.filter(pk=item.pk).update(mail_due_at=None, mailed_at=timezone.now())
    return True


def letter(item: InboxItem, user: User) -> EmailMessage:
    """In the reader's language and zone; the subject is the sentence's beginning."""
    with translation.override(user.language or settings.LANGUAGE_CODE), timezone.override(zone_of(user)):
        text = notices.sentence(item.kind, item.data)
        address = link(item.department.slug if item.department else "", item.workload)
        foot = gettext("You can choose in your inbox's settings which of these come by mail.")
    body = "\n\n".join(part for part in (text, address, foot) if part)
    subject = printable(text)
    subject = subject if len(subject) <= 100 else subject[:97] + "…"
    return EmailMessage(subject, body, to=[user.email])
