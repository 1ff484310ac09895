"""Preemption: the victims for a claim that does not fit without.

The rules are in preemption_rules.py (in brackets their numbers):

    whom the policy opens to the claim, by which `Right` (13)      `open_by`; in its own department `_within`
    who is never preempted, whatever the policy says (14)          `may_be_preempted` (minimum runtime: units.py, `young_until`)
    which of them may be preempted together (13)                   `permitted`
    which set is better (15)                                       `cost` (lost work: units.py), and its shortcuts

How it is found, by what the claim lacks (what follows *Details* is for reference):

    only units; inside, flat pool, no fair sharing          one knapsack over claims of departments that borrow: `lowest_sum`
    a place for one pod                                     node by node, the cheapest first: `cheapest_nodes`
    places for a gang (several pods)                        nodes are emptied one by one: node_clearing.py
    anything else, or few candidates                        set by set: victim_search.py
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

from quotas.engine.node_clearing import clear
from quotas.engine.pass_state import PassState
from quotas.engine.placement import Host, Places
from quotas.engine.preemption_rules import (
    Fairness,
    Preemptor,
    candidate_departments,
    cost,
    lacking_of_pool,
    open_to,
    own_candidates,
    permitted,
    preemptor_of,
)
from quotas.engine.types import Claim, DepartmentId
from quotas.engine.victim_search import (
    MANY,
    NodeCost,
    cheapest,
    cheapest_nodes,
    cheapest_sum,
    lowest_sum,
    makes_room,
    needs_own,
    put_back,
    search,
)


@dataclass(frozen=True, slots=True)
class Chosen:
    """Victims, and the places their leaving makes for the preemptor."""

    victims: tuple[Claim, ...]
    places: Places


def choose(state: PassState, claim: Claim, ignore_min_runtime: bool = False) -> Chosen | None:
    """The best victims for a claim (empty: it fits without), or None when no permitted set makes it fit. A borrower preempts
    only claims of its `own` department where these suffice. `ignore_min_runtime` is for explanations only."""
    preemptor = preemptor_of(state, claim, ignore_min_runtime)
    own = own_candidates(preemptor)
    if preemptor.inside or not own:
        return _fairest(preemptor, own, candidate_departments(preemptor, own))
    return _best(preemptor, own, ()) or _with_others(preemptor, own)


# Details: where each set is searched for --------------------------------------------------------------------------------

CROWD = 100
"""Among more candidates a search finds nothing that clearing nodes does not."""
COMPARED = 4
"""For one pod, at most so many nodes that may cost the same are compared."""


def _with_others(preemptor: Preemptor, own: list[Claim]) -> Chosen | None:
    """The best victims for a borrower for which its `own` claims are not enough."""
    departments = candidate_departments(preemptor, own)
    if not departments:
        return None
    if _may_only_reclaim(preemptor) and _are_many(preemptor.state, own, departments):
        return _own_then_others(preemptor, own, departments)  # a shortcut
    return _fairest(preemptor, own, departments)


def _fairest(preemptor: Preemptor, own: list[Claim], departments: Collection[DepartmentId]) -> Chosen | None:
    """The best victims by the strict fairness, even if they cost more; else by the next."""
    if not own and not departments:
        return None
    found = (_best(each, own, departments) for each in _by_fairness(preemptor))
    return next((chosen for chosen in found if chosen is not None), None)


def _best(preemptor: Preemptor, own: list[Claim], departments: Collection[DepartmentId]) -> Chosen | None:
    """The best set of its `own` claims and those of the `departments`. If only units are lacking, claims on any node
    do; if a place is lacking, they must free a node, and further claims may have to free quota."""
    state = preemptor.state
    if state.pool.nodes is None or preemptor.claim.is_recall or _has_place(preemptor):
        claims = _candidates(preemptor, own, departments)
        return _cheapest_of_borrowers(preemptor, claims) or _searched(preemptor, claims)
    best: Chosen | None = None
    if preemptor.claim.pods == 1:
        best = _best_on_a_node(preemptor, own, departments)
        if state.ledger.flat and _only_a_place_is_lacking(preemptor):
            return best
    claims = _candidates(preemptor, own, departments)
    if best is None or len(claims) <= MANY:
        best = _better(preemptor, best, _found(preemptor, claims))
    return best


def _candidates(preemptor: Preemptor, own: list[Claim], departments: Collection[DepartmentId]) -> list[Claim]:
    """Its `own` claims, and those of the `departments` that are open to the preemptor."""
    holding = preemptor.state.holding
    others = (holding.get(department, {}).values() for department in sorted(departments))
    return own + [claim for claims in others for claim in open_to(preemptor, claims)]


def _cheapest_of_borrowers(preemptor: Preemptor, claims: list[Claim]) -> Chosen | None:
    """For a preemptor inside its guarantee in a flat pool without fair sharing: of the lowest priorities that suffice the claims
    that lose the least work, if every department keeps what it is promised. None where that is not all that matters."""
    state = preemptor.state
    if not preemptor.inside or not state.ledger.flat or state.settings.fair_sharing:
        return None
    mine = preemptor.account.id
    need = max(preemptor.asked - state.ledger.available(mine), lacking_of_pool(preemptor))
    if need <= 0:
        return None
    borrowed = [
        claim for claim in claims if claim.department != mine and claim.units and not state.short_of_guarantee(claim)
    ]
    victims = lowest_sum(borrowed, need, lambda claim: claim.units, state.lost_work)
    if victims is None or cost(preemptor, victims).below_guarantee:
        return None
    return _without_unneeded(preemptor, victims)


def _best_on_a_node(preemptor: Preemptor, own: list[Claim], departments: Collection[DepartmentId]) -> Chosen | None:
    """The best set for one pod on one node. Inside its guarantee, a preemptor stops its `own` claims only if
    others are not enough."""
    state = preemptor.state
    for some in [(), own] if preemptor.inside and own else [own]:
        best: Chosen | None = None
        best_cost: tuple[object, ...] = ()
        compared = 0
        for node_cost, host, claims in cheapest_nodes(preemptor, some, departments):
            dearer = not state.settings.fair_sharing and best_cost[: len(node_cost.bound)] < node_cost.bound
            if best is not None and (dearer or compared == COMPARED):
                break
            chosen = _known_victims(preemptor, node_cost) or _cleared(preemptor, claims, [host])
            best = _better(preemptor, best, chosen)
            best_cost = () if best is None else cost(preemptor, best.victims)
            compared += chosen is not None
        if best is not None:
            return best
    return None


def _known_victims(preemptor: Preemptor, node_cost: NodeCost) -> Chosen | None:
    """The cheapest known victims on a node, if they are permitted, make room and cost no more than the bound."""
    victims = node_cost.victims
    if not victims or cost(preemptor, victims)[: len(node_cost.bound)] != node_cost.bound:
        return None
    places = makes_room(preemptor, victims) if permitted(preemptor, victims) else None
    return None if places is None else Chosen(tuple(sorted(victims, key=lambda victim: victim.id)), places)


def _found(preemptor: Preemptor, claims: list[Claim]) -> Chosen | None:
    """The best set found for places on nodes: few candidates are searched; for many, nodes are cleared one by one, and the search
    may still find a better set."""
    state = preemptor.state
    if len(claims) <= MANY:
        return _searched(preemptor, claims) or _cleared(preemptor, claims)
    best = _cleared(preemptor, claims)
    if len(claims) <= CROWD or not state.ledger.flat:
        best = _better(preemptor, best, _searched(preemptor, claims))
    return best


def _own_then_others(preemptor: Preemptor, own: list[Claim], departments: Collection[DepartmentId]) -> Chosen | None:
    """Enough own to be inside the guarantee, then others' claims by that right."""
    state = preemptor.state
    charges = state.charges
    chosen = cheapest_sum(own, preemptor.above_guarantee, lambda claim: charges[claim.id], state.lost_work) or ()
    with state.trial() as trial:
        trial.leave(chosen)
        rest = [claim for claim in own if claim not in chosen]
        inside = preemptor_of(state, preemptor.claim, preemptor.ignore_min_runtime)
        others = _best(inside, rest, departments)
    return None if others is None else _without_unneeded(preemptor, (*chosen, *others.victims))


