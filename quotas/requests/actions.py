"""Requests for more quota: a department asks for it; an operator or an owner of its parent decides, for good or for a term.

Approval changes the quota in the same transaction, with the pool's group locked, so that no two approvals promise the same
units. When a term ends, the quota falls back, and work above it is recalled with notice like any borrowed work.
`run_terms` begins, announces and ends terms; a run that was killed is completed by the next one.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from typing import Any

import structlog
from django.db.models import F, Q, QuerySet
from django.utils import timezone

from portal import audit, names
from portal.access import SYSTEM, Actor, Forbidden, NotVisible, Right
from portal.errors import N_, Invalid, Problem
from portal.infra.locks import durable
from portal.infra.versions import check_fresh
from portal.models import Department, Role, User
from portal.notify import notices
from portal.notify.events import emit
from portal.text.words import exact
from quotas.models import Pool, Quota, QuotaRequest, RequestComment, RequestState, Wanted
from quotas.planning.lock import locked_group
from quotas.rules.quotas import change_quota, check_sizes, fixed_units, giver_of, may_promise

log = structlog.get_logger(__name__)

REMINDERS = (30, 14, 7, 1)
"""How many days before the end of a term people are reminded of it."""
LONGEST_TERM = dt.timedelta(days=20 * 366)
MOST_OPEN = 20
"""The most open requests of one department at a time."""
MOST_COMMENTS = 100
"""The most comments on one request."""
WHY = N_("Enter in a sentence what it is for: it is shown to the approvers.")
NOT_BEGUN = [RequestState.OPEN, RequestState.SCHEDULED]
"""States in which a request has not changed the quota yet."""


class AlreadyDecided(Problem):
    status = 409
    code = "already_decided"
    message = N_("This request is no longer open: it is %(state)s.")


class NoTerm(Problem):
    status = 409
    code = "no_term"
    message = N_("Only a grant with a term that is running can be renewed.")


class TooManyRequests(Problem):
    status = 409
    code = "too_many_requests"
    message = N_("%(department)s has %(most)s open requests. Withdraw one, or wait until one is decided.")


class AlreadyRequested(Problem):
    status = 409
    code = "already_requested"
    message = N_("%(department)s already has an open request for the same quota. Comment on it, or withdraw it first.")


# The present value, and who may decide ------------------------------------------------------------------------------------------


def present_value(department: Department, pool: Pool, wanted: str) -> int | None:
    """The department's present guarantee or borrow limit (`wanted`), in units; None: no borrow limit."""
    quota = Quota.objects.filter(department=department, pool=pool).first() or Quota(guaranteed=0)
    value: int | None = getattr(quota, wanted)
    return value


def to_decide(actor: Actor) -> QuerySet[QuotaRequest]:
    """The open requests that the actor may decide."""
    rows = QuotaRequest.objects.filter(state=RequestState.OPEN)
    if actor.is_operator and Right.OPERATE in actor.scopes:
        return rows if actor.bound is None else rows.filter(department=actor.bound)
    if Right.STEER not in actor.scopes:
        return rows.none()
    owned = [pk for pk, role in actor.roles.items() if role is Role.OWNER]
    return rows.filter(department__parent__in=owned, department__in=owned)


def deciders_of(department: Department) -> list[User]:
    """Who is notified of a request: the parent's owners, who can split its quota; without any, the operators."""
    owners = notices.owners_of(department.parent) if department.parent else []
    return owners or list(User.operators())


def require_decider(actor: Actor, request: QuotaRequest) -> None:
    """Raise NotVisible or Forbidden unless the actor may decide the request."""
    actor.require(Right.SEE, request.department)
    if not may_promise(actor, request.department):
        actor.require(Right.STEER, request.department)
        raise Forbidden(role="operator")


def require_voice(actor: Actor, request: QuotaRequest) -> None:
    """Raise NotVisible or Forbidden unless the actor may comment: those who may submit in the department, or decide."""
    if not may_promise(actor, request.department):
        actor.require(Right.SUBMIT, request.department)


# Asking ---------------------------------------------------------------------------------------------------------------


