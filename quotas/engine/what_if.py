"""What would happen if …: another request, a recall, a changed quota, a drained node.

Nothing here decides. The snapshot and the changed one both go through `decide`, and the two plans are compared.

What would happen to one request if it were submitted now.

Nothing here decides. The snapshot with the request goes through `decide`, and its answer is reduced to what a page needs.

What else could have been decided for a claim that others have to leave for: whom its pass would have named had each of them
been out of reach, and where the order of preference finds that worse.

Nothing here decides. The snapshot goes through `decide` once for each of the victims, who must not be stopped in it.
"""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from quotas.engine.admission import decide
from quotas.engine.books import Books
from quotas.engine.permission import Taker, taker_of
from quotas.engine.quota_tree import Ledger, loans_of, standing_of, usage_of
from quotas.engine.reasons import Reason
from quotas.engine.room import rooms_of
from quotas.engine.snapshot_json import (
    Json,
    SnapshotError,
    claim_from_json,
    decision_to_json,
    quota_from_json,
    record_to_json,
)
from quotas.engine.types import (
    Claim,
    ClaimId,
    ClaimState,
    Decision,
    DecisionKind,
    Department,
    DepartmentId,
    Placed,
    Plan,
    Pool,
    PoolId,
    Quota,
    Snapshot,
)
from quotas.engine.units import grace_of, notice_of
from quotas.engine.victims import Cost, cost

# Changed snapshots ----------------------------------------------------------------------------------------------------


def with_claim(snapshot: Snapshot, claim: Claim) -> Snapshot:
    """The snapshot and one more claim: a request, or a recall (`pods=0`). Raises ValueError when its id is taken."""
    if any(other.id == claim.id for other in snapshot.claims):
        raise ValueError(f"claim {claim.id} is there already")
    return replace(snapshot, claims=(*snapshot.claims, claim))


def with_quota(snapshot: Snapshot, department: DepartmentId, pool: PoolId, quota: Quota) -> Snapshot:
    """The snapshot with one quota changed. Raises ValueError for an unknown department."""
    if all(other.id != department for other in snapshot.departments):
        raise ValueError(f"no department {department}")
    changed = (
        replace(other, quotas={**other.quotas, pool: quota}) if other.id == department else other
        for other in snapshot.departments
    )
    return replace(snapshot, departments=tuple(changed))


Standing = Mapping[str, tuple[ClaimId, ...]]
"""By node: who holds or leaves a place there."""


def standing_on(snapshot: Snapshot, names: Iterable[str]) -> Standing:
    """Who is on each of these nodes. A drained node lets them stay until they end; emptied, it tells them to go."""
    found: dict[str, list[ClaimId]] = {name: [] for name in names}
    for claim in snapshot.claims:
        if claim.state is not ClaimState.PENDING:
            for name in found.keys() & {placed.node for placed in claim.placement or ()}:
                found[name].append(claim.id)
    return {name: tuple(sorted(claims)) for name, claims in found.items()}


def without_nodes(snapshot: Snapshot, names: Iterable[str]) -> Snapshot:
    """The snapshot with nodes drained; nominal capacity stays what it was."""
    gone = frozenset(names)
    pools = tuple(
        pool
        if pool.nodes is None
        else replace(
            pool,
            nodes=tuple(node for node in pool.nodes if node.name not in gone),
            nominal=Ledger(pool, snapshot.departments).nominal,
        )
        for pool in snapshot.pools
    )
    return replace(snapshot, pools=pools)


# Changes in words -----------------------------------------------------------------------------------------------------

CHANGES = """quota DEPARTMENT POOL guaranteed=8 lend_limit=null
drain NODE …
request DEPARTMENT POOL units_per_pod=4 pods=2"""
"""How a change is said; keys and values are those of the JSON of a quota and of a claim."""

