"""Invariant 4 where nodes are crowded: no claim inside its guarantee waits while some permitted set of victims would make
room, however many candidates there are. referee.py decides without the engine's code whether there is such a set."""

from random import Random

import pytest

from quotas.engine import node_clearing
from quotas.engine.planning_pass import decide
from quotas.engine.types import (
    Card,
    Claim,
    Decision,
    DecisionKind,
    Node,
    Placed,
    Snapshot,
)
from quotas.engine.victim_search import MANY
from tests.engine import invariants
from tests.engine.builders import a_department, a_pool, a_snapshot, answers, holding, nodes, pending
from tests.engine.crowds import a_crowd
from tests.engine.effort import examples, patient
from tests.engine.referee import Referee

ADMIT, RECLAIM, WAIT, IMPOSSIBLE = DecisionKind
STARTS = (ADMIT, RECLAIM)


def check(snapshot: Snapshot, claim_id: str = "p") -> tuple[Referee, Decision]:
    """Decide, and let the referee check the answer: whether victims exist, are permitted and are all needed."""
    preemptor = next(claim for claim in snapshot.claims if claim.id == claim_id)
    plan = decide(snapshot)
    decision = next(decision for decision in plan.decisions if decision.claim == claim_id)
    referee = Referee(snapshot, preemptor)
    assert invariants.of_plan(snapshot, plan) == ()
    if referee.inside:
        assert (decision.decision in STARTS) == referee.victims_exist(), snapshot.id
    victims = [claim for claim in snapshot.claims if claim.id in decision.victims]
    if referee.inside and victims:
        assert referee.permits(victims)
        assert referee.fits_without(victims)
        for victim in victims:
            rest = [other for other in victims if other is not victim]
            assert not (referee.permits(rest) and referee.fits_without(rest)), f"{victim.id} could stay"
    return referee, decision


@patient
def test_claim_inside_its_guarantee_reclaims_whenever_a_permitted_set_exists() -> None:
    """Single pods, gangs and gangs in one rack; whole cards, shared cards, also with compute or CPU, and MIG; flat and
    nested, with and without fair sharing; some of the candidates have several pods or belong to the preemptor's own
    department."""
    crowded = reclaimed = waiting = 0
    for seed in range(examples(400, 20_000)):
        referee, decision = check(a_crowd(seed))
        crowded += len(referee.candidates) > MANY
        reclaimed += decision.decision is RECLAIM
        waiting += decision.decision is WAIT
    assert min(crowded, reclaimed, waiting) * 12 > examples(400, 20_000)  # otherwise the test would prove little