def check_request(
    department: Department, pool: Pool, wanted: str, units: int | None, starts_at: dt.datetime | None,
    ends_at: dt.datetime | None, *, now: dt.datetime,
) -> int | None:  # fmt: skip
    """Return the present value. Raises Invalid (units, starts_at, ends_at) with the numbers that would be valid."""
    before = present_value(department, pool, wanted)
    check_amount(pool, wanted, units, before)
    check_sizes(pool, {}, units=units)
    check_term(starts_at, ends_at, now=now)
    return before


def check_amount(pool: Pool, wanted: str, units: int | None, before: int | None) -> None:
    """Raise Invalid (units) unless the total is more than the present value and at most what the pool has."""
    sizes: dict[str, Any] = {"field": "units", "now": before, "unit": pool.unit, "now_size": exact(before or 0, pool)}
    if wanted == Wanted.BORROW_LIMIT:
        if before is None:
            raise Invalid(
                N_("There is no borrow limit to raise: the department may borrow whatever is idle."), field="units"
            )
        if units is not None and not before < units <= pool.nominal:
            most: dict[str, Any] = {"nominal": pool.nominal, "nominal_size": exact(pool.nominal, pool)}
            raise Invalid(
                N_("The borrow limit is %(now_size)s. Enter more than that, at most %(nominal_size)s, or leave it empty "
                   "for no limit."),
                **sizes, **most,
            )  # fmt: skip
    elif units is None or units <= (before or 0):
        raise Invalid(N_("%(now_size)s are already guaranteed. Enter a new total above that."), **sizes)
    elif units > pool.nominal:
        raise Invalid(
            N_("%(pool)s can guarantee at most %(nominal_size)s in total."),
            field="units", nominal=pool.nominal, unit=pool.unit, pool=pool.name, nominal_size=exact(pool.nominal, pool),
        )  # fmt: skip


def check_term(starts_at: dt.datetime | None, ends_at: dt.datetime | None, *, now: dt.datetime) -> None:
    """Raise Invalid (starts_at, ends_at) if the term is in the past, in the wrong order or too far in the future."""
    if ends_at is not None and ends_at <= max(now, starts_at or now):
        raise Invalid(N_("The end must be in the future, and after the beginning."), field="ends_at")
    for name, moment in (("starts_at", starts_at), ("ends_at", ends_at)):
        if moment is not None and moment > now + LONGEST_TERM:
            raise Invalid(N_("Enter a time within the next 20 years."), field=name)


def ask_for_quota(
    *,
    actor: Actor,
    department: Department,
    pool: Pool,
    wanted: str,
    units: int | None,
    why: str,
    starts_at: dt.datetime | None = None,
    ends_at: dt.datetime | None = None,
) -> QuotaRequest:
    """Request a total of `units`; None: no borrow limit. Raises Invalid, TooManyRequests, AlreadyRequested (such as a form sent
    twice), Forbidden."""
    actor.require(Right.SUBMIT, department)
    now = timezone.now()
    starts_at = starts_at if starts_at is not None and starts_at > now else None
    before = check_request(department, pool, wanted, units, starts_at, ends_at, now=now)
    return _enter(
        actor,
        QuotaRequest(
            department=department, pool=pool, author=actor.user, wanted=wanted, units=units, before=before,
            why=_checked(why, "why", WHY), starts_at=starts_at, ends_at=ends_at, created_at=now,
        ),
    )  # fmt: skip


def renew(*, actor: Actor, request: QuotaRequest) -> QuotaRequest:
    """Request the same amount for another term of this length. Raises NoTerm, Invalid (one is requested already), Forbidden."""
    actor.require(Right.SUBMIT, request.department)
    request = QuotaRequest.objects.select_related("department__parent", "pool__group", "renews").get(pk=request.pk)
    if request.state != RequestState.GRANTED or request.ends_at is None or request.applied_at is None:
        raise NoTerm
    prolonged = request.renews if request.renews and request.renews.state == RequestState.RENEWED else None
    began = prolonged.ends_at if prolonged and prolonged.ends_at else request.applied_at
    if request.renewals.filter(state__in=NOT_BEGUN).exists():
        raise Invalid(N_("A renewal of this grant is already waiting for approval."))
    return _enter(
        actor,
        QuotaRequest(
            department=request.department, pool=request.pool, author=actor.user, wanted=request.wanted,
            units=request.granted, before=present_value(request.department, request.pool, request.wanted),
            why=request.why, ends_at=request.ends_at + (request.ends_at - began), renews=request,
        ),
    )  # fmt: skip


