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


def check(snapshot: Snapshot, asked: str = "p") -> tuple[Referee, Decision]:
    """Decide, and have the referee say whether the answer is right; of victims, that none can be put back."""
    preemptor = next(claim for claim in snapshot.claims if claim.id == asked)
    plan = decide(snapshot)
    decision = next(decision for decision in plan.decisions if decision.claim == asked)
    referee = Referee(snapshot, preemptor)
    assert invariants.of_plan(snapshot, plan) == ()
    if referee.inside:
        assert (decision.decision in STARTS) == referee.finds(), snapshot.id
    victims = [claim for claim in snapshot.claims if claim.id in decision.victims]
    if referee.inside and victims:
        assert referee.may_go(victims)
        assert referee.fits_without(victims)
        for victim in victims:
            rest = [other for other in victims if other is not victim]
            assert not (referee.may_go(rest) and referee.fits_without(rest)), f"{victim.id} could stay"
    return referee, decision


@patient
def test_whoever_can_be_made_room_for_is_made_room_for() -> None:
    """Single pods, gangs and gangs in one rack; whole cards, shared ones, with compute or CPU beside them, and MIG; flat and
    nested, with fair sharing and without; among others claims of several pods, and of the preemptor's own department."""
    crowded = reclaimed = waiting = 0
    for seed in range(examples(400, 20_000)):
        referee, decision = check(a_crowd(seed))
        crowded += len(referee.candidates) > MANY
        reclaimed += decision.decision is RECLAIM
        waiting += decision.decision is WAIT
    assert min(crowded, reclaimed, waiting) * 12 > examples(400, 20_000)  # else it would show nothing


def a_cluster(racks: int, each: int, sizes: list[int], lenders: int, asked: Claim, seed: int = 0) -> Snapshot:
    """Racks of nodes with eight cards, full of jobs of other departments; each of these is promised what it uses but for its
    part of what is asked."""
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
    departments = [a_department("t", asked.units)]
    for n in range(lenders):
        used = sum(claim.units for claim in claims if claim.department == f"d{n}")
        departments.append(a_department(f"d{n}", used - asked.units // lenders - (n < asked.units % lenders)))
    return a_snapshot(a_pool(nodes=machines), departments, [*claims, asked])


@pytest.mark.parametrize("sizes", [[1], [1, 2, 4]])
@pytest.mark.parametrize("lenders", [1, 3])
@pytest.mark.parametrize(("pods", "same_domain"), [(2, False), (2, True), (16, True)])
def test_of_180_nodes_in_ten_racks_as_many_are_cleared_as_the_gang_needs(
    sizes: list[int], lenders: int, pods: int, same_domain: bool
) -> None:
    asked = pending("p", "t", 8, pods=pods, same_domain=same_domain)
    snapshot = a_cluster(10, 18, sizes, lenders, asked)
    decision = answers(snapshot)["p"]
    told = [claim for claim in snapshot.claims if claim.id in decision.victims]
    assert decision.decision is RECLAIM
    assert sum(claim.units for claim in told) == 8 * pods  # the lenders have no more that is borrowed
    assert {placed.node for claim in told for placed in claim.placement or ()} == {
        p.node for p in decision.placement or ()
    }
    domains = {
        node.domain for node in snapshot.pools[0].nodes or () if node.name in {p.node for p in decision.placement or ()}
    }
    assert len(domains) == 1 or not same_domain


def on(node: str, *cards: int) -> tuple[Placed, ...]:
    return (Placed(0, node, cards),)


def test_the_node_that_needs_fewest_is_cleared_and_an_empty_one_is_used() -> None:
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


def test_among_many_lower_priorities_and_less_lost_work_go_first() -> None:
    """Any two nodes would do: n3 and n4 have the lowest priorities, and of these the gang needs no more than three of a node."""
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


def test_its_own_work_is_stopped_only_where_others_are_not_enough() -> None:
    """Of the lender only eight may go, which clears one node; the other pod's node must come from its own lower priorities."""
    claims = [holding(f"b{node}{card}", "b", 1, placement=on(f"n{node}", card)) for node in (1, 2) for card in range(8)]
    claims += [holding(f"t{card}", "t", 1, placement=on("n3", card), priority=-1) for card in range(8)]
    departments = [a_department("t", 24), a_department("b", 8)]
    machines = a_pool(24, nodes=nodes(8, 8, 8), nominal=32)
    _, decision = check(a_snapshot(machines, departments, [*claims, pending("p", "t", 8, pods=2)]))
    assert decision.decision is RECLAIM
    assert sorted(v[0] for v in decision.victims) == ["b"] * 8 + ["t"] * 8


def test_where_a_narrow_look_finds_none_a_wide_one_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_clearing, "NARROW", 1)
    for seed in range(examples(60, 600)):
        check(a_crowd(seed))