def a_cluster(racks: int, each: int, sizes: list[int], lenders: int, request: Claim, seed: int = 0) -> Snapshot:
    """Racks of nodes with eight cards, full of jobs of other departments; the guarantee of each is what it uses, less its
    part of the request."""
    chance = Random(seed)
    machines = tuple(Node(f"n{n:03}", (Card(1),) * 8, domain=f"r{n % racks}") for n in range(racks * each))
    claims: list[Claim] = []
    for node in machines:
        cards = list(range(8))
        while cards:
            units, started = min(chance.choice(sizes), len(cards)), -chance.randrange(1, 90_000)
            places = (Placed(0, node.name, tuple(cards.pop(0) for _ in range(units))),)
            more = {"started_at": started, "priority": chance.randrange(2), "placement": places}
            claims.append(holding(f"h{len(claims):04}", f"d{chance.randrange(lenders)}", units, **more))
    departments = [a_department("t", request.units)]
    for n in range(lenders):
        used = sum(claim.units for claim in claims if claim.department == f"d{n}")
        departments.append(a_department(f"d{n}", used - request.units // lenders - (n < request.units % lenders)))
    return a_snapshot(a_pool(nodes=machines), departments, [*claims, request])


@pytest.mark.parametrize("sizes", [[1], [1, 2, 4]])
@pytest.mark.parametrize("lenders", [1, 3])
@pytest.mark.parametrize(("pods", "same_domain"), [(2, False), (2, True), (16, True)])
def test_gang_clears_only_as_many_of_180_nodes_as_it_needs(
    sizes: list[int], lenders: int, pods: int, same_domain: bool
) -> None:
    request = pending("p", "t", 8, pods=pods, same_domain=same_domain)
    snapshot = a_cluster(10, 18, sizes, lenders, request)
    decision = answers(snapshot)["p"]
    victims = [claim for claim in snapshot.claims if claim.id in decision.victims]
    assert decision.decision is RECLAIM
    assert sum(claim.units for claim in victims) == 8 * pods  # the other departments borrow no more
    assert {placed.node for claim in victims for placed in claim.placement or ()} == {
        p.node for p in decision.placement or ()
    }
    domains = {
        node.domain for node in snapshot.pools[0].nodes or () if node.name in {p.node for p in decision.placement or ()}
    }
    assert len(domains) == 1 or not same_domain


def on(node: str, *cards: int) -> tuple[Placed, ...]:
    return (Placed(0, node, cards),)


def test_gang_uses_an_empty_node_and_clears_the_node_with_fewest_victims() -> None:
    """Twenty-one candidates: n1 is empty, on n2 four jobs of two run, elsewhere eight of one."""
    claims = [holding(f"two{n}", "b", 2, placement=on("n2", 2 * n, 2 * n + 1)) for n in range(4)]
    claims += [
        holding(f"one{node}{card}", "b", 1, placement=on(f"n{node}", card)) for node in (3, 4) for card in range(8)
    ]
    departments = [a_department("t", 16), a_department("b", 16)]
    snapshot = a_snapshot(a_pool(nodes=nodes(8, 8, 8, 8)), departments, [*claims, pending("p", "t", 8, pods=2)])
    _, decision = check(snapshot)
    assert decision.victims == ("two0", "two1", "two2", "two3")
    assert [placed.node for placed in decision.placement or ()] == ["n1", "n2"]


def test_lower_priority_and_less_lost_work_are_preempted_first_among_many_candidates() -> None:
    """Any two nodes would do: n3 and n4 have the lowest priorities, and the gang needs only three cards of each."""
    claims = [
        holding(f"h{node}{card}", "b", 1, placement=on(f"n{node}", card), priority=int(node < 3), checkpointed_at=-card)
        for node in range(1, 5)
        for card in range(4)
    ]
    departments = [a_department("t", 6), a_department("b", 10)]
    snapshot = a_snapshot(
        a_pool(nodes=nodes(4, 4, 4, 4)), departments, [*claims, pending("p", "t", 3, pods=2, priority=1)]
    )
    _, decision = check(snapshot)
    assert decision.victims == ("h30", "h31", "h32", "h40", "h41", "h42")


def test_own_work_is_preempted_only_where_that_of_others_is_not_enough() -> None:
    """Only eight units of b can be preempted, which clears one node; the other pod's node must come from lower priorities of
    t itself."""
    claims = [holding(f"b{node}{card}", "b", 1, placement=on(f"n{node}", card)) for node in (1, 2) for card in range(8)]
    claims += [holding(f"t{card}", "t", 1, placement=on("n3", card), priority=-1) for card in range(8)]
    departments = [a_department("t", 24), a_department("b", 8)]
    machines = a_pool(24, nodes=nodes(8, 8, 8), nominal=32)
    _, decision = check(a_snapshot(machines, departments, [*claims, pending("p", "t", 8, pods=2)]))
    assert decision.decision is RECLAIM
    assert sorted(v[0] for v in decision.victims) == ["b"] * 8 + ["t"] * 8


def test_wide_search_finds_victims_where_the_narrow_search_finds_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_clearing, "NARROW", 1)
    for seed in range(examples(60, 600)):
        check(a_crowd(seed))
