"""The engine's answers in the reader's words: amounts of the pool, times of their zone, and only names they may see."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from functools import cached_property
from typing import Any

from django.utils.dateformat import format as format_date
from django.utils.timezone import localdate, localtime
from django.utils.translation import gettext as _

from portal.access import Actor
from portal.models import Department
from portal.text.words import amount, cores, memory
from quotas.engine import explain
from quotas.engine.snapshot_json import reason_from_json
from quotas.models import Claim, Pool, Quota
from quotas.snapshots import moment
from quotas.windows import Return, schedule_of


class Teller:
    """For one reader; `named`: the public ids of claims that the sentences will name. Three queries in all."""

    def __init__(self, actor: Actor, named: Iterable[str] = ()) -> None:
        self.actor, self.named = actor, set(named)

    @cached_property
    def departments(self) -> dict[str, str]:
        return dict(Department.objects.values_list("slug", "name"))

    @cached_property
    def labels(self) -> dict[str, str]:
        rows = Claim.objects.filter(public_id__in=self.named).select_related("department", "pool")
        return {claim.public_id: self._label(claim, claim.department_id in self.actor.seen) for claim in rows}

    def _label(self, claim: Claim, seen: bool) -> str:
        """A name where the reader may see it, else department and amount."""
        size = amount(claim.units, claim.pool)
        if claim.is_recall:
            return _("a recall of %(department)s (%(size)s)") % {"department": claim.department.name, "size": size}
        if self.actor.user is not None and claim.user_id == self.actor.user.pk:
            return _("%(name)s (yours, %(size)s)") % {"name": claim.name, "size": size}
        return f"{claim.name if seen else claim.department.name} ({size})"

    def reader(self, pool: Pool) -> explain.Reader:
        return explain.Reader(
            time=clock,
            units=lambda units: amount(units, pool),
            cpu=cores,
            memory=memory,
            claim=lambda claim: self.labels.get(claim, _("a workload")),
            department=lambda slug: self.departments.get(slug, slug),
            pool=lambda slug: pool.name if slug == pool.slug else slug,
        )

    def reasons(self, data: Iterable[dict[str, Any]], pool: Pool) -> list[tuple[str, str]]:
        """Each reason, as it is kept with a claim, as (why, what to do). What was advised already is not said again."""
        reasons, reader = [reason_from_json(item) for item in data], self.reader(pool)
        told: dict[str, str] = {}
        for reason in reasons:
            advice = explain.advice(reason, _)
            told[explain.sentence(reason, _, reader)] = "" if advice in told.values() else advice
        return list(told.items())

    def ahead(self, claims: Iterable[str]) -> list[str]:
        return [self.labels.get(claim, _("a workload")) for claim in claims]


def named_claims(reasons: Iterable[dict[str, Any]]) -> set[str]:
    """The claims that the sentences of these reasons name."""
    return {
        claim
        for reason in reasons
        for claim in (
            *reason.get("victims", ()),
            reason.get("claim"),
            *(move["claim"] for move in reason.get("moves", ())),
        )
        if claim is not None
    }


def clock(seconds: int) -> str:
    """Seconds since 1970 → a time in the reader's zone, with the day when it is not today."""
    local = localtime(moment(seconds))
    return format_date(local, "H:i:s" if local.date() == localdate() else _("j M H:i"))


def clock_of(when: dt.datetime) -> str:
    return clock(int(when.timestamp()))


def lends(quota: Quota, *, now: dt.datetime) -> str:
    """What the quota's department lends now, and what from when: the end of a sentence."""
    schedule, pool = schedule_of(quota), quota.pool
    limit, change = schedule.at(now), schedule.next_change(now)
    if change is None:
        always = _("lends all of it at all times"), _("lends at most %(limit)s at all times"), _("never lends anything")
        return _lent(limit, pool, *always)
    texts = _("lends all of it now"), _("lends at most %(limit)s now"), _("lends nothing now")
    thens = _("all of it from %(at)s"), _("at most %(limit)s from %(at)s"), _("nothing from %(at)s")
    then = _lent(change[1], pool, *thens, at=clock_of(change[0]))
    return _("%(now)s, and %(then)s") % {"now": _lent(limit, pool, *texts), "then": then}


def goes_back(found: Return, pool: Pool) -> str:
    """What a borrower has to know of the next lending window that closes on it."""
    text = (
        _("From %(at)s %(lender)s lends at most %(limit)s: what is above that goes back by then.")
        if found.limit
        else _("From %(at)s %(lender)s lends nothing: what is borrowed from it goes back by then.")
    )
    return text % {"at": clock_of(found.at), "lender": found.lender.name, "limit": amount(found.limit, pool)}


def _lent(limit: int | None, pool: Pool, everything: str, some: str, nothing: str, **words: str) -> str:
    """The one of three texts that the limit means: they are whole, since verbs and "nothing" go together in each language."""
    text = everything if limit is None else some if limit else nothing
    return text % (words | {"limit": amount(limit, pool)})
