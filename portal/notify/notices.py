"""Notifications to people: an inbox line, perhaps a mail, and the department's webhooks, in the transaction of the
event.

A notice is stored as a kind and facts; the sentence is composed when it is read, in the reader's language and time zone.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from django.db.models import Q
from django.utils import timezone
from django.utils.dateparse import parse_datetime
from django.utils.translation import gettext

from portal.background.hints import wake
from portal.errors import N_
from portal.models import Department, InboxItem, NoticePreference, Role, User, Webhook, WebhookDelivery
from portal.text.plain_errors import plain_error
from portal.text.words import limit_in_words, stored_sentence, unit_hours, unit_name


class Audience(StrEnum):
    """Whom a kind of notice is for."""

    DEPARTMENT = "department"  # its people, and its webhooks
    PERSON = "person"  # the person it is about, and no webhook
    OPERATORS = "operators"  # and nobody else


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of notice. `title` is its name in the settings; `sentence` has placeholders for its facts, such as %(name)s.
    `more` is added if all facts in it are known. `mail`: mailed by default."""

    title: str
    sentence: str
    more: str = ""
    mail: bool = False
    audience: Audience = Audience.DEPARTMENT

    @property
    def words(self) -> str:
        """The sentence in the active language, without its facts."""
        return PLACE.sub("", gettext(self.sentence))

    @property
    def for_webhooks(self) -> bool:
        return self.audience is Audience.DEPARTMENT


