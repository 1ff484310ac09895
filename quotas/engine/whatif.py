"""What would happen if …: another request, a recall, a changed quota, a drained node.

Nothing here decides. The snapshot and the changed one both go through `decide`, and the two plans are compared.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from quotas.engine.admission import decide
from quotas.engine.quota_tree import Ledger, loans_of
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
    Department,
    DepartmentId,
    Plan,
    Pool,
    PoolId,
    Quota,
    Snapshot,
)

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
