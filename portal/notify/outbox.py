"""Sends what is due: mails of inbox lines, and webhook deliveries.

A row is claimed by moving its next attempt into the future, in one compare-and-set, so two workers never send the same one at
once; a row whose worker was killed while sending is tried again. Receivers recognise a repeat by its delivery id.

Messages go in lanes: one for each host that webhooks name, one for the mail server. A lane sends one message at a time over all
processes, so a slow receiver delays only its own messages (portal/notify/sender.py gives each lane a thread). A
webhook that has failed OPENS_AFTER times in a row is not called for a while and its owners are notified; then one delivery is
tried: a circuit breaker.
"""

from __future__ import annotations

import datetime as dt
import time

import httpx
import structlog
from django.conf import settings
from django.contrib.auth.tokens import default_token_generator
from django.core.mail import EmailMessage
from django.db.models import F, Min, Q, QuerySet
from django.urls import reverse
from django.utils import timezone, translation
from django.utils.http import int_to_base36
from django.utils.translation import gettext

from portal.errors import N_, Problem
from portal.infra.crypt import decrypt
from portal.infra.locks import durable
from portal.models import InboxItem, SendingLane, User, Webhook, WebhookDelivery
from portal.names import printable
from portal.notify import notices, safe_http
from portal.notify.pages import page_of
from portal.notify.webhook_shapes import Message, refusal
from portal.notify.webhook_shapes import outgoing as shaped
from portal.text.zones import zone_of

PAUSES = [10, 60, 300, 1800, 7200, 21600, 86400]  # s after each failed attempt; then the message is given up
FAR = dt.datetime(9999, 1, 1, tzinfo=dt.UTC)  # `due_at` of a message that is given up
MAIL = "mail:"  # the lane of mails; no host name contains a colon
LEASE = dt.timedelta(seconds=30)  # of a lane, longer than one message takes; expires if the sender was killed
TEST = "webhook.test"
OPENS_AFTER = 5  # failures in a row
OPEN_FOR = [300, 900, 3600]  # s before the next attempt; the last value repeats
log = structlog.get_logger(__name__)


def send_due(*, now: dt.datetime | None = None) -> int:
    """Sends everything due, lane by lane; returns how many. A failure in one lane does not affect another."""
    now = now or timezone.now()
    return sum(drain(lane, now=now) for lane in lanes_due(now))


def due(now: dt.datetime) -> QuerySet[WebhookDelivery]:
    """Deliveries that are due and not held back by the circuit breaker; tests are due regardless of it."""
    works = Q(webhook__active=True) & (Q(webhook__open_until=None) | Q(webhook__open_until__lte=now))
    rows = WebhookDelivery.objects.filter(Q(kind=TEST) | works, sent_at=None, due_at__lte=now)
    return rows.select_related("webhook__department").order_by("id")


def mails_due(now: dt.datetime) -> QuerySet[InboxItem]:
    return InboxItem.objects.filter(mail_due_at__lte=now).select_related("user", "department").order_by("id")


def lanes_due(now: dt.datetime) -> list[str]:
    """Lanes with something due: mails first, then the host that has waited longest."""
    urls = due(now).order_by().values("webhook__url").annotate(since=Min("due_at")).order_by("since")
    hosts = dict.fromkeys(safe_http.host_of(row["webhook__url"]) for row in urls)
    return [MAIL, *hosts] if mails_due(now).exists() else list(hosts)


def drain(lane: str, *, now: dt.datetime | None = None) -> int:
    """Sends what is due in this lane, one message after another; returns how many. 0 if another process has the lane, which
    lasts at most 2 × LEASE, even if that process's clock is ahead."""
    rows, sent = SendingLane.objects.filter(lane=lane), 0
    began = timezone.now()
    SendingLane.objects.get_or_create(lane=lane, defaults={"busy_until": began})
    free = Q(busy_until__lte=began) | Q(busy_until__gt=began + 2 * LEASE)
    if not rows.filter(free).update(busy_until=began + LEASE):
        return 0
    try:
        while (row := _next(lane, now or timezone.now())) is not None:
            rows.update(busy_until=timezone.now() + LEASE)
            moment = now or timezone.now()
            sent += mail(row, now=moment) if isinstance(row, InboxItem) else deliver(row, now=moment)
    finally:
        rows.update(busy_until=timezone.now())
    return sent


def _next(lane: str, now: dt.datetime) -> InboxItem | WebhookDelivery | None:
    if lane == MAIL:
        return mails_due(now).first()
    hooks = due(now).order_by().values_list("webhook", "webhook__url").distinct()
    return due(now).filter(webhook__in=[pk for pk, url in hooks if safe_http.host_of(url) == lane]).first()


def next_try(tries: int, now: dt.datetime) -> dt.datetime | None:
    """When to try again after `tries` attempts; None: never."""
    return now + dt.timedelta(seconds=PAUSES[tries]) if tries < len(PAUSES) else None