QUOTA_WORDS = ("guaranteed", "borrow_limit", "lend_limit", "lend_limit_most", "policy")
REQUEST_WORDS = (
    "units_per_pod", "pods", "profile", "cores_per_pod", "asked_per_pod", "cpu_milli", "memory_mib", "devices", "same_domain",
    "user", "priority", "own_only", "preemptible", "min_runtime", "max_runtime", "notice", "grace", "id", "submitted_at",
    "queued_at", "backoff_until",
)  # fmt: skip
"""What may be said of a request: the keys of a claim without those of one that has started."""


def changed_as_said(snapshot: Snapshot, words: Sequence[str]) -> Snapshot:
    """The snapshot with one change, said in words (CHANGES). Raises SnapshotError, which names the word."""
    match words:
        case ["quota", department, pool, *pairs]:
            return _quota_as_said(snapshot, DepartmentId(department), PoolId(pool), _pairs(pairs, QUOTA_WORDS))
        case ["drain", *names] if names:
            return _drained_as_said(snapshot, names)
        case ["request", department, pool, *pairs]:
            _known(snapshot, DepartmentId(department), PoolId(pool))
            return with_claim(snapshot, _claim_as_said(snapshot, department, pool, _pairs(pairs, REQUEST_WORDS)))
    raise SnapshotError("", f"a change is said as one of:\n{CHANGES}")


def drained(changes: Iterable[Sequence[str]]) -> tuple[str, ...]:
    """The nodes that these changes drain, each once."""
    return tuple(dict.fromkeys(name for words in changes if words[:1] == ["drain"] for name in words[1:]))


def _quota_as_said(snapshot: Snapshot, department: DepartmentId, pool: PoolId, given: Json) -> Snapshot:
    """What is not said of the quota stays as it is. Refused as when it is written: more is promised than there is, or
    less than work holds that must not be stopped."""
    _known(snapshot, department, pool)
    present = next(other.quotas.get(pool, Quota()) for other in snapshot.departments if other.id == department)
    quota = quota_from_json({**record_to_json(present), **given}, f"quota {department} {pool}")
    changed = with_quota(snapshot, department, pool, quota)
    books = Ledger(next(other for other in snapshot.pools if other.id == pool), changed.departments)
    promised = sum(account.guaranteed for account in books.accounts.values())
    if promised > books.nominal and quota.guaranteed > present.guaranteed:
        said = f"departments would be promised {promised} of {pool}, which has {books.nominal}"
        raise SnapshotError(f"guaranteed={quota.guaranteed}", said)
    fixed = sum(
        claim.units
        for claim in snapshot.claims
        if (claim.department, claim.pool) == (department, pool)
        and claim.state is ClaimState.HOLDING
        and not claim.preemptible
    )
    if quota.guaranteed < fixed:
        said = f"{fixed} are held by work that must not be stopped; the guarantee cannot go below that"
        raise SnapshotError(f"guaranteed={quota.guaranteed}", said)
    return changed


def _drained_as_said(snapshot: Snapshot, names: list[str]) -> Snapshot:
    present = {node.name for pool in snapshot.pools for node in pool.nodes or ()}
    for name in names:
        if name not in present:
            raise SnapshotError(f"drain {name}", "unknown node")
    return without_nodes(snapshot, names)


def _claim_as_said(snapshot: Snapshot, department: str, pool: str, given: Json) -> Claim:
    """A pending claim; its id says that it is asked only to see, and it is the last in the queue if nothing else is said."""
    taken = {claim.id for claim in snapshot.claims}
    id = next(id for number in range(1, len(taken) + 2) if (id := f"what-if-{number}") not in taken)
    asked = {
        "id": id,
        "submitted_at": snapshot.now,
        **given,
        "department": department,
        "pool": pool,
        "state": "pending",
    }
    claim = claim_from_json(asked, f"request {department} {pool}", {pool.id: pool for pool in snapshot.pools})
    if claim.id in taken:
        raise SnapshotError("id", f"{claim.id!r} is there already")
    return claim


def _known(snapshot: Snapshot, department: DepartmentId, pool: PoolId) -> None:
    if all(other.id != department for other in snapshot.departments):
        raise SnapshotError("", f"unknown department {department!r}; known: {_listed(snapshot.departments)}")
    if all(other.id != pool for other in snapshot.pools):
        raise SnapshotError("", f"unknown pool {pool!r}; known: {_listed(snapshot.pools)}")


