"""The engine's answers in words for one reader: with amounts, local times, and only names that the reader may see."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import replace
from functools import cached_property
from typing import Any

from django.utils import timezone
from django.utils.dateformat import format as format_date
from django.utils.timezone import localdate, localtime
from django.utils.translation import gettext as _

from portal.access import Actor
from portal.models import Department
from portal.text.words import amount, cores, limit_in_words, listed, memory
from quotas.engine import explain
from quotas.engine import types as e
from quotas.engine.explain import Reader, decision_sentence, difference_sentences, sentence
from quotas.engine.snapshot_json import reason_from_json
from quotas.engine.what_if import ClaimsOnNodes, Difference
from quotas.lending.schedule import Window
from quotas.lending.windows import Return, schedule_of, when_of
from quotas.models import Claim, Pool, Quota
from quotas.planning.snapshot import moment

SOON = dt.timedelta(minutes=10)


class _Names:
    """Names for the engine's ids; subclasses add those of claims and pools."""

    @cached_property
    def departments(self) -> dict[str, str]:
        return dict(Department.objects.values_list("slug", "name"))

    def _reader(self, unit: str, claim: Callable[[str], str], pool: Callable[[str], str]) -> Reader:
        return Reader(
            time=clock,
            units=lambda units: amount(units, unit),
            cpu=cores,
            memory=memory,
            claim=claim,
            department=lambda slug: self.departments.get(slug, slug),
            pool=pool,
        )


class Sentences(_Names):
    """Sentences for one reader. `named`: public ids of the claims that the sentences mention. Three queries in all."""

    def __init__(self, actor: Actor, named: Iterable[str] = ()) -> None:
        self.actor, self.named = actor, set(named)

    @cached_property
    def labels(self) -> dict[str, str]:
        rows = Claim.objects.filter(public_id__in=self.named).select_related("department", "pool")
        return {claim.public_id: self._label(claim, claim.department_id in self.actor.seen) for claim in rows}

    def _label(self, claim: Claim, seen: bool) -> str:
        """The claim's name if the reader may see it, else its department and amount."""
        size = amount(claim.units, claim.pool)
        if claim.is_recall:
            return _("a recall of %(department)s (%(size)s)") % {"department": claim.department.name, "size": size}
        if self.actor.user is not None and claim.user_id == self.actor.user.pk:
            return _("%(name)s (yours, %(size)s)") % {"name": claim.name, "size": size}
        return _("%(name)s (%(what)s)") % {"name": claim.name if seen else claim.department.name, "what": size}

    def reader(self, pool: Pool) -> Reader:
        return self._reader(
            pool.unit,
            lambda claim: self.labels.get(claim, _("a workload")),
            lambda slug: pool.name if slug == pool.slug else slug,
        )

    def reasons(self, data: Iterable[dict[str, Any]], pool: Pool) -> list[tuple[str, str]]:
        """Each stored reason as (why, what to do). The same advice is not repeated."""
        reasons, reader = [reason_from_json(item) for item in data], self.reader(pool)
        advice_of: dict[str, str] = {}
        for reason in reasons:
            advice = explain.advice(reason, _, reader)
            advice_of[explain.sentence(reason, _, reader)] = "" if advice in advice_of.values() else advice
        return list(advice_of.items())

    def ahead(self, claims: Iterable[str]) -> list[str]:
        return [self.labels.get(claim, _("a workload")) for claim in claims]


def named_claims(reasons: Iterable[dict[str, Any]]) -> set[str]:
    """Public ids of the claims that the sentences of these reasons mention."""
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
    """Seconds since 1970 → a time in the reader's time zone, with its date if it is not today. It has seconds if it is near now;
    a later time is rounded up to the minute, so that nothing is promised too early."""
    at, now = moment(seconds), timezone.now()
    if at - now > SOON:
        at += dt.timedelta(seconds=59)
    local = localtime(at)
    today = "H:i:s" if abs(at - now) <= SOON else "H:i"
    return format_date(local, today if local.date() == localdate() else _("j M H:i"))


def clock_of(when: dt.datetime) -> str:
    return clock(int(when.timestamp()))


def lends(quota: Quota, *, now: dt.datetime) -> str:
    """What the quota's department lends now and after the next change, as the end of a sentence."""
    schedule, pool = schedule_of(quota), quota.pool
    limit, change = schedule.at(now), schedule.next_change(now)
    if change is None:
        always = _("lends all of it at any time"), _("lends at most %(limit)s at any time"), _("never lends")
        return _lent(limit, pool, *always)
    texts = _("lends all of it now"), _("lends at most %(limit)s now"), _("lends nothing now")
    thens = _("all of it from %(at)s"), _("at most %(limit)s from %(at)s"), _("nothing from %(at)s")
    then = _lent(change[1], pool, *thens, at=clock_of(change[0]))
    return _("%(now)s, and %(then)s") % {"now": _lent(limit, pool, *texts), "then": then}


def window_in_words(window: Window, pool: Pool | None) -> str:
    """Mon–Fri 09:00–18:00: 2 cards; what is lent at most then."""
    return f"{when_of(window)}{_(': ')}{limit_in_words('lend_limit', window.lend_limit, pool)}"