def _enter(actor: Actor, row: QuotaRequest) -> QuotaRequest:
    department, pool = row.department, row.pool
    with durable():
        # Locked, so that concurrent requests cannot exceed MOST_OPEN.
        Department.objects.select_for_update(no_key=True).get(pk=department.pk)
        open_ones = QuotaRequest.objects.filter(department=department, state=RequestState.OPEN)
        same = open_ones.filter(pool=pool, wanted=row.wanted, units=row.units, ends_at=row.ends_at)
        if row.renews is None and same.filter(starts_at=row.starts_at).exists():
            raise AlreadyRequested(department=department.name)
        if open_ones.count() >= MOST_OPEN:
            raise TooManyRequests(department=department.name, most=MOST_OPEN)
        row.save(force_insert=True)
        audit.record(actor, "quota.requested", row.public_id, department=department, after=_audited(row))
        emit("quota.requested", department=department, pool=pool.slug, request=row.public_id)
        people = [*deciders_of(department), *notices.owners_of(department)]
        _notify("quota.requested", row, people, but=actor.user, person=actor.label, why=row.why)
    return row


def _checked(text: str, field: str, asks: str) -> str:
    """The text, stripped. Raises Invalid: with the message `asks` if it is empty, or for invisible characters."""
    text = text.strip()
    if not text:
        raise Invalid(asks, field=field)
    return names.checked_paragraph(text, field)


def _audited(row: QuotaRequest) -> dict[str, Any]:
    term = {name: getattr(row, name).isoformat() for name in ("starts_at", "ends_at") if getattr(row, name)}
    return {
        "pool": row.pool.slug,
        "wanted": row.wanted,
        "units": row.units,
        "before": row.before,
        "why": row.why,
    } | term


def _notify(kind: str, row: QuotaRequest, people: Iterable[User], *, but: User | None = None, **facts: Any) -> None:
    """Notify each of the people once, except the actor (`but`), and the department's webhooks."""
    about = {"request": row.public_id, "pool": row.pool.name, "unit": row.pool.unit}
    facts |= about | {"what": row.wanted, "wanted": row.units}
    notices.send(kind, to=[user for user in people if user != but], department=row.department, **facts)


def comment(*, actor: Actor, request: QuotaRequest, text: str) -> RequestComment:
    """Add a comment. Raises Invalid, NotVisible, Forbidden."""
    require_voice(actor, request)
    text = _checked(text, "text", N_("Enter a comment."))
    with durable():
        row = QuotaRequest.objects.select_for_update(no_key=True, of=("self",)).get(pk=request.pk)
        if row.comments.count() >= MOST_COMMENTS:
            raise Invalid(N_("A request takes at most %(most)s comments."), field="text", most=MOST_COMMENTS)
        made = RequestComment.objects.create(request=row, author=actor.user, text=text)
        audit.record(actor, "quota.request_comment", row.public_id, department=row.department)
        _notify("quota.request_comment", row, _concerned(row), but=actor.user, person=actor.label, text=text)
    return made


def _concerned(row: QuotaRequest) -> list[User]:
    """The author, all who have commented, and, while the request is open, those who may decide it."""
    voices = User.objects.filter(pk__in=row.comments.values("author"), is_active=True)
    author = [row.author] if row.author else []
    return [*author, *voices, *(deciders_of(row.department) if row.is_open else [])]


# Deciding -------------------------------------------------------------------------------------------------------------