# What a set is found by, and judged by --------------------------------------------------------------------------------


def _searched(preemptor: Preemptor, claims: list[Claim]) -> Chosen | None:
    """The best set that a search finds among the claims."""
    return _without_unneeded(preemptor, search(preemptor, claims))


def _cleared(preemptor: Preemptor, claims: list[Claim], hosts: list[Host] | None = None) -> Chosen | None:
    """The best set that clearing the nodes (None: all) one by one finds among the claims."""
    return _without_unneeded(preemptor, clear(preemptor, claims, hosts))


def _without_unneeded(preemptor: Preemptor, victims: tuple[Claim, ...] | None) -> Chosen | None:
    """The set without claims that can be put back, dearest first; None if it makes no room after all."""
    places = None if victims is None else makes_room(preemptor, victims)
    if victims is None or places is None:
        return None
    order = list(victims)
    if len(order) > 1:
        order.sort(key=lambda victim: cost(preemptor, (victim,)), reverse=True)
    kept, places = put_back(preemptor, [*victims], order, places)
    if not (permitted(preemptor, kept) and needs_own(preemptor, kept)):
        return None
    return Chosen(tuple(sorted(kept, key=lambda victim: victim.id)), places)


def _better(preemptor: Preemptor, one: Chosen | None, other: Chosen | None) -> Chosen | None:
    """The set that costs less; if only their ids differ, the one whose places waste less."""
    if one is None or other is None:
        return one or other
    costs = {cost(preemptor, chosen.victims): chosen.victims for chosen in (one, other)}
    return one if costs[cheapest(preemptor, costs)] == one.victims else other