def return_sentence(due: Return, pool: Pool) -> str:
    """A sentence for a borrower: when a lending window closes and units may be recalled."""
    text = (
        _("From %(at)s, %(lender)s lends at most %(limit)s: anything above is recalled by then.")
        if due.limit
        else _("From %(at)s, %(lender)s lends nothing: anything borrowed from it is recalled by then.")
    )
    return text % {"at": clock_of(due.at), "lender": due.lender.name, "limit": amount(due.limit, pool)}


def _lent(limit: int | None, pool: Pool, everything: str, some: str, nothing: str, **words: str) -> str:
    """One of three texts, depending on the limit, because languages express "nothing" differently."""
    text = everything if limit is None else some if limit else nothing
    return text % (words | {"limit": amount(limit, pool)})


def policy_sentences(policy: e.Policy) -> tuple[str, ...]:
    """One sentence for each of the policy's three rules."""
    reclaim = {
        "any": _("Within its guaranteed quota, it reclaims from any borrower."),
        "lower_priority": _(
            "Within its guaranteed quota, it reclaims only from borrowers' workloads of lower priority."
        ),
        "never": _("Within its guaranteed quota, it reclaims nothing: it waits until borrowers end."),
    }
    within = {
        "lower_priority": _("In its own department, it preempts workloads of lower priority."),
        "lower_or_newer_equal": _(
            "In its own department, it preempts workloads of lower priority, and newer ones of the same priority."
        ),
        "never": _("In its own department, it preempts nothing."),
    }
    preempt = policy.borrow_preempt
    if preempt is None:
        borrowing = _("While borrowing, it preempts nothing of other departments.")
    elif preempt.max_priority is None:
        borrowing = _("While borrowing, it preempts other borrowers' workloads of lower priority.")
    else:
        text = _(
            "While borrowing, it preempts other borrowers' workloads of lower priority, up to priority %(priority)s."
        )
        borrowing = text % {"priority": preempt.max_priority}
    return reclaim[policy.reclaim], within[policy.within], borrowing


class Words(_Names):
    """Sentences about the claims in snapshots of one pool group. Three queries in all."""

    def __init__(self, *snapshots: e.Snapshot) -> None:
        self.claims = {claim.id: claim for snapshot in snapshots for claim in snapshot.claims}
        self.units = {pool.id: pool.unit for snapshot in snapshots for pool in snapshot.pools}

    @cached_property
    def pools(self) -> dict[str, str]:
        return dict(Pool.objects.filter(slug__in=self.units).values_list("slug", "name"))

    @cached_property
    def names(self) -> dict[str, str]:
        """Claim id → workload name; hypothetical claims have none."""
        return dict(Claim.objects.filter(public_id__in=self.claims).values_list("public_id", "name"))

    def claim(self, id: str) -> str:
        """The claim's name, department and amount."""
        claim = self.claims.get(e.ClaimId(id))
        if claim is None:
            return id
        department = self.departments.get(claim.department, claim.department)
        what = listed([department, amount(claim.units, self.units[claim.pool])])
        return _("%(name)s (%(what)s)") % {"name": self.names.get(id) or id, "what": what}

    def reader(self, pool: str) -> Reader:
        unit = self.units.get(e.PoolId(pool), "")
        return self._reader(unit, self.claim, lambda slug: self.pools.get(slug, slug))

    def of_plan(self, plan: e.Plan) -> Iterator[str]:
        """One line for each decision and each withdrawn recall."""
        for decision in plan.decisions:
            reader = self.reader(self.claims[decision.claim].pool)
            reasons = [sentence(reason, reader=reader) for reason in decision.reasons]
            yield " ".join([f"{self.claim(decision.claim)}:", decision_sentence(decision, reader=reader), *reasons])
        for claim in plan.withdrawn:
            yield f"{self.claim(claim)}: Stays after all."
        if not plan.decisions and not plan.withdrawn:
            yield "Nobody waits."

    def of_difference(self, difference: Difference, standing: ClaimsOnNodes) -> list[str]:
        """Sentences about a change. `standing`: claims on the nodes that it drains."""
        sentences = [*self._of_nodes(standing)]
        for pool in self.units:
            in_pool = self._in(difference, pool)
            if in_pool.changes or in_pool.recalled or in_pool.spared or in_pool.recallable:
                sentences += difference_sentences(in_pool, reader=self.reader(pool))
        return sentences or difference_sentences(difference)

    def _of_nodes(self, standing: ClaimsOnNodes) -> Iterator[str]:
        for node, claims in standing.items():
            for claim in claims:
                going = self.claims[claim].state is e.ClaimState.LEAVING
                then = (
                    "is leaving it already" if going else "stays until it ends, and has to leave if the node is emptied"
                )
                yield f"On {node}: {self.claim(claim)} {then}."
            yield f"Nothing new would start on {node}{'' if claims else ', where nobody is'}."

    def _in(self, difference: Difference, pool: e.PoolId) -> Difference:
        def of_pool(claims: Collection[e.ClaimId]) -> tuple[e.ClaimId, ...]:
            return tuple(claim for claim in claims if self.claims[claim].pool == pool)

        return replace(
            difference,
            changes=tuple(change for change in difference.changes if self.claims[change.claim].pool == pool),
            recalled=of_pool(difference.recalled),
            spared=of_pool(difference.spared),
            recallable={key: units for key, units in difference.recallable.items() if key[1] == pool},
        )