def approve(
    *,
    actor: Actor,
    request: QuotaRequest,
    units: int | None,
    ends_at: dt.datetime | None,
    note: str = "",
    expected_version: int,
) -> QuotaRequest:
    """Grant a total of `units`, which may be less than requested, until `ends_at` (None: for good), at once or from the
    requested beginning. Raises AlreadyDecided, Stale, Invalid, OverPromised, NothingToSplit, Forbidden."""
    require_decider(actor, request)
    now = timezone.now()
    with durable():
        locked_group(request.pool.group_id)
        row = _still_open(request, expected_version)
        check_term(row.starts_at, ends_at, now=now)
        row.granted, row.ends_at, row.giver = units, ends_at, giver_of(actor, row.department)
        check_grant(row, units)
        if row.starts_at is not None and row.starts_at > now:
            row.state = RequestState.SCHEDULED
        else:
            _apply(actor, row, now=now)
        _decided(actor, row, "quota.request_approved", note, now=now)
    return row


def deny(*, actor: Actor, request: QuotaRequest, note: str, expected_version: int) -> QuotaRequest:
    """Deny a request. Raises AlreadyDecided, Stale, Invalid (no reason given), Forbidden."""
    require_decider(actor, request)
    note = _checked(note, "note", N_("Enter the reason: it is shown to the requester."))
    with durable():
        row = _still_open(request, expected_version)
        row.state = RequestState.DENIED
        _decided(actor, row, "quota.request_denied", note, now=timezone.now())
    return row


def withdraw(*, actor: Actor, request: QuotaRequest) -> QuotaRequest:
    """Withdraw a request that has not changed the quota yet, as its author or an owner. Raises AlreadyDecided, Forbidden."""
    actor.require_own_or_steer(request.department, request.author)
    with durable():
        row = QuotaRequest.objects.select_for_update(no_key=True, of=("self",)).get(pk=request.pk)
        if row.state not in NOT_BEGUN:
            raise AlreadyDecided(state=row.get_state_display())
        row.state, row.ended_at, row.version = RequestState.WITHDRAWN, timezone.now(), row.version + 1
        row.save()
        audit.record(actor, "quota.request_withdrawn", row.public_id, department=row.department)
        emit("quota.requested", department=row.department, pool=row.pool.slug, request=row.public_id)
    return row


def _still_open(request: QuotaRequest, expected_version: int) -> QuotaRequest:
    """The row, locked. Raises AlreadyDecided, Stale."""
    row = _locked(request.pk)
    if not row.is_open:
        raise AlreadyDecided(state=row.get_state_display())
    check_fresh(row.version, expected_version)
    return row


def _locked(pk: int) -> QuotaRequest:
    rows = QuotaRequest.objects.select_related("department__parent", "pool__group", "giver", "renews", "author")
    return rows.select_for_update(no_key=True, of=("self",)).get(pk=pk)


def _decided(actor: Actor, row: QuotaRequest, kind: str, note: str, *, now: dt.datetime) -> None:
    row.decided_by, row.decided_at, row.note, row.version = actor.user, now, note.strip(), row.version + 1
    row.save()
    after: dict[str, Any] = {"note": row.note}
    if kind == "quota.request_approved":
        after = {"pool": row.pool.slug, "wanted": row.wanted, "units": row.granted} | after
        after |= {"ends_at": row.ends_at.isoformat()} if row.ends_at else {}
    audit.record(actor, kind, row.public_id, department=row.department, after=after)
    emit("quota.requested", department=row.department, pool=row.pool.slug, request=row.public_id)
    people = [*_concerned(row), *notices.owners_of(row.department)]
    _notify(kind, row, people, but=actor.user, granted=row.granted, person=actor.label, note=row.note)


def check_grant(row: QuotaRequest, units: int | None) -> None:
    """Raise Invalid (units) unless this total is more than the present value; for a renewal, more than the value without the
    grant."""
    old = _running(row.renews)
    before = old.replaced if old else present_value(row.department, row.pool, row.wanted)
    check_amount(row.pool, row.wanted, units, before)


def value_after(row: QuotaRequest, units: int | None) -> int | None:
    """The quota's value if a total of `units` were granted now. A renewal only adds or subtracts its difference from the grant
    that it prolongs, so later changes stay."""
    old, value = _running(row.renews), present_value(row.department, row.pool, row.wanted)
    if old is None:
        return units
    if row.wanted == Wanted.BORROW_LIMIT:
        return value if units == old.granted else units
    return (value or 0) + (units or 0) - (old.granted or 0)


