"""A person's calendar feed: when their workloads start, must release capacity and end, and recalls of their departments."""

from __future__ import annotations

import datetime as dt
import secrets
from collections.abc import Iterator
from dataclasses import dataclass

from django.conf import settings
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _
from icalendar import Calendar, Event

from portal import audit
from portal.access import Actor, visible
from portal.infra.locks import durable
from portal.models import Department, User
from portal.text.words import amount
from quotas.models import WINDOW, Claim, ClaimState
from workloads.clusters.run_spec import digest
from workloads.estimates.words import is_range, start_lines
from workloads.lifecycle import LIVE, State
from workloads.models import Attempt, CalendarFeed, Workload
from workloads.status.attempts import estimate_of, known_attempts, with_attempts

MOST = 500
AGAIN = dt.timedelta(minutes=15)  # how often calendar programs should read the feed
NOTED = dt.timedelta(hours=1)  # precision of the stored time of the last read


# The secret address ---------------------------------------------------------------------------------------------------


def new_feed(*, actor: Actor) -> str:
    """Creates the person's feed, or replaces its address so that the old one is invalid. Returns the secret of the address,
    which is shown only once."""
    user = _person(actor)
    secret = secrets.token_urlsafe(32)
    with durable():
        User.objects.select_for_update(no_key=True).get(pk=user.pk)
        CalendarFeed.objects.update_or_create(
            user=user, defaults={"digest": digest(secret), "created_at": timezone.now(), "read_at": None}
        )
        audit.record(actor, "calendar.created", user.username)
    return secret


def end_feed(*, actor: Actor) -> None:
    """Revokes the feed's address, if there is one."""
    user = _person(actor)
    with durable():
        User.objects.select_for_update(no_key=True).get(pk=user.pk)
        ended, _each = CalendarFeed.objects.filter(user=user).delete()
        if ended:
            audit.record(actor, "calendar.ended", user.username)


def reader_of(secret: str) -> User | None:
    """The owner of the feed with this secret; None if the secret is unknown or revoked, or its owner may not log in."""
    row = CalendarFeed.objects.filter(digest=digest(secret), user__is_active=True).select_related("user").first()
    if row is None:
        return None
    now = timezone.now()
    if row.read_at is None or row.read_at < now - NOTED:
        CalendarFeed.objects.filter(pk=row.pk, digest=row.digest).update(read_at=now)
    return row.user


def _person(actor: Actor) -> User:
    if actor.user is None:
        raise ValueError("a calendar is a person's")
    return actor.user


# The content ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry of the calendar. Its `key` stays the same when its time changes."""

    key: str
    title: str
    begin: dt.datetime
    end: dt.datetime
    text: str
    path: str
    changed: dt.datetime


def calendar_of(user: User) -> bytes:
    """The feed as iCalendar (RFC 5545), in the active language."""
    calendar = Calendar()
    calendar.add("prodid", "-//GPU quota portal//calendar//EN")
    calendar.add("version", "2.0")
    calendar.add("x-wr-calname", _("GPU quota"))
    calendar.add("refresh-interval", AGAIN, {"value": "DURATION"})
    calendar.add("x-published-ttl", "PT15M")
    host = str(settings.BASE_URL).split("://")[-1].split("/")[0].split(":")[0]
    for entry in entries_of(Actor(user), user):
        event = Event()
        event.add("uid", f"{entry.key}@{host}")
        event.add("dtstamp", entry.changed.astimezone(dt.UTC))
        event.add("dtstart", entry.begin.astimezone(dt.UTC).replace(microsecond=0))
        event.add("dtend", entry.end.astimezone(dt.UTC).replace(microsecond=0))
        event.add("summary", entry.title)
        event.add("description", entry.text)
        event.add("url", settings.BASE_URL + entry.path)
        event.add("transp", "TRANSPARENT")  # the person is not busy then
        calendar.add_component(event)
    return bytes(calendar.to_ical())


def entries_of(actor: Actor, user: User) -> Iterator[Entry]:
    """Entries for the person's live workloads, and for recalls of the departments that the person is a member of."""
    own = visible(actor, Workload.objects.filter(author=user, state__in=LIVE)).order_by("-public_id")[:MOST]
    for workload in with_attempts(own):
        attempts = known_attempts(workload)
        if attempts:
            yield from _of_workload(workload, attempts[-1])
    departments = Department.objects.filter(memberships__user=user)
    recalls = Claim.objects.filter(pods=0, released_at=None, department__in=departments).select_related(
        "department", "pool"
    )
    for recall in visible(actor, recalls).order_by("public_id")[:MOST]:
        yield from _of_recall(recall)


def _of_workload(workload: Workload, attempt: Attempt) -> Iterator[Entry]:
    path = reverse("workloads:detail", args=[workload.department.slug, workload.public_id])
    name, where, claim = {"name": workload.name}, f"{workload.department.name}, {workload.pool.name}", attempt.claim
    size = f"{amount(workload.units, workload.pool)} · {where}"

    def entry(what: str, title: str, at: dt.datetime, until: dt.datetime | None = None, *more: str) -> Entry:
        text = "\n".join([size, *more])
        key = f"{workload.public_id}-{what}"
        return Entry(key, title % name, at, max(at, until or at), text, path, claim.answered_at or workload.state_since)

    estimate = estimate_of(workload)
    if claim.state == ClaimState.PENDING and claim.promised_at and workload.state == State.QUEUED:
        yield entry("start", _("%(name)s starts, at the latest"), claim.promised_at)
    elif estimate is not None and estimate.low is not None and estimate.median is not None:
        begin, lines = max(estimate.low, timezone.now()), start_lines(estimate)
        title = _("%(name)s probably starts") if is_range(estimate) else _("%(name)s probably starts by now")
        yield entry("start", title, begin, estimate.high or estimate.median, *lines)
    if workload.state == State.RECALLED and attempt.reclaim_at:
        yield entry("recalled", _("%(name)s is recalled: save by now"), attempt.reclaim_at)
    if workload.state in (State.RUNNING, State.RECALLED) and workload.max_runtime and attempt.started_at:
        ends = attempt.started_at + dt.timedelta(seconds=workload.max_runtime)
        yield entry("end", _("%(name)s reaches its maximum runtime"), ends)


def _of_recall(recall: Claim) -> Iterator[Entry]:
    pool, department = recall.pool, recall.department
    words = {"units": amount(recall.units, pool), "department": department.name, "pool": pool.name}
    path, changed = reverse("quotas:department", args=[department.slug]), recall.answered_at or recall.submitted_at
    text = _("By a lending window.") if recall.name == WINDOW else recall.name
    if recall.state == ClaimState.PENDING and recall.promised_at:
        title = _("%(units)s of %(pool)s are back at %(department)s, at the latest") % words
        yield Entry(f"{recall.public_id}-back", title, recall.promised_at, recall.promised_at, text, path, changed)
    if recall.until is not None:
        title = _("The recall of %(units)s of %(pool)s for %(department)s ends") % words
        yield Entry(f"{recall.public_id}-end", title, recall.until, recall.until, text, path, changed)
