"""Preview of new rules of a pool, or of a new preemption policy. Read only."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import dataclass, replace

from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from portal.access import Actor
from portal.infra.confirm import Break
from portal.infra.locks import keep_alive
from portal.models import Department
from portal.text.words import amount, duration
from quotas.engine import types as e
from quotas.engine.planning_pass import decide
from quotas.engine.quota_tree import usage_of
from quotas.engine.units import notice_of, young_until
from quotas.engine.what_if import what_if, with_claim
from quotas.models import Claim, Pool, PoolGroup
from quotas.planning.snapshot import load_snapshot, moment
from quotas.previews.effects import Preview, effect_of, preview_of
from quotas.rules.policies import PoolRules, Scope, default_rules
from quotas.rules.recalls import recall_for_engine
from quotas.spending.balances import balances
from quotas.wording import clock_of

PROBED = 5  # departments for which a preview plans a recall of the whole guarantee


# Rules of a pool ------------------------------------------------------------------------------------------------------


def preview_rules(*, actor: Actor, pool: Pool, rules: PoolRules) -> Preview:
    """Which claims would be recalled, start or wait at once, and what the rules mean for running work. For operators."""
    actor.require_operator()
    now = timezone.now()
    snapshot = load_snapshot(pool.group, now=now)
    changed = with_rules(snapshot, pool, rules, now=now)
    recalls = list(calls(snapshot, changed, [pool]))
    lines = [*_rules_in_words(snapshot, changed, pool), *(text for text, _breaks in recalls)]
    breaks = [*less_protected(snapshot, changed, pool), *(each for _text, each in recalls if each is not None)]
    return preview_of(effect_of(actor, what_if(snapshot, changed)), lines, breaks)


def with_rules(snapshot: e.Snapshot, pool: Pool, rules: PoolRules, *, now: dt.datetime) -> e.Snapshot:
    """The snapshot with new rules of one pool. Running claims keep the notice and grace they started with."""
    order = default_rules()
    order |= {name: value for name in order if (value := getattr(rules, name)) is not None}
    ruled = copy(pool)
    ruled.balance_half_life = rules.balance_half_life
    lately = balances([ruled], Department.objects.all(), now=now).get(pool.pk)
    asked = dict(Claim.objects.filter(pool=pool).exclude(state="released").values_list("public_id", "min_runtime"))
    return replace(
        snapshot,
        settings=replace(snapshot.settings, **order),
        pools=tuple(
            replace(each, notice=rules.notice, grace=rules.grace, balances=lately) if each.id == pool.slug else each
            for each in snapshot.pools
        ),
        claims=tuple(
            replace(claim, min_runtime=max(asked[claim.id], rules.min_runtime)) if claim.id in asked else claim
            for claim in snapshot.claims
        ),
    )


def _rules_in_words(before: e.Snapshot, after: e.Snapshot, pool: Pool) -> list[str]:
    sentences = []
    had, has = (snapshot.pool(e.PoolId(pool.slug)).balances is not None for snapshot in (before, after))
    if has and after.settings.fair_sharing and not (had and before.settings.fair_sharing):
        sentences.append(_("Fair sharing no longer applies in this pool: nobody is preempted for borrowing more."))
    if _young(before, pool) != _young(after, pool):
        sentences.append(_protected(before, after, pool))
    row = next(each for each in after.pools if each.id == pool.slug)
    unaffected = [claim for claim in _running(after, pool) if notice_of(claim, row, after.settings) != row.notice]
    if unaffected:
        longest = max(notice_of(claim, row, after.settings) for claim in unaffected)
        text = ngettext(
            "%(count)s running workload keeps the notice it started with (%(longest)s).",
            "%(count)s running workloads keep the notice they started with (at most %(longest)s).", len(unaffected),
        )  # fmt: skip
        sentences.append(text % {"count": len(unaffected), "longest": duration(longest)})
    return sentences


def _protected(before: e.Snapshot, after: e.Snapshot, pool: Pool) -> str:
    now, then = _young(before, pool), _young(after, pool)
    text = ngettext(
        "%(then)s running workload would be protected by the minimum runtime; now it is %(now)s.",
        "%(then)s running workloads would be protected by the minimum runtime; now it is %(now)s.", then,
    )  # fmt: skip
    return text % {"then": then, "now": now}


def less_protected(before: e.Snapshot, after: e.Snapshot, pool: Pool) -> Iterator[Break]:
    """A break if fewer running claims than now would be protected by a minimum runtime."""
    if (then := _young(after, pool)) < (now := _young(before, pool)):
        yield Break("protection", _protected(before, after, pool), (pool.slug, now, then))


def _running(snapshot: e.Snapshot, pool: Pool) -> list[e.Claim]:
    holding = (claim for claim in snapshot.claims if claim.pool == pool.slug and not claim.is_recall)
    return [claim for claim in holding if claim.state is e.ClaimState.HOLDING]


def _young(snapshot: e.Snapshot, pool: Pool) -> int:
    return sum(young_until(claim, snapshot.now) > snapshot.now for claim in _running(snapshot, pool))


# A policy -------------------------------------------------------------------------------------------------------------


def preview_policy(*, actor: Actor, scope: Scope, policy: e.Policy | None) -> Preview:
    """Which claims would be recalled, start or wait at once, and what recalls of whole guarantees would then achieve.

    For operators. Raises NoQuota.
    """
    actor.require_operator()
    scope.carrier()
    now = timezone.now()
    pairs = []
    for group in _groups(scope):
        snapshot = load_snapshot(group, now=now)
        pairs.append((snapshot, with_policy(snapshot, scope, policy)))
    effect = effect_of(actor, *(what_if(before, after) for before, after in pairs))
    lines = [line for before, after in pairs for line in _calls_in(before, after, scope)]
    return preview_of(effect, [text for text, _breaks in lines], [each for _text, each in lines if each is not None])


def _groups(scope: Scope) -> list[PoolGroup]:
    """Pool groups with claims or quotas of the scope."""
    if scope.pool is not None:
        return [scope.pool.group]
    pools = Pool.objects.filter(quotas__department=scope.department) | Pool.objects.filter(
        claims__department=scope.department
    )
    return list(PoolGroup.objects.filter(pools__in=pools.distinct()).distinct().order_by("pk"))


def with_policy(snapshot: e.Snapshot, scope: Scope, policy: e.Policy | None) -> e.Snapshot:
    """The snapshot with another policy in this scope; None removes the scope's own."""
    if scope.department is None:
        pools = (replace(p, policy=policy) if scope.pool and p.id == scope.pool.slug else p for p in snapshot.pools)
        return replace(snapshot, pools=tuple(pools))
    slug = scope.department.slug
    rows = (_of_department(d, scope.pool, policy) if d.id == slug else d for d in snapshot.departments)
    return replace(snapshot, departments=tuple(rows))