KINDS: dict[str, Kind] = {
    "workload.recalled": Kind(
        N_("A workload is being recalled"),
        N_("%(name)s is being recalled: it receives SIGTERM at %(reclaim_at)s. Save your work now; it "
            "will be queued again."),
        mail=True,
    ),
    "workload.quarantined": Kind(
        N_("A workload has to leave faulty hardware"),
        N_("%(name)s has to leave %(place)s, which is quarantined (%(why)s): it receives SIGTERM at %(reclaim_at)s. Save "
            "your work now; it will be queued again, and this does not count as a recall or a failure."),
        mail=True,
    ),
    "workload.on_quarantined": Kind(
        N_("A non-preemptible workload runs on faulty hardware"),
        N_("%(name)s runs on %(place)s, which is quarantined (%(why)s). It is non-preemptible and is not stopped: check its "
            "results, or stop it and submit it again."),
        mail=True,
    ),
    "node.quarantined": Kind(
        N_("A node or card is quarantined"), N_("%(place)s is quarantined: %(why)s."), mail=True, audience=Audience.OPERATORS
    ),
    "node.quarantine_ended": Kind(
        N_("A quarantine of a node or card has ended"), N_("%(place)s is no longer quarantined (%(why)s)."),
        mail=True, audience=Audience.OPERATORS,
    ),
    "cluster.not_measured": Kind(
        N_("Use is not measured on a cluster"),
        N_("What pods use on %(cluster)s has not been measured since %(since_at)s: %(why)s Until it is, idle work is not found "
            "there, and reports say “not measured”."),
        mail=True, audience=Audience.OPERATORS,
    ),
    "cluster.measured": Kind(
        N_("Use is measured again on a cluster"), N_("What pods use on %(cluster)s is measured again."),
        audience=Audience.OPERATORS,
    ),
    "provider.missing": Kind(
        N_("An identity provider is missing in the settings"),
        N_("%(provider)s is no longer in the settings of the portal. The roles that its groups granted end at %(ends_at)s "
           "unless it is added again before."),
        mail=True, audience=Audience.OPERATORS,
    ),
    "directory.away": Kind(
        N_("A directory cannot be read"),
        N_("%(directory)s has not been read since %(since_at)s: %(why)s. Until it is, nobody there loses or gets a role here "
            "without logging in."),
        mail=True, audience=Audience.OPERATORS,
    ),
    "directory.too_many_lose": Kind(
        N_("Most people of a directory would lose their groups"),
        N_("%(people)s people of %(directory)s would lose all their groups at once, so nothing was changed. Check the directory, "
            "then read it and confirm."),
        mail=True, audience=Audience.OPERATORS,
    ),
    "directory.read_again": Kind(
        N_("A directory is read again"), N_("%(directory)s is read again."), mail=True, audience=Audience.OPERATORS,
    ),
    "workload.withdrawn": Kind(
        N_("The recall of a workload was withdrawn"), N_("%(name)s keeps running: its capacity is no longer needed elsewhere.")
    ),
    "workload.requeued": Kind(
        N_("A workload was stopped and queued again"),
        N_("%(name)s has released its capacity and is queued again (attempt %(attempt)s ended)."),
    ),
    "workload.lost": Kind(
        N_("A workload was lost with its node"),
        N_("%(name)s was lost with its node or pod and is queued again (attempt %(attempt)s ended)."),
    ),
    "workload.retried": Kind(
        N_("A workload failed and is restarting"),
        N_("%(name)s failed (%(reason)s) and is queued again: it has restarts left (attempt %(attempt)s "
            "ended)."),
    ),
    "workload.succeeded": Kind(N_("A workload succeeded"), N_("%(name)s succeeded.")),
    "workload.failed": Kind(N_("A workload failed"), N_("%(name)s failed: %(reason)s."), mail=True),
    "workload.idle_noticed": Kind(
        N_("A workload is idle"),
        N_("%(name)s has been idle since %(since_at)s: its GPU activity is below %(below)s. Stop it if it is not needed."),
        mail=True,
    ),
    "workload.idle_warned": Kind(
        N_("A workload is idle and will be stopped"),
        N_("%(name)s has been idle since %(since_at)s: its GPU activity is below %(below)s. It is stopped at %(stops_at)s "
            "unless it becomes active before. Its page shows what you can do."),
        mail=True,
    ),
    "workload.idle_withdrawn": Kind(
        N_("The stop of an idle workload was withdrawn"), N_("%(name)s is not stopped for being idle: %(end)s."),
    ),
    "workload.idle_stopped": Kind(
        N_("A workload was stopped because it was idle"),
        N_("%(name)s was stopped because it was idle. Its files are kept; submit it again when you need it."),
        mail=True,
    ),
    "workload.rejected": Kind(
        N_("A workload will not start"), N_("%(name)s will not start: %(reason)s."), mail=True
    ),
    "recall.done": Kind(
        N_("Recalled capacity is available"), N_("%(units)s %(unit)s of %(pool)s are available again to %(department)s.")
    ),
    "member.invited": Kind(
        N_("Added to a department"), N_("You are now %(role)s of %(department)s."), mail=True, audience=Audience.PERSON,
    ),
    "member.removed": Kind(
        N_("Removed from a department"), N_("You are no longer a member of %(department)s."), mail=True, audience=Audience.PERSON,
    ),
    "member.left_group": Kind(
        N_("A member left a department because their groups changed"),
        N_("%(person)s is no longer a member of %(department)s: no group of an identity provider grants it any more."),
        more=N_("Workloads that are still queued or running (%(count)s): %(work)s. They continue until somebody stops them."),
        mail=True,
    ),
    "quota.changed": Kind(
        N_("A quota was changed"),
        N_("The quota of %(department)s in %(pool)s was changed. Guaranteed: %(guaranteed)s, borrow limit: "
            "%(borrow_limit)s, lend limit: %(lend_limit)s."),
    ),
    "quota.requested": Kind(
        N_("A department requests more quota"),
        N_("%(person)s requests for %(department)s in %(pool)s: %(what)s %(wanted)s. Reason: %(why)s"),
        mail=True,
    ),
    "quota.request_comment": Kind(
        N_("Somebody commented on a quota request"),
        N_("%(person)s wrote about the request of %(department)s for %(wanted)s of %(pool)s: %(text)s"),
    ),
    "quota.request_approved": Kind(
        N_("A quota request was approved"),
        N_("%(person)s approved for %(department)s in %(pool)s: %(what)s %(granted)s (requested: %(wanted)s)."),
        more=N_("Note: %(note)s"),
        mail=True,
    ),
    "quota.request_denied": Kind(
        N_("A quota request was denied"),
        N_("%(person)s denied the request of %(department)s for %(what)s %(wanted)s in %(pool)s. Reason: %(note)s"),
        mail=True,
    ),
    "quota.term_begun": Kind(
        N_("A granted quota begins"), N_("%(department)s now has in %(pool)s: %(what)s %(granted)s, until %(ends_at)s."),
    ),
    "quota.term_ending": Kind(
        N_("A granted quota ends soon"),
        N_("In %(pool)s, %(what)s %(granted)s of %(department)s ends at %(ends_at)s. Renew it in time, or use less: "
           "workloads above the quota can then be recalled."),
        mail=True,
    ),
    "quota.term_ended": Kind(
        N_("A granted quota ended"),
        N_("In %(pool)s, %(what)s %(granted)s of %(department)s has ended. Workloads above the current quota continue, "
           "and can be recalled."),
        mail=True,
    ),
    "quota.term_missed": Kind(
        N_("A granted quota could not begin before its term ended"),
        N_("In %(pool)s, %(what)s %(granted)s of %(department)s never began: capacity was short until its term ended."),
        mail=True,
    ),
    "quota.term_delayed": Kind(
        N_("A granted quota could not begin or end in time"),
        N_("In %(pool)s, %(what)s %(granted)s of %(department)s could not be changed in time: %(cause)s. It is retried "
           "every minute."),
        mail=True,
    ),
    "budget.set": Kind(
        N_("A budget was set"),
        N_("%(person)s set a budget of %(hours)s GPU-hours for %(whose)s (department: %(department)s, pool: %(pool)s)."),
    ),
    "budget.removed": Kind(
        N_("A budget was removed"),
        N_("%(person)s removed the budget of %(hours)s GPU-hours of %(whose)s (department: %(department)s, pool: %(pool)s)."),
    ),
    "budget.near": Kind(
        N_("A budget is nearly used up"),
        N_("The budget of %(whose)s (department: %(department)s, pool: %(pool)s) is nearly used up: %(used)s of %(hours)s "
            "GPU-hours. It resets at %(resets_at)s. When it is used up: %(action)s."),
        mail=True,
    ),
    "budget.reached": Kind(
        N_("A budget is used up"),
        N_("The budget of %(whose)s (department: %(department)s, pool: %(pool)s) is used up: %(used)s of %(hours)s "
            "GPU-hours. Until %(resets_at)s: %(action)s. What runs is not stopped."),
        mail=True,
    ),
    "usage.month": Kind(
        N_("Monthly report on the usage of a department"),
        N_("Usage of %(department)s in %(month)s: %(figures)s."), more=N_("Cost: %(cost)s."),
        mail=True,
    ),
    "token.expiring": Kind(
        N_("A token expires soon"), N_("The token %(name)s expires at %(expires_at)s."), mail=True
    ),
    "token.ended": Kind(
        N_("Tokens of service accounts are no longer valid"),
        N_("Tokens of service accounts of %(department)s are no longer valid because %(person)s, who "
            "created them, lost the required role: %(tokens)s. Create new ones where needed."),
        mail=True,
    ),
    "user.password_forgotten": Kind(
        N_("A new password was requested for my account"),
        N_("A new password was requested for your account %(username)s. The link to set it was sent by mail. If this was "
           "not you, no action is needed: the password is unchanged."),
        mail=True, audience=Audience.PERSON,
    ),
    "webhook.failing": Kind(
        N_("A webhook is failing"),
        N_("The webhook %(name)s of %(department)s has failed %(failures)s times in a row (%(error)s). "
            "Delivery pauses for a while and is then retried; undelivered messages are kept for 30 days."),
        mail=True, audience=Audience.PERSON,
    ),
    "webhook.test": Kind(
        N_("Webhook test"), N_("This is a test message from %(department)s. No action is needed."),
        audience=Audience.PERSON,  # sent to one webhook, whatever kinds it wants
    ),
}  # fmt: skip
SETTABLE = [kind for kind in KINDS if kind not in {"webhook.test", "user.password_forgotten"}]
PLACE = re.compile(r"%\((\w+)\)s")