def deliver(row: WebhookDelivery, *, now: dt.datetime) -> bool:
    """Attempts one delivery (a test only once). False if another process has it or it failed; the row then has the error."""
    due_at = (next_try(row.tries, now) if row.kind != TEST else None) or FAR
    unclaimed = WebhookDelivery.objects.filter(pk=row.pk, sent_at=None, tries=row.tries, due_at=row.due_at)
    if not unclaimed.update(tries=F("tries") + 1, due_at=due_at):
        return False
    try:
        status, error = attempt(row)
    except Exception as unforeseen:  # one faulty message must not hold up the others
        status, error = None, f"{type(unforeseen).__name__}: {unforeseen}"
    WebhookDelivery.objects.filter(pk=row.pk).update(
        status=status, error=error[:300], sent_at=None if error else timezone.now()
    )
    if not error:
        _close(row.webhook_id, now)
        return True
    log.warning("webhook.failed", webhook=row.webhook_id, delivery=row.pk, error=error, tries=row.tries + 1)
    if row.kind != TEST:
        _count_failure(row.webhook_id, error, now)
    return False


def _close(webhook: int, now: dt.datetime) -> None:
    """Closes the circuit breaker: what failed in the meantime is due now."""
    rows = Webhook.objects.filter(pk=webhook)
    was_open = rows.exclude(open_until=None).update(failures=0, failing_since=None, open_until=None)
    if was_open:
        WebhookDelivery.objects.filter(webhook=webhook, sent_at=None, due_at__lt=FAR).exclude(kind=TEST).update(
            due_at=now
        )
    else:
        rows.filter(failures__gt=0).update(failures=0, failing_since=None)


def _count_failure(webhook: int, error: str, now: dt.datetime) -> None:
    """Counts a failure: the OPENS_AFTER-th in a row opens the breaker and notifies the owners; each further one keeps
    it open."""
    with durable():
        hook = Webhook.objects.select_for_update(no_key=True, of=("self",)).select_related("department").get(pk=webhook)
        hook.failures += 1
        hook.failing_since = hook.failing_since or now
        beyond = hook.failures - OPENS_AFTER
        if beyond >= 0:
            hook.open_until = now + dt.timedelta(seconds=OPEN_FOR[min(beyond, len(OPEN_FOR) - 1)])
        hook.save(update_fields=["failures", "failing_since", "open_until"])
        if beyond == 0:
            notices.send(
                "webhook.failing", to=notices.owners_of(hook.department), department=hook.department,
                name=hook.name, error=error[:200], failures=hook.failures,
            )  # fmt: skip


def attempt(row: WebhookDelivery) -> tuple[int | None, str]:
    """Sends once; returns (HTTP status, reason for the refusal or "")."""
    hook = row.webhook
    path = page_of(row.kind, hook.department.slug, str(row.data.get("workload", "")), row.data)
    address = settings.BASE_URL + (path or reverse("portal:inbox"))
    with translation.override(hook.language):
        text, open_page = notices.sentence(row.kind, row.data), gettext("Open in the portal")
    facts = {**row.data, "department": hook.department.slug, "at": row.created_at.isoformat(), "link": address}
    message = Message(f"{row.pk}", row.kind, text, facts, time.time(), address, open_page)
    try:
        secret = decrypt(hook.secret, N_("The secret of the webhook %(name)s"), hook.name)
        request = shaped(hook.shape, hook.url, secret, message)
        answer = safe_http.post(request.url, request.body, request.headers)
    except Problem as error:
        return None, error.detail
    except (OSError, httpx.HTTPError, httpx.InvalidURL) as error:
        return None, f"{type(error).__name__}: {error}"
    return answer.status, refusal(hook.shape, answer.status, answer.body)


def mail(item: InboxItem, *, now: dt.datetime) -> bool:
    again = next_try(item.mail_tries, now)
    unclaimed = InboxItem.objects.filter(pk=item.pk, mail_due_at=item.mail_due_at, mail_tries=item.mail_tries)
    if not unclaimed.update(mail_tries=F("mail_tries") + 1, mail_due_at=again):
        return False
    try:
        letter(item, item.user).send()
    except Exception as error:  # one faulty message must not hold up the others
        log.warning(
            "mail.failed", inbox=item.pk, error=f"{type(error).__name__}: {error}", again=again and again.isoformat()
        )
        return False
    InboxItem.objects.filter(pk=item.pk).update(mail_due_at=None, mailed_at=timezone.now())
    return True


def password_link(user: User) -> str:
    """Where the person sets a new password. Made when it is mailed and never stored: whoever has it has the account."""
    where = [int_to_base36(user.pk), default_token_generator.make_token(user)]
    return settings.BASE_URL + reverse("account_reset_password_from_key", args=where)


def letter(item: InboxItem, user: User) -> EmailMessage:
    """The mail in its reader's language and time zone; its subject is the beginning of the sentence."""
    with translation.override(user.language or settings.LANGUAGE_CODE), timezone.override(zone_of(user.time_zone)):
        text = notices.sentence(item.kind, item.data)
        department = item.department.slug if item.department else ""
        path = page_of(item.kind, department, item.workload, item.data) if item.workload else ""
        address = settings.BASE_URL + (path or reverse("portal:inbox_item", args=[item.pk]))
        foot = gettext("You can choose in the inbox settings which of these are sent by mail.")
        if item.kind == "user.password_forgotten":
            address, foot = password_link(user), ""
    body = "\n\n".join(part for part in (text, address, foot) if part)
    subject = printable(text)
    subject = subject if len(subject) <= 100 else subject[:97] + "…"
    return EmailMessage(subject, body, to=[user.email])