# What is lacking, and how much there is to look at --------------------------------------------------------------------


def _has_place(preemptor: Preemptor) -> bool:
    """Whether there is a place already, and only units of the pool or the right to them are lacking."""
    state = preemptor.state
    units = min(preemptor.asked, state.free_later.row[state.pool_slot])
    return state.places(preemptor.claim, state.free_later, units) is not None


def _only_a_place_is_lacking(preemptor: Preemptor) -> bool:
    """Whether there are units enough: claims elsewhere could only help with the department's own limits."""
    state = preemptor.state
    account, root = preemptor.account, state.ledger.root
    return max(0, account.kept - account.usage) + root.promised - root.usage >= preemptor.asked


def _may_only_reclaim(preemptor: Preemptor) -> bool:
    """Whether it may take others' claims only inside its guarantee."""
    state = preemptor.state
    return state.ledger.flat and not state.settings.fair_sharing and preemptor.policy.borrow_preempt is None


def _are_many(state: PassState, own: list[Claim], departments: Collection[DepartmentId]) -> bool:
    """Whether these claims and those of the departments are too many for a full search."""
    return len(own) + sum(len(state.holding.get(department, ())) for department in departments) > MANY


def _by_fairness(preemptor: Preemptor) -> Iterable[Preemptor]:
    """The preemptor with each `Fairness`, the strict one first; only one where shares do not matter."""
    # In a tree, a department above may have to borrow for it.
    reclaims = preemptor.inside and preemptor.state.ledger.flat
    if reclaims or not preemptor.state.settings.fair_sharing:
        return (preemptor,)
    return (replace(preemptor, fairness=fairness) for fairness in Fairness)


# Leavers already on their way -------------------------------------------------------------------------------------------


def still_needed(
    state: PassState, claim: Claim, leavers: Collection[Claim], used_by_later: int = 0, reserved_by_later: int = 0
) -> Chosen | None:
    """The leavers that the claim still needs; None if even all of them would not give it room, or the right to it. As if they
    stayed, those that it can do without are put back.

    What later claims of its department use does not weaken that right (`used_by_later`); nor is a leaver needed for what they
    have only reserved, above the guarantee (`reserved_by_later`)."""
    account = state.ledger[claim.department]
    above = state.asked(claim) - account.own_left - used_by_later
    reserved_by_later = max(0, min(reserved_by_later, above))
    with state.trial() as trial:
        trial.charge(claim.department, -reserved_by_later)
        trial.stay(leavers)
        preemptor = preemptor_of(state, claim)
        inside = preemptor.above_guarantee <= used_by_later
        preemptor = replace(preemptor, renewing=True, used_by_later=used_by_later, inside=inside)
        found = (_without_unneeded(each, tuple(leavers)) for each in _by_fairness(preemptor))
        return next((chosen for chosen in found if chosen is not None), None)
