"""Telling people: a line in the inbox, perhaps a mail, and the department's webhooks, in the transaction of the event.

A notice is a kind and its facts; the sentence is made where it is read, in the reader's language and zone.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from django.db.models import Q
from django.utils import timezone
from django.utils.dateparse import parse_datetime
from django.utils.translation import gettext

from portal.background.hints import wake
from portal.errors import N_
from portal.models import Department, InboxItem, NoticePreference, Role, User, Webhook, WebhookDelivery
from portal.text.words import amount, unit_name


@dataclass(frozen=True, slots=True)
class Kind:
    """`title` names it in settings; `sentence` has %(places)s for its facts. `mail`: sent unless the person says no.
    `webhooks`: whether it is for them too."""

    title: str
    sentence: str
    mail: bool = False
    webhooks: bool = True


KINDS: dict[str, Kind] = {
    "workload.recalled": Kind(
        N_("My work has to give capacity back"),
        N_("%(name)s has to give its capacity back: SIGTERM comes at %(reclaim_at)s. Save now; it is queued again."),
        mail=True,
    ),
    "workload.withdrawn": Kind(
        N_("A recall was withdrawn"), N_("%(name)s may stay: nobody needs its capacity any more.")
    ),
    "workload.requeued": Kind(
        N_("My work was stopped and queued again"),
        N_("%(name)s has given its capacity back and is queued again (attempt %(attempt)s has ended)."),
    ),
    "workload.lost": Kind(
        N_("My work was lost with its machine"),
        N_("%(name)s was lost with its machine or pod and is queued again (attempt %(attempt)s has ended)."),
    ),
    "workload.retried": Kind(
        N_("My work has failed and begins again"),
        N_("%(name)s has failed (%(reason)s) and is queued again, as its restarts allow (attempt %(attempt)s has ended)."),
    ),
    "workload.succeeded": Kind(N_("My work has finished"), N_("%(name)s has finished.")),
    "workload.failed": Kind(N_("My work has failed"), N_("%(name)s has failed: %(reason)s."), mail=True),
    "workload.rejected": Kind(
        N_("My work will not start"), N_("%(name)s will not start: %(reason)s."), mail=True
    ),
    "recall.done": Kind(
        N_("Capacity we recalled is back"), N_("%(units)s %(unit)s of %(pool)s are back for %(department)s.")
    ),
    "member.invited": Kind(
        N_("I was added to a department"), N_("You are now %(role)s of %(department)s."), mail=True
    ),
    "member.removed": Kind(
        N_("I was removed from a department"), N_("You are no longer a member of %(department)s."), mail=True
    ),
    "quota.changed": Kind(
        N_("Our quota was changed"),
        N_("The quota of %(department)s in %(pool)s is now %(guaranteed)s guaranteed, borrow limit %(borrow_limit)s, "
           "lend limit %(lend_limit)s."),
    ),
    "token.expiring": Kind(
        N_("One of my tokens is about to end"), N_("Your token %(name)s ends at %(expires_at)s."), mail=True
    ),
    "token.ended": Kind(
        N_("Tokens of our service accounts have ended"),
        N_("Tokens of service accounts of %(department)s have ended with the right of %(person)s, who made them: %(tokens)s. "
           "Make new ones where they are needed."),
        mail=True,
    ),
    "webhook.failing": Kind(
        N_("A webhook of ours does not take what it is sent"),
        N_("The webhook %(name)s of %(department)s has failed %(failures)s times in a row (%(error)s). It is left alone for a "
           "while and then tried again; what waits is kept for 30 days."),
        mail=True, webhooks=False,
    ),
    "webhook.test": Kind(
        N_("Test of a webhook"), N_("This is a test from %(department)s. Nothing has happened."), mail=False
    ),
}  # fmt: skip
SETTABLE = [kind for kind in KINDS if kind != "webhook.test"]

AMOUNTS = {"guaranteed", "borrow_limit", "lend_limit"}  # in the pool's unit, the fact `unit`
REASONS: dict[str, str] = {
    "max_runtime": N_("its time limit was reached"),
    "max_reclaims": N_("it was recalled more often than the pool allows"),
    "max_wait": N_("it waited longer than its longest wait"),
    "unknown_image": N_("its image is not available there"),
    "OOMKilled": N_("it ran out of memory"),
    "Error": N_("its command ended with an error"),
    "DeadlineExceeded": N_("its time limit was reached"),
}


def tell(
    kind: str, *, to: Iterable[User], department: Department | None = None, workload: str = "", **facts: Any
) -> None:
    """One line for each active person who wants it, and one delivery for each of the department's webhooks.

    Mails and webhooks go out by portal.deliver after commit. Raises ValueError for a kind that KINDS does not know.
    """
    if kind not in KINDS:
        raise ValueError(f"{kind} is no kind of notice: {sorted(KINDS)}")
    if department is not None:
        facts.setdefault("department", department.name)
    now = timezone.now()
    people = {user.pk: user for user in to if user.is_active and user.service_of_id is None}
    choices = {row.user_id: row for row in NoticePreference.objects.filter(user__in=people, kind=kind)}
    items = []
    for pk, user in people.items():
        choice = choices.get(pk)
        inbox, mail = (choice.inbox, choice.mail) if choice else (True, KINDS[kind].mail)
        if inbox or mail:
            items.append(
                InboxItem(
                    user=user,
                    kind=kind,
                    department=department,
                    workload=workload,
                    data=facts,
                    created_at=now,
                    read_at=None if inbox else now,  # a mail only: nothing new in the inbox
                    mail_due_at=now if mail and user.email else None,
                )
            )
    InboxItem.objects.bulk_create(items)
    called = (
        department and KINDS[kind].webhooks and deliver_to_webhooks(kind, department, {**facts, "workload": workload})
    )
    if called or any(item.mail_due_at for item in items):
        wake("portal.deliver")


def deliver_to_webhooks(kind: str, department: Department, facts: Mapping[str, Any]) -> bool:
    """Writes the outbox rows; True if there are any."""
    hooks = [hook for hook in Webhook.objects.filter(department=department, active=True) if wants(hook, kind)]
    WebhookDelivery.objects.bulk_create([WebhookDelivery(webhook=hook, kind=kind, data=dict(facts)) for hook in hooks])
    return bool(hooks)


def wants(hook: Webhook, kind: str) -> bool:
    return not hook.kinds or kind in hook.kinds


def owners_of(department: Department) -> list[User]:
    """Quota owners of the department or of one above it."""
    above: list[int] = []
    row: Department | None = department
    while row is not None:
        above.append(row.pk)
        row = row.parent
    owned = Q(memberships__department__in=above, memberships__role=Role.OWNER)
    return list(User.objects.filter(owned, is_active=True).distinct().order_by("username"))


class _Facts(dict[str, str]):
    """Old rows may lack a fact that today's sentence names."""

    def __missing__(self, key: str) -> str:
        return "–"


def sentence(kind: str, facts: Mapping[str, Any]) -> str:
    """In the active language and zone. A kind that is no longer known gives its own name."""
    if kind not in KINDS:
        return kind
    unit = facts.get("unit", "")
    texts = {key: amount(value, unit) if key in AMOUNTS and unit else shown(key, value) for key, value in facts.items()}
    return gettext(KINDS[kind].sentence) % _Facts(texts)


def shown(key: str, value: Any) -> str:
    if key == "reason":
        reason = str(value)
        return gettext(REASONS[reason]) if reason in REASONS else reason or gettext("its command ended with an error")
    if key == "unit":
        return unit_name(str(value))
    if key == "role":
        return str(Role(value).label) if value in Role.values else str(value)
    if key.endswith("_at") and isinstance(value, str) and (when := parse_datetime(value)):
        return moment(when)
    return "–" if value is None else str(value)


def moment(when: dt.datetime) -> str:
    """18:20 today, else with its date; the zone is named because mails and chats are read elsewhere."""
    local = timezone.localtime(when)
    today = local.date() == timezone.localdate()
    return f"{local:%H:%M:%S %Z}" if today else f"{local:%Y-%m-%d %H:%M %Z}"