def _listed(those: Iterable[Department | Pool]) -> str:
    """The ids of the first ten."""
    ids = sorted(one.id for one in those)
    return ", ".join([*ids[:10], *["…"] * (len(ids) > 10)]) or "none"


def _pairs(words: Iterable[str], known: Sequence[str]) -> Json:
    """`key=value …`, each of the known ones once; a value is JSON, or else a string as it stands."""
    given: Json = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or not key:
            raise SnapshotError(word, "expected key=value")
        if key not in known:
            raise SnapshotError(word, f"expected one of {', '.join(known)}")
        if key in given:
            raise SnapshotError(word, f"{key} stands here twice")
        try:
            given[key] = json.loads(value)
        except ValueError:
            given[key] = value
    return given


# The difference -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Change:
    """One pending claim whose answer differs (None: it is not asked in that snapshot)."""

    claim: ClaimId
    before: Decision | None
    after: Decision | None


@dataclass(frozen=True, slots=True)
class Difference:
    """Who is affected by a change.

    `told` are claims that would be told to leave only because of it, `told_units` the same by department, `spared`
    those who would not be any more. `recallable` says by how many units each department borrows more (or, negative,
    less) as things stand, before anybody is told anything.
    """

    before: Plan
    after: Plan
    changes: tuple[Change, ...]
    told: tuple[ClaimId, ...]
    told_units: Mapping[DepartmentId, int]
    spared: tuple[ClaimId, ...]
    recallable: Mapping[tuple[DepartmentId, PoolId], int]


def what_if(snapshot: Snapshot, changed: Snapshot) -> Difference:
    """Plan both and compare."""
    return compare(snapshot, decide(snapshot), changed, decide(changed))


def compare(snapshot: Snapshot, before: Plan, changed: Snapshot, after: Plan) -> Difference:
    """What the plan `after`, of the changed snapshot, says otherwise than the plan `before`."""
    old = {decision.claim: decision for decision in before.decisions}
    new = {decision.claim: decision for decision in after.decisions}
    told_before, told_after = _told(before), _told(after)
    told = sorted(told_after - told_before)
    units: dict[DepartmentId, int] = {}
    for claim in changed.claims:
        if claim.id in told_after - told_before:
            units[claim.department] = units.get(claim.department, 0) + claim.units
    return Difference(
        before=before,
        after=after,
        changes=tuple(
            Change(claim, old.get(claim), new.get(claim))
            for claim in sorted({*old, *new})
            if old.get(claim) != new.get(claim)
        ),
        told=tuple(told),
        told_units=dict(sorted(units.items())),
        spared=tuple(sorted(told_before - told_after)),
        recallable=_recallable(snapshot, changed),
    )


def _told(plan: Plan) -> set[ClaimId]:
    return {victim for decision in plan.decisions for victim in decision.victims}


def _recallable(snapshot: Snapshot, changed: Snapshot) -> dict[tuple[DepartmentId, PoolId], int]:
    borrowed: dict[tuple[DepartmentId, PoolId], int] = {}
    for side, sign in ((snapshot, -1), (changed, 1)):
        for pool in side.pools:
            for loan in loans_of(side, pool.id):
                key = loan.borrower, pool.id
                borrowed[key] = borrowed.get(key, 0) + sign * loan.units
    return {key: units for key, units in sorted(borrowed.items()) if units}


def difference_to_json(difference: Difference) -> Json:
    """The difference as JSON values; `recallable` by department, then pool."""
    recallable: dict[str, dict[str, int]] = {}
    for (department, pool), units in difference.recallable.items():
        recallable.setdefault(department, {})[pool] = units
    return {
        "changes": [
            {
                "claim": change.claim,
                "before": change.before and decision_to_json(change.before),
                "after": change.after and decision_to_json(change.after),
            }
            for change in difference.changes
        ],
        "told": list(difference.told),
        "told_units": dict(difference.told_units),
        "spared": list(difference.spared),
        "withdrawn": sorted({*difference.after.withdrawn} - {*difference.before.withdrawn}),
        "recallable": recallable,
    }


