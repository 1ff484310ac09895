"""The engine's answers in the reader's words: amounts of the pool, times of their zone, and only names they may see."""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Iterable
from typing import Any

from django.utils import timezone
from django.utils.translation import gettext as _

from portal.access import Actor
from portal.models import Department
from portal.words import amount
from quotas.engine import explain
from quotas.engine.wire import reason_from_json
from quotas.models import Claim, Pool


def reader_for(actor: Actor, pool: Pool, claims: Iterable[str] = ()) -> explain.Reader:
    """Writes for this actor; `claims` are the public ids that the sentences may name."""
    rows = Claim.objects.filter(public_id__in=set(claims)).select_related("department", "pool")
    seen = set(actor.departments.values_list("pk", flat=True))
    labels = {claim.public_id: claim_label(actor, claim, seen) for claim in rows}
    names = dict(Department.objects.values_list("slug", "name"))
    return explain.Reader(
        time=clock,
        units=lambda units: amount(units, pool),
        claim=lambda claim: labels.get(claim, _("a workload")),
        department=lambda slug: names.get(slug, slug),
        pool=lambda slug: pool.name if slug == pool.slug else slug,
    )


def claim_label(actor: Actor, claim: Claim, seen: Collection[int]) -> str:
    """A name where the actor may see it, else department and amount. `seen`: ids of the departments the actor sees."""
    size = amount(claim.units, claim.pool)
    if claim.is_recall:
        text = _("a recall of %(department)s (%(size)s)")
        return text % {"department": claim.department.name, "size": size}
    if actor.user is not None and claim.user_id == actor.user.pk:
        return _("%(name)s (yours, %(size)s)") % {"name": claim.name, "size": size}
    if claim.department_id in seen:
        return f"{claim.name} ({size})"
    return f"{claim.department.name} ({size})"


def reason_sentences(reasons: Iterable[dict[str, Any]], reader: explain.Reader) -> list[str]:
    """`reasons` as they are kept with a claim: the engine's JSON."""
    return [explain.sentence(reason_from_json(reason), _, reader) for reason in reasons]


def named_claims(reasons: Iterable[dict[str, Any]]) -> set[str]:
    """The claims that the sentences of these reasons name."""
    return {claim for r in reasons for claim in (*r.get("victims", ()), *([r["claim"]] if "claim" in r else ()))}


def clock(seconds: int) -> str:
    """Seconds since 1970 → a time in the reader's zone, with the day when it is not today."""
    local = timezone.localtime(dt.datetime.fromtimestamp(seconds, dt.UTC))
    return f"{local:%H:%M:%S}" if local.date() == timezone.localdate() else f"{local:%F %H:%M}"
