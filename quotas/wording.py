"""The engine's answers as sentences in the reader's language, with names only of what the reader may see."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from django.utils.dateformat import format as format_date
from django.utils.timezone import localdate, localtime
from django.utils.translation import gettext as _

from portal.models import Department
from portal.words import amount
from quotas.engine.explain import Reader, advice, sentence
from quotas.engine.wire import reason_from_json
from quotas.models import Claim, Pool
from quotas.snapshots import moment


@dataclass
class Wording:
    """For one reader; `named`: the public ids of claims that the sentences will name. Three queries in all."""

    seen: Collection[int]
    named: Collection[str]

    @cached_property
    def departments(self) -> dict[str, str]:
        return dict(Department.objects.values_list("slug", "name"))

    @cached_property
    def pools(self) -> dict[str, str]:
        return dict(Pool.objects.values_list("slug", "name"))

    @cached_property
    def claims(self) -> dict[str, str]:
        rows = Claim.objects.filter(public_id__in=self.named).select_related("department")
        return {claim.public_id: self._side(claim) for claim in rows}

    def _side(self, claim: Claim) -> str:
        if claim.is_recall:
            return _("a recall of %(department)s") % {"department": claim.department.name}
        if claim.department_id in self.seen:
            return claim.name
        return _("work of %(department)s") % {"department": claim.department.name}

    def reader(self, pool: Pool) -> Reader:
        return Reader(
            time=clock,
            units=lambda units: amount(units, pool),
            claim=lambda claim: self.claims.get(claim, _("other work")),
            department=lambda slug: self.departments.get(slug, slug),
            pool=lambda slug: self.pools.get(slug, slug),
        )

    def reasons(self, data: Iterable[dict[str, Any]], pool: Pool) -> list[tuple[str, str]]:
        """Each reason as (why, what to do)."""
        reasons = [reason_from_json(item) for item in data]
        reader = self.reader(pool)
        return [(sentence(reason, _, reader), advice(reason, _)) for reason in reasons]

    def ahead(self, claims: Iterable[str]) -> list[str]:
        return [self.claims.get(claim, _("other work")) for claim in claims]


def clock(seconds: int) -> str:
    local = localtime(moment(seconds))
    return format_date(local, "H:i" if local.date() == localdate() else _("j M H:i"))


def named_in(reasons: Iterable[dict[str, Any]]) -> set[str]:
    """Public ids of the claims that these reasons speak of."""
    found: set[str] = set()
    for reason in reasons:
        found |= set(reason.get("victims", ()))
        if reason.get("code") == "held_for":
            found.add(reason["claim"])
    return found
