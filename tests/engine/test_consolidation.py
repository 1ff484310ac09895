"""Suggested moves: which moves of running pods would make room for a claim where enough units are free, but fragmented."""

from dataclasses import replace
from itertools import combinations
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from quotas.engine import waiting
from quotas.engine.explain import advices, sentence
from quotas.engine.planning_pass import decide
from quotas.engine.reasons import Fragmented, Move
from quotas.engine.snapshot_json import reason_from_json, reason_to_json
from quotas.engine.types import Claim, Decision, Node, Placed, Snapshot
from tests.engine.builders import a_department, a_pool, a_snapshot, answers, holding, nodes, pending


def at(node: str, *cards: int, pod: int = 0, start: int | None = None) -> Placed:
    return Placed(pod, node, cards, start)


def busy(*claims: Claim, machines: tuple[Node, ...], **pool: Any) -> Snapshot:
    units = sum(card.units for node in machines for card in node.cards)
    return a_snapshot(a_pool(nodes=machines, **pool), [a_department("a", units)], claims)


def hint(snapshot: Snapshot, id: str = "w") -> tuple[Move, ...] | None:
    [reason] = [reason for reason in answers(snapshot)[id].reasons if isinstance(reason, Fragmented)]
    return reason.moves


HALF = (
    holding("x", "a", 2, placement=(at("n1", 0, 1),)),
    holding("y", "a", 3, placement=(at("n2", 0, 1, 2),)),
    holding("z", "a", 2, placement=(at("n3", 2, 3),)),
)


def test_one_move_makes_room_for_a_whole_node() -> None:
    assert hint(busy(*HALF, pending("w", "a", 4), machines=nodes(4, 4, 4))) == (Move("x", 0, "n1", "n3", (0, 1)),)


def test_moves_are_named_in_the_sentence_and_round_trip_as_json() -> None:
    [reason] = answers(busy(*HALF, pending("w", "a", 4), machines=nodes(4, 4, 4)))["w"].reasons
    assert sentence(reason) == (
        "5 are free but fragmented: the largest request that fits is 2. It would fit after these "
        "moves: x from n1 to n3."
    )
    assert reason_from_json(reason_to_json(reason)) == reason
    assert "No small set of moves" in sentence(Fragmented(4, 2, ()))
    assert sentence(Fragmented(4, 2)) == "4 are free but fragmented: the largest request that fits is 2."
    assert reason_to_json(Fragmented(4, 2)) == {"code": "fragmented", "free_units": 4, "largest_fit": 2}


def test_non_preemptible_and_protected_claims_are_not_moved() -> None:
    fixed = [replace(claim, preemptible=False) for claim in HALF]
    assert hint(busy(*fixed, pending("w", "a", 4), machines=nodes(4, 4, 4))) == ()
    young = [replace(claim, min_runtime=9000) for claim in HALF]
    assert hint(busy(*young, pending("w", "a", 4), machines=nodes(4, 4, 4))) == ()


def test_two_small_pods_move_where_one_is_not_enough() -> None:
    claims = [holding(f"h{n}", "a", 1, placement=(at(f"n{1 + n // 2}", n % 2),)) for n in range(4)]
    moves = hint(busy(*claims, pending("w", "a", 4), machines=nodes(4, 4)))
    assert moves == (Move("h0", 0, "n1", "n2", (2,)), Move("h1", 0, "n1", "n2", (3,)))


def test_moves_make_room_for_every_pod_of_a_gang() -> None:
    claims = [
        holding("h1", "a", 1, placement=(at("n1", 0),)),
        holding("h2", "a", 1, placement=(at("n2", 0),)),
        holding("h3", "a", 2, placement=(at("n3", 0, 1),)),
    ]
    moves = hint(busy(*claims, pending("w", "a", 4, pods=2), machines=nodes(4, 4, 4)))
    assert moves is not None
    assert {(move.claim, move.source, move.target) for move in moves} == {("h1", "n1", "n3"), ("h2", "n2", "n3")}


