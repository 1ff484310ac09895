"""Changes of a snapshot written as words, for `manage.py plan --what-if`: a quota, drained nodes, a request, settings."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import fields, replace

from quotas.engine.quota_tree import Ledger
from quotas.engine.snapshot_json import (
    Json,
    SnapshotError,
    claim_from_json,
    parse_snapshot,
    quota_from_json,
    record_to_json,
)
from quotas.engine.types import Claim, ClaimState, DepartmentId, PoolId, Quota, Settings, Snapshot
from quotas.engine.what_if import with_claim, with_quota, without_nodes

CHANGES = """quota DEPARTMENT POOL guaranteed=8 lend_limit=null
drain NODE …
request DEPARTMENT POOL units_per_pod=4 pods=2
settings notice=300 grace=60 fair_sharing=true"""
"""How changes are written. Keys and values are those of the JSON of quotas, claims and settings."""

QUOTA_WORDS = tuple(f.name for f in fields(Quota))
SETTING_WORDS = tuple(f.name for f in fields(Settings))
OF_POOLS = ("notice", "grace", "policy")
"""Settings that a pool can override."""
REQUEST_WORDS = (
    "units_per_pod", "pods", "profile", "cores_per_pod", "asked_per_pod", "cpu_milli", "memory_mib", "devices", "same_domain",
    "user", "priority", "own_only", "preemptible", "min_runtime", "max_runtime", "notice", "grace", "id", "submitted_at",
    "queued_at", "backoff_until",
)  # fmt: skip
"""Keys of a pending claim."""


def with_change(snapshot: Snapshot, words: Sequence[str]) -> Snapshot:
    """The snapshot with one change (see CHANGES). Raises SnapshotError that names the word."""
    match words:
        case ["quota", department, pool, *pairs]:
            given = _pairs(pairs, QUOTA_WORDS)
            _check_known(snapshot, department, pool)
            return _with_written_quota(snapshot, DepartmentId(department), PoolId(pool), given)
        case ["drain", *names] if names:
            present = {node.name for each in snapshot.pools for node in each.nodes or ()}
            for name in names:
                if name not in present:
                    raise SnapshotError(f"drain {name}", "unknown node")
            return without_nodes(snapshot, names)
        case ["request", department, pool, *pairs]:
            _check_known(snapshot, department, pool)
            return with_claim(snapshot, _written_claim(snapshot, department, pool, _pairs(pairs, REQUEST_WORDS)))
        case ["settings", *pairs] if pairs:
            return _with_settings(snapshot, _pairs(pairs, SETTING_WORDS))
    raise SnapshotError("", f"a change is written as one of:\n{CHANGES}")


def drained(changes: Iterable[Sequence[str]]) -> tuple[str, ...]:
    """The names of the nodes that these changes drain, without duplicates."""
    return tuple(dict.fromkeys(name for words in changes if words[:1] == ["drain"] for name in words[1:]))


def _with_written_quota(snapshot: Snapshot, department: DepartmentId, pool: PoolId, given: Json) -> Snapshot:
    """Change the given keys of a quota. As when a real quota is set, raises SnapshotError if more is promised than there is, or
    less than non-preemptible work holds."""
    present = next(other.quotas.get(pool, Quota()) for other in snapshot.departments if other.id == department)
    quota = quota_from_json({**record_to_json(present), **given}, f"quota {department} {pool}")
    changed = with_quota(snapshot, department, pool, quota)
    ledger = Ledger(snapshot.pool(pool), changed.departments)
    promised = sum(account.guaranteed for account in ledger.accounts.values())
    if promised > ledger.nominal and quota.guaranteed > present.guaranteed:
        problem = f"departments would be promised {promised} of {pool}, which has {ledger.nominal}"
        raise SnapshotError(f"guaranteed={quota.guaranteed}", problem)
    holding = snapshot.claims_of(pool, ClaimState.HOLDING)
    fixed = sum(claim.units for claim in holding if claim.department == department and not claim.preemptible)
    if quota.guaranteed < fixed:
        problem = f"{fixed} are held by work that must not be stopped; the guarantee cannot go below that"
        raise SnapshotError(f"guaranteed={quota.guaranteed}", problem)
    return changed


def _with_settings(snapshot: Snapshot, given: Json) -> Snapshot:
    """Change the given settings; those that pools can override change in all pools."""
    nothing = {"id": snapshot.id, "now": snapshot.now, "pools": [], "departments": [], "claims": []}
    settings = parse_snapshot({**nothing, "settings": {**record_to_json(snapshot.settings), **given}}).settings
    of_pools = {name: getattr(settings, name) for name in OF_POOLS if name in given}
    return replace(snapshot, settings=settings, pools=tuple(replace(pool, **of_pools) for pool in snapshot.pools))


def _written_claim(snapshot: Snapshot, department: str, pool: str, given: Json) -> Claim:
    """A pending claim, the last in the queue unless `given` differs, with an id such as what-if-1."""
    taken = {claim.id for claim in snapshot.claims}
    id = next(id for number in range(1, len(taken) + 2) if (id := f"what-if-{number}") not in taken)
    place = {"department": department, "pool": pool, "state": "pending"}
    asked = {"id": id, "submitted_at": snapshot.now, **given, **place}
    claim = claim_from_json(asked, f"request {department} {pool}", {pool.id: pool for pool in snapshot.pools})
    if claim.id in taken:
        raise SnapshotError("id", f"{claim.id!r} is there already")
    return claim


def _check_known(snapshot: Snapshot, department: str, pool: str) -> None:
    for what, name, known in (("department", department, snapshot.departments), ("pool", pool, snapshot.pools)):
        ids = sorted(each.id for each in known)
        if name not in ids:
            known_ids = ", ".join([*ids[:10], *["…"] * (len(ids) > 10)]) or "none"
            raise SnapshotError("", f"unknown {what} {name!r}; known: {known_ids}")


def _pairs(words: Iterable[str], known: Sequence[str]) -> Json:
    """{key: value} from `key=value …`. Keys must be known and given once; a value is JSON, or else taken as a string."""
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