def _apply(actor: Actor, row: QuotaRequest, *, now: dt.datetime) -> None:
    """Change the quota, and note how much to give back at the end. A request that was scheduled never lowers the value. Raises
    the errors of change_quota."""
    old, before = _running(row.renews), present_value(row.department, row.pool, row.wanted)
    value = value_after(row, row.granted)
    if row.state == RequestState.SCHEDULED:
        value = None if value is None or before is None else max(value, before)
    row.replaced = old.replaced if old else before
    if row.wanted == Wanted.GUARANTEED:
        row.raised_by = (old.raised_by if old else 0) + (value or 0) - (before or 0)
    if old:
        row.giver = old.giver
    if value != before:
        _set(actor, row, value)
    if old:
        old.state, old.raised_by, old.ended_at, old.version = RequestState.RENEWED, 0, now, old.version + 1
        old.save()
    row.state, row.applied_at, row.delayed = RequestState.GRANTED, now, ""
    row.reminded = _reminder(row, now=now)


def _running(row: QuotaRequest | None) -> QuotaRequest | None:
    """The grant, if it still runs. It is read again, because the caller has locked the pool's group since."""
    return QuotaRequest.objects.filter(pk=row.pk, state=RequestState.GRANTED).first() if row else None


def _set(actor: Actor, row: QuotaRequest, value: int | None) -> None:
    change_quota(
        actor=actor, department=row.department, pool=row.pool, giver=row.giver, why=f"request {row.public_id}",
        **numbers_with(row, value),
    )  # fmt: skip


def numbers_with(row: QuotaRequest, value: int | None) -> dict[str, Any]:
    """Arguments for change_quota and preview_quota that set only the requested number, to `value`."""
    quota = Quota.objects.filter(department=row.department, pool=row.pool).first()
    numbers: dict[str, Any] = {"guaranteed": 0, "borrow_limit": None, "lend_limit": None}
    numbers |= {name: getattr(quota, name) for name in numbers if quota}
    return numbers | {row.wanted: value, "expected_version": quota.version if quota else None}


# Terms ----------------------------------------------------------------------------------------------------------------


def run_terms(*, now: dt.datetime) -> int:
    """Begin, announce and end the terms that are due, each in its own transaction. Returns how many requests changed."""
    due = Q(state=RequestState.SCHEDULED, starts_at__lte=now) | Q(state=RequestState.GRANTED, ends_at__lte=now)
    soon = Q(state=RequestState.GRANTED, ends_at__gt=now, ends_at__lte=now + dt.timedelta(days=REMINDERS[0]))
    changed = 0
    for pk, group in QuotaRequest.objects.filter(due | soon).order_by("pk").values_list("pk", "pool__group"):
        try:
            with durable():
                locked_group(group)
                changed += _run_term(_locked(pk), now=now)
        except Problem as problem:
            changed += _note_delay(pk, problem)
    return changed


def _run_term(row: QuotaRequest, *, now: dt.datetime) -> bool:
    if row.state == RequestState.SCHEDULED and row.ends_at is not None and row.ends_at <= now:
        row.state, row.ended_at, row.delayed = RequestState.ENDED, now, ""  # it could never begin
        _notify_of_term(row, "quota.term_missed")
    elif row.state == RequestState.SCHEDULED and row.starts_at is not None and row.starts_at <= now:
        _apply(SYSTEM, row, now=now)
        _notify_of_term(row, "quota.term_begun")
    elif row.state == RequestState.GRANTED and row.ends_at is not None and row.ends_at <= now:
        return _end_term(row, now=now)
    elif row.state == RequestState.GRANTED and (days := _reminder(row, now=now)) != row.reminded:
        row.reminded = days
        _notify_of_term(row, "quota.term_ending")
    else:
        return False  # another process was faster
    row.version += 1
    row.save()
    return True


def _reminder(row: QuotaRequest, *, now: dt.datetime) -> int | None:
    """The smallest of REMINDERS that is at least the days left; None if more days are left than any of them."""
    if row.ends_at is None:
        return None
    left = row.ends_at - now
    return min((days for days in REMINDERS if left <= dt.timedelta(days=days)), default=None)


