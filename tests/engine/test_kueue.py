"""Against the decisions of Kueue: the same kind wherever the request is inside the guarantee, and never a dearer set of
victims."""

import gzip
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from quotas.engine.books import Books, free_vectors
from quotas.engine.permission import Fairness, permitted, taker_of
from quotas.engine.types import Claim, DecisionKind, Snapshot
from quotas.engine.victims import cost
from quotas.engine.wire import parse_snapshot
from tests.engine.brute import Flat
from tests.engine.builders import answers

CASES = Path(__file__).parent / "cases" / "kueue_departments.jsonl.gz"


def cases() -> Iterator[tuple[Snapshot, Claim, dict[str, Any]]]:
    with gzip.open(CASES, "rt", encoding="utf-8") as lines:
        for line in lines:
            data = json.loads(line)
            snapshot = parse_snapshot(data)
            yield snapshot, next(claim for claim in snapshot.claims if claim.id == "in"), data["kueue"]


def test_inside_the_guarantee_every_decision_is_of_the_same_kind() -> None:
    kinds = Counter(
        (Flat(snapshot, claim).inside, kueue["decision"], str(answers(snapshot)["in"].decision))
        for snapshot, claim, kueue in cases()
    )
    assert sum(kinds.values()) == 375
    assert {kind: count for kind, count in kinds.items() if kind[0]} == {
        (True, "admit", "admit"): 33,
        (True, "reclaim", "reclaim"): 171,
        (True, "wait", "wait"): 18,
    }
    assert not any(kueue == "reclaim" != ours for _, kueue, ours in kinds)
    assert not any(ours == "admit" != kueue for _, kueue, ours in kinds)


def test_victims_are_permitted_and_never_cost_more_than_kueues() -> None:
    better = 0
    for snapshot, claim, kueue in cases():
        decision = answers(snapshot)["in"]
        if decision.decision is not DecisionKind.RECLAIM or kueue["decision"] != "reclaim":
            continue
        books = Books(snapshot, snapshot.pools[0], *free_vectors(snapshot))
        taker = taker_of(books, claim)
        named = {other.id: other for other in snapshot.claims}
        ours = [named[victim] for victim in decision.victims]
        theirs = [named[victim] for victim in kueue["victims"]]
        assert any(permitted(books, taker, ours, fairness) for fairness in Fairness), snapshot.id
        if not snapshot.settings.fair_sharing and permitted(books, taker, theirs, Fairness.BEFORE):
            assert cost(books, taker, ours) <= cost(books, taker, theirs), snapshot.id
            better += cost(books, taker, ours)[:-1] < cost(books, taker, theirs)[:-1]
    assert better > 40