class Headline(StrEnum):
    """The five things a verdict can say."""

    STARTS_OWN = "starts_own"
    STARTS_BORROWING = "starts_borrowing"
    STARTS_BY = "starts_by"
    WAITS = "waits"
    CANNOT = "cannot"


@dataclass(frozen=True, slots=True)
class Verdict:
    """One request's fate, with every number its sentences need. Units are the pool's, times the snapshot's seconds.

    `in_use` is the department's usage before, `in_use_after` with this request; `borrowing` is what it borrows already.
    `returning` says which departments give back how much, for a start that waits on others. `notice` and `grace` are
    what this request would be promised if its borrowed units were called back.
    """

    headline: Headline
    claim: ClaimId
    department: DepartmentId
    pool: PoolId
    asked: int
    own: int
    borrowed: int
    from_: Mapping[DepartmentId, int]
    guaranteed: int
    in_use: int
    in_use_after: int
    borrow_limit: int | None
    borrowing: int
    ceiling: int
    notice: int
    grace: int
    placement: tuple[Placed, ...] | None
    by: int | None
    returning: Mapping[DepartmentId, int]
    waiting_on: tuple[ClaimId, ...]
    position: int
    ahead: tuple[ClaimId, ...]
    largest: int | None
    reasons: tuple[Reason, ...]


def verdict(snapshot: Snapshot, claim: Claim) -> Verdict:
    """What `decide` would answer if this pending claim were submitted now. Raises ValueError when the claim's id is
    taken or it is not pending."""
    if claim.state is not ClaimState.PENDING:
        raise ValueError(f"{claim.id} is {claim.state}, not pending")
    plan = decide(with_claim(snapshot, claim))
    decision = next(decision for decision in plan.decisions if decision.claim == claim.id)
    pool = next(pool for pool in snapshot.pools if pool.id == claim.pool)
    ledger = usage_of(snapshot, claim.pool)
    account = ledger[claim.department]
    gone_for_it = {leaver.id: leaver for leaver in snapshot.claims if leaver.id in decision.waiting_on}
    returning: dict[DepartmentId, int] = {}
    for leaver in gone_for_it.values():
        returning[leaver.department] = returning.get(leaver.department, 0) + leaver.units
    return Verdict(
        headline=headline_of(decision),
        claim=claim.id,
        department=claim.department,
        pool=claim.pool,
        asked=claim.units,
        own=decision.own,
        borrowed=decision.borrowed,
        from_=decision.from_,
        guaranteed=account.guaranteed,
        in_use=account.usage,
        in_use_after=account.usage + claim.units - _drawn(snapshot, claim),
        borrow_limit=account.quota.borrow_limit,
        borrowing=max(0, account.usage - account.guaranteed),
        ceiling=account.ceiling,
        notice=notice_of(claim, pool, snapshot.settings),
        grace=grace_of(claim, pool, snapshot.settings),
        placement=decision.placement,
        by=decision.by,
        returning=dict(sorted(returning.items())),
        waiting_on=decision.waiting_on,
        position=decision.position,
        ahead=decision.ahead,
        largest=decision.largest,
        reasons=decision.reasons,
    )


def _drawn(snapshot: Snapshot, claim: Claim) -> int:
    """Units of the claim that its department has called back already, and uses by that."""
    holding = [c for c in snapshot.claims if c.pool == claim.pool and c.state is ClaimState.HOLDING]
    left = standing_of(holding, snapshot.now, snapshot.departments).left.get(claim.department, 0)
    return 0 if claim.is_recall else min(claim.units, left)


def headline_of(decision: Decision) -> Headline:
    """The headline of a decision."""
    return {
        DecisionKind.ADMIT: Headline.STARTS_BORROWING if decision.borrowed else Headline.STARTS_OWN,
        DecisionKind.RECLAIM: Headline.STARTS_BY,
        DecisionKind.WAIT: Headline.WAITS,
        DecisionKind.IMPOSSIBLE: Headline.CANNOT,
    }[decision.decision]