def test_moves_for_a_same_domain_gang_make_room_in_one_domain() -> None:
    machines = tuple(replace(node, domain=domain) for node, domain in zip(nodes(2, 2, 2, 2), "rrss", strict=True))
    claims = [
        holding("h1", "a", 1, placement=(at("n1", 0),)),
        holding("h2", "a", 1, placement=(at("n2", 0),)),
        holding("h3", "a", 1, placement=(at("n3", 0),)),
    ]
    moves = hint(busy(*claims, pending("w", "a", 2, pods=2, same_domain=True), machines=machines))
    assert moves == (Move("h3", 0, "n3", "n1", (1,)),)


def test_a_mig_instance_moves_to_another_start() -> None:
    claims = [
        holding("h1", "a", 1, profile="1g.5gb", placement=(at("n1", 0, start=1),)),
        holding("h2", "a", 1, profile="1g.5gb", placement=(at("n1", 0, start=5),)),
    ]
    pool = {"unit": "slice", "mig": "A100-40GB"}
    moves = hint(busy(*claims, pending("w", "a", 4, profile="3g.20gb"), machines=nodes(1, units=8), **pool))
    assert moves is not None
    assert [(move.source, move.target) for move in moves] == [("n1", "n1")]


def test_bounded_search_for_moves_distinguishes_not_searched_from_none_found(monkeypatch: Any) -> None:
    monkeypatch.setattr(waiting, "TRIES", 0)
    assert hint(busy(*HALF, pending("w", "a", 4), machines=nodes(4, 4, 4))) is None
    monkeypatch.setattr(waiting, "TRIES", 1)
    monkeypatch.setattr(waiting, "LOOKS", 0)
    assert hint(busy(*HALF, pending("w", "a", 4), machines=nodes(4, 4, 4))) == ()


def test_search_for_moves_ends_after_its_limit_of_tries(monkeypatch: Any) -> None:
    """The first try is n1, where least is lacking: x would have to stay on n1. Moving y from n2 to n1 is the second try."""
    claims = [
        holding("x", "a", 2, placement=(at("n1", 0, 1),)),
        holding("y", "a", 2, placement=(at("n2", 0, 1),)),
        holding("z", "a", 1, placement=(at("n2", 2),), preemptible=False),
    ]
    snapshot = busy(*claims, pending("w", "a", 3), machines=nodes(4, 4))
    assert hint(snapshot) == (Move("y", 0, "n2", "n1", (2, 3)),)
    monkeypatch.setattr(waiting, "TRIES", 1)
    assert hint(snapshot) == ()


def borrowed(*claims: Claim) -> Snapshot:
    """With claims of a department that has no guarantee, so that nothing is held for them."""
    snapshot = busy(*HALF, *claims, machines=nodes(4, 4, 4))
    return replace(snapshot, departments=(*snapshot.departments, a_department("b")))


def test_borrower_without_a_hold_gets_moves_suggested() -> None:
    assert hint(borrowed(pending("w", "b", 4))) == (Move("x", 0, "n1", "n3", (0, 1)),)


def test_requests_of_the_same_shape_share_one_search_for_moves(monkeypatch: Any) -> None:
    monkeypatch.setattr(waiting, "TRIES", 1)
    snapshot = borrowed(pending("v", "b", 4), pending("w", "b", 4))
    assert hint(snapshot, "v") == hint(snapshot, "w") == (Move("x", 0, "n1", "n3", (0, 1)),)


def test_pod_that_frees_too_little_is_not_moved() -> None:
    claims = [
        holding("small", "a", 1, placement=(at("n1", 0),)),
        holding("large", "a", 2, placement=(at("n1", 1, 2),)),
        holding("fixed", "a", 2, placement=(at("n2", 0, 1),), preemptible=False),
    ]
    moves = hint(busy(*claims, pending("w", "a", 3), machines=nodes(4, 4)))
    assert moves == (Move("large", 0, "n1", "n2", (2, 3)),)


def test_no_moves_are_suggested_where_the_node_would_still_lack_cpu() -> None:
    claims = [
        holding("x", "a", 2, cpu_milli=1000, placement=(at("n1", 0, 1),)),
        holding("y", "a", 1, cpu_milli=7000, placement=(at("n1", 2),), preemptible=False),
        holding("z", "a", 2, cpu_milli=7000, placement=(at("n2", 0, 1),), preemptible=False),
    ]
    request = pending("w", "a", 3, cpu_milli=2000)
    assert hint(busy(*claims, request, machines=nodes(4, 4, cpu_milli=8000))) == ()
    assert hint(busy(*claims, replace(request, cpu_milli=1000), machines=nodes(4, 4, cpu_milli=8000))) == (
        Move("x", 0, "n1", "n2", (2, 3)),
    )


