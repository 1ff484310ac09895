"""Compared with Kueue's decisions: the same kind wherever the request is inside the guarantee, and never a costlier set of
victims."""

import gzip
import json
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from quotas.engine.placement import rooms_of
from quotas.engine.preemption_rules import Fairness, cost, permitted, preemptor_of
from quotas.engine.reservations import initial_state
from quotas.engine.snapshot_json import parse_snapshot
from quotas.engine.types import Claim, DecisionKind, Policy, Snapshot
from tests.engine.brute import Brute
from tests.engine.builders import answers
from tests.engine.effort import examples, patient

pytestmark = patient
CASES = Path(__file__).parent / "cases" / "kueue_departments.jsonl.gz"


def cases() -> Iterator[tuple[Snapshot, Claim, dict[str, Any]]]:
    with gzip.open(CASES, "rt", encoding="utf-8") as lines:
        for line in lines:
            data = json.loads(line)
            snapshot = parse_snapshot(data)
            yield snapshot, next(claim for claim in snapshot.claims if claim.id == "in"), data["kueue"]


def test_decisions_inside_the_guarantee_are_of_the_same_kind_as_kueues() -> None:
    kinds = Counter(
        (Brute(snapshot, claim).inside, kueue["decision"], str(answers(snapshot)["in"].decision))
        for snapshot, claim, kueue in cases()
    )
    assert sum(kinds.values()) == 375
    assert {kind: count for kind, count in kinds.items() if kind[0]} == {
        (True, "admit", "admit"): 33,
        (True, "reclaim", "reclaim"): 171,
        (True, "wait", "wait"): 18,
    }
    assert {kind: count for kind, count in kinds.items() if kind[1] == "reclaim" != kind[2]} == {
        (False, "reclaim", "wait"): 1  # for a borrower Kueue takes a department below its guarantee
    }
    assert not any(ours == "admit" != kueue for _, kueue, ours in kinds)


def test_victims_are_permitted_and_never_cost_more_than_kueues() -> None:
    better = 0
    for snapshot, claim, kueue in cases():
        decision = answers(snapshot)["in"]
        if decision.decision is not DecisionKind.RECLAIM or kueue["decision"] != "reclaim":
            continue
        state = initial_state(snapshot, snapshot.pools[0], *rooms_of(snapshot))
        preemptor = preemptor_of(state, claim)
        claims_by_id = {other.id: other for other in snapshot.claims}
        ours = [claims_by_id[victim] for victim in decision.victims]
        theirs = [claims_by_id[victim] for victim in kueue["victims"]]
        assert any(permitted(replace(preemptor, fairness=fairness), ours) for fairness in Fairness), snapshot.id
        if not snapshot.settings.fair_sharing and permitted(preemptor, theirs):
            assert cost(preemptor, ours) <= cost(preemptor, theirs), snapshot.id
            better += cost(preemptor, ours)[:-1] < cost(preemptor, theirs)[:-1]
    assert better > 40


# Variations of Kueue's cases ----------------------------------------------------------------------------------------


def changed(snapshot: Snapshot, chance: random.Random) -> Snapshot:
    """A variation of the case: other sizes, priorities, ages, quotas, policies and capacity; at most nine running claims."""
    preemptor = next(claim for claim in snapshot.claims if claim.id == "in")
    others = [claim for claim in snapshot.claims if claim is not preemptor]
    claims = tuple(
        replace(
            claim,
            units_per_pod=chance.choice([claim.units_per_pod, 1, 2, 3, 4]),
            priority=chance.choice([claim.priority, 0, 1, 2]),
            started_at=None if claim.started_at is None else -chance.randrange(1, 2000),
        )
        for claim in [preemptor, *chance.sample(others, min(9, len(others)))]
    )
    departments = [
        replace(
            department,
            quotas={
                p: replace(q, guaranteed=max(0, q.guaranteed + chance.randint(-2, 3)))
                for p, q in department.quotas.items()
            },
            policy=replace(
                department.policy or Policy(), reclaim=chance.choice(["any", "any", "lower_priority", "never"])
            ),
        )
        for department in sorted(snapshot.departments, key=lambda d: d.id != preemptor.department)
    ]
    capacity = sum(claim.units for claim in claims if claim.id != "in") + chance.choice([0, 0, 1, 2])
    left = capacity
    for index, department in enumerate(departments):
        quotas = {p: replace(q, guaranteed=min(q.guaranteed, left)) for p, q in department.quotas.items()}
        left -= sum(quota.guaranteed for quota in quotas.values())
        departments[index] = replace(department, quotas=quotas)
    pool = replace(snapshot.pools[0], capacity=capacity, nominal=None)
    return replace(snapshot, pools=(pool,), departments=tuple(departments), claims=claims)


def test_variations_of_kueues_cases_match_a_search_of_every_set() -> None:
    chance, kinds = random.Random(1), Counter[str]()
    all_cases = list(cases())
    for _ in range(examples(200, 4000)):
        snapshot = changed(chance.choice(all_cases)[0], chance)
        claim = next(claim for claim in snapshot.claims if claim.id == "in")
        flat, decision = Brute(snapshot, claim), answers(snapshot)["in"]
        if decision.decision is DecisionKind.IMPOSSIBLE:
            continue
        best = None if flat.fits(()) else flat.best()
        expected = "admit" if flat.fits(()) else "wait" if best is None else "reclaim"
        if flat.inside or not snapshot.settings.fair_sharing:
            assert decision.decision == expected, snapshot
            kinds[f"{'inside' if flat.inside else 'above'} {expected}"] += 1
        if best is not None and not snapshot.settings.fair_sharing:
            claims_by_id = {other.id: other for other in snapshot.claims}
            victims = tuple(claims_by_id[victim] for victim in decision.victims)
            assert flat.permitted(victims)
            assert flat.cost(victims) == flat.cost(best), snapshot
    assert min(kinds[f"inside {kind}"] for kind in ("admit", "reclaim", "wait")) > 5, kinds