def _of_department(department: e.Department, pool: Pool | None, policy: e.Policy | None) -> e.Department:
    if pool is None:
        return replace(department, policy=policy)
    id = e.PoolId(pool.slug)
    return replace(department, quotas={**department.quotas, id: replace(department.quotas[id], policy=policy)})


@dataclass(frozen=True, slots=True)
class Call:
    """The outcome if a department recalled all of its guarantee that it does not use."""

    decision: e.DecisionKind
    stopped: int
    units: int
    by: dt.datetime | None

    @staticmethod
    def of(snapshot: e.Snapshot, probe: e.Claim) -> Call:
        plan = decide(with_claim(snapshot, probe))
        answer = next(decision for decision in plan.decisions if decision.claim == probe.id)
        victims = [claim for claim in snapshot.claims if claim.id in answer.victims]
        by = moment(answer.by) if answer.by is not None else None
        return Call(answer.decision, len(victims), sum(victim.units for victim in victims), by)

    @property
    def comes_in_time(self) -> bool:
        return self.decision in (e.DecisionKind.ADMIT, e.DecisionKind.RECLAIM)

    def is_better_than(self, other: Call) -> bool:
        """Whether the units come back in time here, and later or not in time there."""
        if not self.comes_in_time or not other.comes_in_time:
            return self.comes_in_time and not other.comes_in_time
        return other.by is not None and (self.by is None or self.by < other.by)

    def in_words(self, pool: Pool) -> str:
        match self.decision:
            case e.DecisionKind.ADMIT:
                return _("would have them at once")
            case e.DecisionKind.RECLAIM:
                text = ngettext(
                    "would have them by %(by)s, after %(count)s workload has released %(units)s",
                    "would have them by %(by)s, after %(count)s workloads have released %(units)s", self.stopped,
                )  # fmt: skip
                return text % {
                    "by": clock_of(self.by or timezone.now()),
                    "count": self.stopped,
                    "units": amount(self.units, pool),
                }
            case _:
                return _("would have to wait until workloads end by themselves")


def _calls_in(before: e.Snapshot, after: e.Snapshot, scope: Scope) -> Iterator[tuple[str, Break | None]]:
    """`calls` for the pools and the department of the scope."""
    all_pools = Pool.objects.filter(slug__in=[pool.id for pool in before.pools])
    pools = [scope.pool] if scope.pool is not None else list(all_pools)
    return calls(before, after, pools, scope.department)


def calls(
    before: e.Snapshot, after: e.Snapshot, pools: Sequence[Pool], department: Department | None = None
) -> Iterator[tuple[str, Break | None]]:
    """A sentence for each department (or only this one) whose recall would have a different outcome, with a break if the outcome
    would be worse. At most PROBED departments of each pool are compared."""
    names = dict(Department.objects.values_list("slug", "name"))
    both = sorted({row.id for row in before.departments} & {row.id for row in after.departments})
    for pool in pools:
        ledger = usage_of(before, e.PoolId(pool.slug))
        rows = [department.slug] if department is not None else both
        left = {id: ledger[e.DepartmentId(id)].guaranteed - ledger[e.DepartmentId(id)].usage for id in rows}
        for id in sorted((id for id, units in left.items() if units > 0), key=lambda id: (-left[id], id))[:PROBED]:
            probe = recall_for_engine(e.DepartmentId(id), e.PoolId(pool.slug), left[id], before.now)
            today, then = Call.of(before, probe), Call.of(after, probe)
            keep_alive()
            if today != then:
                text = _(
                    "If %(department)s requested the other %(units)s of its guaranteed quota in %(pool)s now: "
                    "today it %(now)s; after this change it %(then)s."
                )
                numbers = {
                    "department": names[id], "units": amount(left[id], pool), "pool": pool.name,
                    "now": today.in_words(pool), "then": then.in_words(pool),
                }  # fmt: skip
                about = (id, pool.slug, left[id], then.decision.value)
                sentence = text % numbers
                yield sentence, Break("guarantee", sentence, about) if today.is_better_than(then) else None