def test_claim_with_a_hold_gets_moves_suggested_too() -> None:
    held = [*HALF, pending("w", "a", 4), pending("v", "a", 2, submitted_at=-1)]
    assert hint(busy(*held, machines=nodes(4, 4, 4))) is not None


# Against trying every move --------------------------------------------------------------------------------------------


@st.composite
def scattered(draw: st.DrawFn) -> Snapshot:
    machines = nodes(*draw(st.lists(st.sampled_from([2, 4]), min_size=2, max_size=3)))
    claims, free = [], {node.name: len(node.cards) for node in machines}
    for n in range(draw(st.integers(1, 5))):
        name, units = draw(st.sampled_from(sorted(free))), draw(st.integers(1, 2))
        if free[name] >= units:
            first = len(next(node for node in machines if node.name == name).cards) - free[name]
            free[name] -= units
            places = (at(name, *range(first, first + units)),)
            claims.append(holding(f"h{n}", "a", units, placement=places, preemptible=draw(st.booleans())))
    return busy(*claims, pending("w", "a", draw(st.integers(2, 4))), machines=machines)


def fewest(snapshot: Snapshot) -> int | None:
    """The fewest pods of one node, at most three, that can go to other nodes as they are, so that the claim fits."""
    sizes = {node.name: len(node.cards) for node in snapshot.pools[0].nodes or ()}
    running = [claim for claim in snapshot.claims if claim.placement]
    requested = next(claim for claim in snapshot.claims if not claim.placement).units
    free = {name: size - sum(c.units for c in running if where(c) == name) for name, size in sizes.items()}
    for count in (1, 2, 3):
        for pods in combinations([claim for claim in running if claim.preemptible], count):
            source = where(pods[0])
            others = {name: units for name, units in free.items() if name != source}
            if len({where(pod) for pod in pods}) == 1 and free[source] + sum(pod.units for pod in pods) >= requested:
                for pod in sorted(pods, key=lambda pod: -pod.units):
                    best = min(
                        (name for name in others if others[name] >= pod.units), key=others.__getitem__, default=None
                    )
                    if best is None:
                        break
                    others[best] -= pod.units
                else:
                    return count
    return None


def where(claim: Claim) -> str:
    assert claim.placement
    return claim.placement[0].node


@settings(max_examples=150, deadline=None)
@given(scattered())
def test_suggested_moves_are_the_fewest_and_lead_to_free_places(snapshot: Snapshot) -> None:
    decision = answers(snapshot)["w"]
    if not any(reason.code == "fragmented" for reason in decision.reasons) or not decision.position:
        return
    moves = hint(snapshot)
    assert (len(moves) if moves else None) == fewest(snapshot)
    if moves:
        moved = {move.claim: (Placed(move.pod, move.target, move.cards, move.start),) for move in moves}
        claims = [replace(claim, placement=moved.get(claim.id, claim.placement)) for claim in snapshot.claims]
        assert answers(replace(snapshot, claims=tuple(claims)))["w"].decision == "admit"


@settings(max_examples=150, deadline=None)
@given(scattered())
def test_pass_without_hints_makes_the_same_decisions_without_moves(snapshot: Snapshot) -> None:
    def unhinted(decision: Decision) -> Decision:
        reasons = [replace(r, moves=None) if isinstance(r, Fragmented) else r for r in decision.reasons]
        return replace(decision, reasons=tuple(reasons))

    hinted, without_hints = decide(snapshot), decide(snapshot, hints=False)
    assert without_hints == replace(hinted, decisions=tuple(map(unhinted, hinted.decisions)))


def test_request_that_fits_in_no_empty_pool_is_advised_to_shrink_not_to_wait() -> None:
    reason = Fragmented(16, 8, empty=True)
    assert sentence(reason) == "The nodes have no room for it, even with nothing running: at most 8 of this shape fit."
    assert advices([reason]) == ["Request fewer units per pod."]
    assert advices([reason], less_is_offered=True) == []
    assert reason_from_json(reason_to_json(reason)) == reason