AMOUNTS = {"guaranteed", "borrow_limit", "lend_limit", "wanted", "granted"}  # in the pool's unit, the fact `unit`
WHAT = {"guaranteed": N_("guaranteed"), "borrow_limit": N_("borrow limit")}
SPELL_ENDS = {  # why an idle workload is not stopped after all
    "busy": N_("it became active"),
    "exempt": N_("it is exempt"),
    "policy": N_("the policy no longer applies to it"),
    "unknown": N_("its use is no longer measured"),
}
CAUSES = {  # why a granted quota waits
    "over_promised": N_("the pool's capacity is guaranteed to other departments"),
    "nothing_to_split": N_("the parent department has too little quota left"),
    "below_non_preemptible": N_("non-preemptible workloads hold it"),
    "": N_("the quota has changed meanwhile"),
}
ACTIONS = {  # what a budget that is used up does
    "nothing": N_("nothing is blocked"),
    "no_borrowing": N_("only what fits inside the guaranteed quota starts"),
    "no_new_work": N_("nothing new starts"),
}
REASONS: dict[str, str] = {
    "max_runtime": N_("its time limit was reached"),
    "max_reclaims": N_("it was recalled more often than the pool allows"),
    "max_wait": N_("it waited longer than its maximum waiting time"),
    "unknown_image": N_("its image cannot be pulled"),
    "OOMKilled": N_("it ran out of memory"),
    "Error": N_("its command exited with an error"),
    "DeadlineExceeded": N_("its time limit was reached"),
}