def _end_term(row: QuotaRequest, *, now: dt.datetime) -> bool:
    """End a grant: give back what it added, unless it was taken back before or a later grant promises it, which gives it back
    in turn. Non-preemptible work keeps its units until it ends; then the rest is given back."""
    later = QuotaRequest.objects.filter(
        department=row.department, pool=row.pool, wanted=row.wanted, state=RequestState.GRANTED,
        applied_at__gt=row.applied_at,
    )  # fmt: skip
    if row.wanted == Wanted.BORROW_LIMIT:
        if present_value(row.department, row.pool, row.wanted) == row.granted and not later.filter(granted=row.granted):
            _set(SYSTEM, row, row.replaced)
        later.filter(replaced=row.granted).update(replaced=row.replaced)
    elif not _give_back(row, later.order_by(F("granted").desc()).first()):
        return _wait_for_fixed(row)
    row.state, row.ended_at, row.delayed = RequestState.ENDED, now, ""
    row.version += 1
    row.save()
    audit.record(SYSTEM, "quota.term_ended", row.public_id, department=row.department)
    _notify_of_term(row, "quota.term_ended")
    return True


def _give_back(row: QuotaRequest, heir: QuotaRequest | None) -> bool:
    """Lower the guarantee by what the grant added; False if non-preemptible work holds some of it. What a later grant, the
    `heir`, promises stays; the heir gives it back."""
    value = present_value(row.department, row.pool, row.wanted) or 0
    fixed, floor = fixed_units(row.department, row.pool), max(row.replaced or 0, heir.granted or 0 if heir else 0)
    back = min(row.raised_by, max(0, value - max(floor, fixed)))
    if back:
        _set(SYSTEM, row, value - back)
        row.raised_by -= back
    if row.raised_by and floor < value - back <= fixed:
        return False
    if heir is not None and row.raised_by:
        heir.raised_by, heir.replaced = heir.raised_by + row.raised_by, min(heir.replaced or 0, row.replaced or 0)
        heir.save()
    return True


def _wait_for_fixed(row: QuotaRequest) -> bool:
    """Note that non-preemptible work delays the end. Returns whether anything changed."""
    stored = QuotaRequest.objects.get(pk=row.pk)
    row.delayed = "below_non_preemptible"
    if (stored.delayed, stored.raised_by) == (row.delayed, row.raised_by):
        return False
    row.version += 1
    row.save()
    return True


def _note_delay(pk: int, problem: Problem) -> bool:
    """Note that a due term cannot begin or end yet. People are notified once for each cause; it is retried every minute."""
    with durable():
        row = _locked(pk)
        if row.delayed == problem.code:
            return False
        log.warning("quota_request.delayed", request=row.public_id, reason=problem.detail)
        row.delayed, row.version = problem.code, row.version + 1
        row.save()
        people = [*_concerned(row), *([row.decided_by] if row.decided_by else [])]
        _notify("quota.term_delayed", row, people, granted=row.granted, cause=problem.code)
    return True


def _notify_of_term(row: QuotaRequest, kind: str) -> None:
    ends = row.ends_at.isoformat() if row.ends_at else None
    _notify(kind, row, [*_concerned(row), *notices.owners_of(row.department)], granted=row.granted, ends_at=ends)
    emit("quota.requested", department=row.department, pool=row.pool.slug, request=row.public_id)


def request_for(actor: Actor, public_id: str, department: Department | None = None) -> QuotaRequest:
    """The request with this public id. Raises NotVisible if the actor may not see its department."""
    rows = QuotaRequest.objects.select_related("department__parent", "pool__group", "author", "decided_by", "renews")
    row = rows.filter(public_id=public_id, **({"department": department} if department else {})).first()
    if row is None:
        raise NotVisible
    actor.require(Right.SEE, row.department)
    return row


def open_units(pool: Pool) -> int:
    """Unassigned capacity: units that an operator may still guarantee."""
    return pool.nominal - pool.total_guaranteed()