class Criterion(StrEnum):
    """What the order of preference looks at, in its order; of the first two only one, OWN for a claim inside its guarantee."""

    OWN = "own"
    OTHERS = "others"
    SHARES = "shares"
    BELOW_GUARANTEE = "below_guarantee"
    PRIORITY = "priority"
    LOST_WORK = "lost_work"
    COUNT = "count"
    UNITS = "units"
    ORDER = "order"


THEN = tuple(Criterion)[2:]
"""The criteria behind the first, as they stand in a cost (victims.py)."""


@dataclass(frozen=True, slots=True)
class Alternative:
    """What would have been answered with the `spared` out of reach.

    `worse_in` is the first criterion in which the other victims cost more, by the snapshot alone, with both numbers (units,
    priorities, unit-seconds, claims; None for those that are no number). It is None when there are no other victims to compare,
    or when they cost no more: then the other answers of the pass stood in the way.
    """

    spared: tuple[ClaimId, ...]
    answer: Decision
    worse_in: Criterion | None = None
    chosen: int | None = None
    instead: int | None = None


def alternatives(
    snapshot: Snapshot, asker: ClaimId, victims: Collection[ClaimId], most: int
) -> tuple[Alternative, ...]:
    """For each of the `victims` – for the `most` who cost most, if there are more – what had been answered without it; who
    would be replaced by the same others stand together. Raises ValueError when a claim is not in the snapshot."""
    books, taker, told = _at_the_start(snapshot, asker, victims)
    spent = cost(books, taker, told)
    dearest = sorted(told, key=lambda victim: cost(books, taker, (victim,)), reverse=True)[:most]
    found: dict[tuple[ClaimId, ...], Alternative] = {}
    for spared in dearest:
        answer = _answer_without(snapshot, asker, spared)
        known = found.get(answer.victims)
        if known is not None:
            found[answer.victims] = replace(known, spared=tuple(sorted((*known.spared, spared.id))))
        elif answer.victims:
            others = [books.claims[victim] for victim in answer.victims]
            found[answer.victims] = _compared(taker, spared.id, answer, spent, cost(books, taker, others))
        else:
            found[answer.victims] = Alternative((spared.id,), answer)
    books.close()
    return tuple(found.values())


def _at_the_start(
    snapshot: Snapshot, asker: ClaimId, victims: Collection[ClaimId]
) -> tuple[Books, Taker, tuple[Claim, ...]]:
    """The books before anything is decided, who asks, and who was told."""
    claims = {claim.id: claim for claim in snapshot.claims}
    unknown = {asker, *victims} - claims.keys()
    if unknown:
        raise ValueError(f"no claim {min(unknown)} in this snapshot")
    pool = next(pool for pool in snapshot.pools if pool.id == claims[asker].pool)
    books = Books(snapshot, pool, *rooms_of(snapshot))
    if asker in books.holds:  # what it has reserved before is not to be counted beside what it asks
        books.give_up(claims[asker])
    return books, taker_of(books, claims[asker]), tuple(claims[victim] for victim in sorted(victims))


def _answer_without(snapshot: Snapshot, asker: ClaimId, spared: Claim) -> Decision:
    """What the asker would be answered if the spared claim must not be stopped."""
    claims = (replace(claim, preemptible=False) if claim is spared else claim for claim in snapshot.claims)
    plan = decide(replace(snapshot, claims=tuple(claims)))
    return next(decision for decision in plan.decisions if decision.claim == asker)


def _compared(taker: Taker, spared: ClaimId, answer: Decision, spent: Cost, other: Cost) -> Alternative:
    """The first criterion in which the two costs differ says which is better."""
    if other <= spent:
        return Alternative((spared,), answer)
    criteria = (Criterion.OWN if taker.inside else Criterion.OTHERS, *THEN)
    told = zip(criteria, spent, other, strict=True)
    criterion, chosen, instead = next((each, mine, its) for each, mine, its in told if mine != its)
    if isinstance(chosen, int) and isinstance(instead, int):
        return Alternative((spared,), answer, criterion, chosen, instead)
    return Alternative((spared,), answer, criterion)