def send(
    kind: str, *, to: Iterable[User], department: Department | None = None, workload: str = "", **facts: Any
) -> None:
    """Notifies people (`to`) and the department's webhooks; `facts` fill the kind's sentence.

    Writes one inbox line for each active person who wants it and one delivery for each webhook; portal.deliver sends
    mails and webhooks after commit. Raises ValueError for an unknown kind.
    """
    if kind not in KINDS:
        raise ValueError(f"{kind} is not a kind of notice: {sorted(KINDS)}")
    known = KINDS[kind]
    if department is not None:
        facts.setdefault("department", department.name)
    now = timezone.now()
    people = {user.pk: user for user in to if user.is_active and user.service_of_id is None}
    if known.audience is Audience.OPERATORS and not all(user.is_operator for user in people.values()):
        raise ValueError(f"{kind} is for operators only")
    choices = {row.user_id: row for row in NoticePreference.objects.filter(user__in=people, kind=kind)}
    items = []
    for pk, user in people.items():
        choice = choices.get(pk)
        inbox, mail = (choice.inbox, choice.mail) if choice else (True, known.mail)
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
        department and known.for_webhooks and deliver_to_webhooks(kind, department, {**facts, "workload": workload})
    )
    if called or any(item.mail_due_at for item in items):
        wake("portal.deliver")


def deliver_to_webhooks(kind: str, department: Department, facts: Mapping[str, Any]) -> bool:
    """Queues a delivery for each webhook that wants this kind; True if there is one."""
    hooks = [hook for hook in Webhook.objects.filter(department=department, active=True) if wants(hook, kind)]
    WebhookDelivery.objects.bulk_create([WebhookDelivery(webhook=hook, kind=kind, data=dict(facts)) for hook in hooks])
    return bool(hooks)


def wants(hook: Webhook, kind: str) -> bool:
    return not hook.kinds or kind in hook.kinds


def settable_by(user: User) -> list[str]:
    """The kinds that the person can receive and may choose in the settings."""
    return [kind for kind in SETTABLE if user.is_operator or KINDS[kind].audience is not Audience.OPERATORS]


def owners_of(department: Department) -> list[User]:
    """The owners of the department and of those above it."""
    above: list[int] = []
    row: Department | None = department
    while row is not None:
        above.append(row.pk)
        row = row.parent
    owned = Q(memberships__department__in=above, memberships__role=Role.OWNER)
    return list(User.objects.filter(owned, is_active=True).distinct().order_by("username"))


class _Facts(dict[str, str]):
    """Facts of old rows, which may lack one that the current sentence uses."""

    def __missing__(self, key: str) -> str:
        return "–"


def sentence(kind: str, facts: Mapping[str, Any]) -> str:
    """The notice's sentence in the active language and time zone; the kind itself if it is unknown."""
    if kind not in KINDS:
        return kind
    unit, known = facts.get("unit", ""), KINDS[kind]
    texts = {
        key: limit_in_words(key, value, unit) if key in AMOUNTS and unit else fact_text(key, value)
        for key, value in facts.items()
    }
    text = gettext(known.sentence) % _Facts(texts)
    if known.more and all(texts.get(key, "–") not in ("", "–") for key in PLACE.findall(known.more)):
        text = gettext("%(first)s %(second)s") % {"first": text, "second": gettext(known.more) % texts}
    return text


def fact_text(key: str, value: Any) -> str:
    """One fact as text in the active language."""
    if key == "reason":
        reason = str(value)
        return gettext(REASONS[reason]) if reason in REASONS else reason or gettext("its command exited with an error")
    if key == "error":
        return plain_error(str(value))
    if isinstance(value, Mapping):  # a stored sentence
        return stored_sentence(value)
    if key == "unit":
        return unit_name(str(value))
    if key == "cause":
        return gettext(CAUSES.get(str(value), CAUSES[""]))
    if key == "below" and value is not None:
        return f"{value} %"
    if key == "end":
        return gettext(SPELL_ENDS.get(str(value), str(value)))
    if key == "action":
        return gettext(ACTIONS.get(str(value), str(value)))
    if key in {"hours", "used"} and isinstance(value, int | float):
        return f"{value:,}"
    if key == "pool" and value is None:
        return gettext("all pools")
    if key == "what":
        return gettext(WHAT.get(str(value), str(value)))
    if key == "figures" and isinstance(value, list):
        return gettext("; ").join(_figures(each) for each in value)
    if key == "role":
        return str(Role(value).label) if value in Role.values else str(value)
    if key.endswith("_at") and isinstance(value, str) and (when := parse_datetime(value)):
        return moment(when)
    return "–" if value is None else str(value)


def _figures(row: Mapping[str, Any]) -> str:
    """What a department used, in hours of one unit."""
    text = gettext("%(unit)s: %(own)s own use, %(borrowed)s borrowed, %(lent)s lent out, %(idle)s idle")
    return text % {**row, "unit": unit_hours(str(row.get("unit", "")))}


def moment(when: dt.datetime) -> str:
    """18:20 today, else with its date; with the time zone, because mails and chat messages are read outside the portal."""
    local = timezone.localtime(when)
    today = local.date() == timezone.localdate()
    return f"{local:%H:%M:%S %Z}" if today else f"{local:%Y-%m-%d %H:%M %Z}"
