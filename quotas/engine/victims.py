"""Which of the permitted victim sets: the order of preference, and where to look for the best.

A taker that goes to one place (a pool that only counts, or one node or card) gets the exact optimum of each place from
exact.py and the best of them all. Trees and gangs are searched, see search.py; among many candidates nodes are cleared one by
one, see clearing.py.
"""

from collections.abc import Collection, Iterable
from contextlib import closing, suppress
from dataclasses import dataclass, replace

from quotas.engine.books import Books
from quotas.engine.clearing import clear
from quotas.engine.exact import best_set
from quotas.engine.permission import (
    Fairness,
    Taker,
    open_to,
    own_candidates,
    permitted,
    rivals_of,
    taker_of,
)
from quotas.engine.problem import Problem, TooManySets, lacking_of_pool, need_of
from quotas.engine.recallable import priorities_below, recallable_for
from quotas.engine.reservations import needs_all
from quotas.engine.search import MANY, cheapest, makes_room, needs_own, search
from quotas.engine.shares import NO_CHANGE, Change, lowered
from quotas.engine.sites import has_sites, nodes_to_try, sites_on
from quotas.engine.space import NOWHERE, Host, Places
from quotas.engine.types import Claim, DepartmentId

Cost = tuple[int, Change, int, int, int, int, int, tuple[str, ...]]
FEW, CROWD = 8, 100
"""Of so few candidates every set is searched; among more than a crowd a search finds nothing that clearing nodes does not."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """Victims, and the places their leaving makes for the taker."""

    victims: tuple[Claim, ...]
    places: Places


def question_of(books: Books, claim: Claim) -> tuple[object, ...]:
    """What matters for victims; claims behind in the same department never outrank those before."""
    return (
        claim.department, books.inside(claim), books.asked(claim), claim.units_per_pod, claim.pods, claim.shape,
        claim.same_domain, claim.must_stay_inside,
    )  # fmt: skip


def choose(books: Books, claim: Claim, patient: bool = False) -> Chosen | None:
    """The victims for a claim, or None when no permitted set makes it fit."""
    taker = taker_of(books, claim, patient)
    borrowed = _borrowed(books, taker)
    if borrowed is not None:
        return Chosen(tuple(sorted(borrowed, key=lambda victim: victim.id)), ())
    own = own_candidates(books, taker)
    if own and not taker.inside:  # who would borrow spares others if its own claims suffice
        chosen = _best(books, taker, own, (), Fairness.BEFORE)
        if chosen is not None:
            return chosen
    rivals = rivals_of(books, taker, own)
    if not rivals and not (taker.inside and own):
        return None
    for fairness in _fairness(books, taker):
        chosen = _best(books, taker, own, rivals, fairness)
        if chosen is not None:
            return chosen
    return None


def _fairness(books: Books, taker: Taker) -> Iterable[Fairness]:
    """The ways to look at shares, in the order in which they are tried."""
    by_right = taker.inside and books.ledger.flat  # in a tree it may borrow further up
    return Fairness if books.settings.fair_sharing and not by_right else (Fairness.BEFORE,)


def _borrowed(books: Books, taker: Taker) -> tuple[Claim, ...] | None:
    """The victims, where the everyday case is enough: a flat pool that counts, a taker inside its guarantee."""
    counted = books.pool.nodes is None or taker.claim.is_recall
    never = taker.policy.reclaim == "never" or books.settings.fair_sharing
    if never or not (taker.inside and counted and books.ledger.flat):
        return None
    need = max(need_of(books, taker, lacking_of_pool(books, taker)))
    return recallable_for(books, taker).best_set(need, priorities_below(taker)) if need > 0 else None


def still_needed(
    books: Books, claim: Claim, told: Collection[Claim], behind: int = 0, reserved_behind: int = 0
) -> Chosen | None:
    """Of those who leave for the claim, the ones it still needs; None when it would not fit, or not by right, if all went.
    What others of its department use who come after it (`behind`) does not take its right to them, and for what those have
    only reserved above the guarantee nobody need go on its account."""
    account = books.ledger[claim.department]
    above = books.asked(claim) - account.own_left - behind
    reserved_behind = max(0, min(reserved_behind, above))
    books.ledger.lend(claim.department, -reserved_behind)
    try:
        with books.as_if(told, gone=False):
            taker = taker_of(books, claim)
            taker = replace(taker, told=True, behind=behind, inside=taker.beyond <= behind)
            found = (_settled(books, taker, tuple(told), fairness) for fairness in _fairness(books, taker))
            return next((chosen for chosen in found if chosen is not None), None)
    finally:
        books.ledger.lend(claim.department, reserved_behind)


def still_needs_all(books: Books, claim: Claim, told: Collection[Claim], behind: int) -> bool:
    """Whether a reservation of the snapshot would be made again with the same places and all who leave for it, found without
    taking it back: none of them can stay, they may still go, and with what it holds they are all that it waits for."""
    hold, free, ids = books.holds[claim.id], books.free_later, [leaver.id for leaver in told]
    if books.settings.fair_sharing or hold.charged != books.asked(claim) or books.lost_its_right(claim):
        return False
    whole = all(hold.now[slot] + hold.coming.get(slot, 0) >= amount for slot, amount in hold.later.items())
    lost = any(slot == NOWHERE or free.row[slot] < 0 for slot in hold.later)
    if lost or not whole or not needs_all(books, claim, ids):
        return False
    charges = books.standing.charges
    entries = [(claim.department, -hold.charged), *((leaver.department, charges[leaver.id]) for leaver in told)]
    for department, units in entries:
        books.ledger.lend(department, units)
    taker = taker_of(books, claim)
    allowed = permitted(books, replace(taker, told=True, behind=behind), told, Fairness.BEFORE)
    for department, units in entries:
        books.ledger.lend(department, -units)
    return allowed


def _best(
    books: Books, taker: Taker, own: list[Claim], rivals: Collection[DepartmentId], fairness: Fairness
) -> Chosen | None:
    counted, flat = books.pool.nodes is None or taker.claim.is_recall, books.ledger.flat
    best: tuple[Cost, Chosen] | None = None
    if (flat or not books.settings.fair_sharing) and (counted or _has_place(books, taker)):
        need = need_of(books, taker, lacking_of_pool(books, taker))
        theirs = {department: books.holding.get(department, {}).values() for department in sorted(rivals)}
        with suppress(TooManySets):
            victims = best_set(Problem(books, taker, own, theirs, None, need, fairness))
            if flat and counted and victims and not books.settings.fair_sharing:  # exact: none can be put back
                fits = makes_room(books, taker, victims) is not None  # but others may come first
                return Chosen(tuple(sorted(victims, key=lambda victim: victim.id)), ()) if fits else None
            chosen = _settled(books, taker, victims, fairness)
            if chosen is not None or (counted and flat):
                return chosen
    elif taker.claim.pods == 1 and not counted and has_sites(books.pool):
        best = _best_on_a_node(books, taker, own, rivals, fairness)
        if flat and _only_a_place_is_lacking(books, taker):
            return None if best is None else best[1]
    held = (books.holding.get(department, {}).values() for department in sorted(rivals))
    claims = own + [claim for claims in held for claim in open_to(books, taker, claims)]
    if best is None or flat or len(claims) <= MANY:
        find = _searched if counted else _found
        best = _better(books, taker, best, find(books, taker, claims, fairness))
    return None if best is None else best[1]


def _has_place(books: Books, taker: Taker) -> bool:
    """Whether there is a place already, and only units of the pool or the right to them are lacking."""
    return (
        books.places(taker.claim, books.free_later, min(taker.asked, books.free_later.row[books.pool_slot])) is not None
    )


def _searched(books: Books, taker: Taker, claims: list[Claim], fairness: Fairness) -> Chosen | None:
    """The best set that a search finds among the claims."""
    victims = search(books, taker, claims, fairness, lambda victims: cost(books, taker, victims))
    return _settled(books, taker, victims, fairness)


def _found(books: Books, taker: Taker, claims: list[Claim], fairness: Fairness) -> Chosen | None:
    """The best set that is found for places on nodes: few candidates are searched whole; among many nodes are cleared one by one,
    and the search may still know better."""
    if len(claims) <= MANY:
        found = _searched(books, taker, claims, fairness)
        return found if found is not None or len(claims) <= FEW else _cleared(books, taker, claims, fairness)
    best = _better(books, taker, None, _cleared(books, taker, claims, fairness))
    if len(claims) <= CROWD or not books.ledger.flat:
        best = _better(books, taker, best, _searched(books, taker, claims, fairness))
    return None if best is None else best[1]


def _cleared(books: Books, taker: Taker, claims: list[Claim], fairness: Fairness) -> Chosen | None:
    """The best set that clearing node by node finds among the claims."""
    victims = clear(books, taker, claims, fairness, lambda victims: cost(books, taker, victims))
    return _settled(books, taker, victims, fairness)


def _only_a_place_is_lacking(books: Books, taker: Taker) -> bool:
    """Whether claims elsewhere could give nothing but the right to stand inside the department's own limits."""
    account, root = taker.account, books.ledger.root
    return max(0, account.kept - account.usage) + root.subtree - root.usage >= taker.asked


def _best_on_a_node(
    books: Books, taker: Taker, own: list[Claim], rivals: Collection[DepartmentId], fairness: Fairness
) -> tuple[Cost, Chosen] | None:
    """The best of all places. No node is looked at that cannot be better than the best so far."""
    best: tuple[Cost, Chosen] | None = None
    tried: set[str] = set()
    with closing(nodes_to_try(books, taker, own, rivals, lambda least: best is not None and best[0] <= least)) as nodes:
        for _, host, one in nodes:
            if host.name in tried:
                continue
            tried.add(host.name)
            alone = None if one is None else _alone(books, taker, books.on_node[host.name][one], fairness)
            if alone is not None:
                best = _better(books, taker, best, alone)
            else:
                best = _on_node(books, taker, own, rivals, host, fairness, best)
    return best


def _alone(books: Books, taker: Taker, victim: Claim, fairness: Fairness) -> Chosen | None:
    """The one claim, if its leaving is all that the taker lacks."""
    places = makes_room(books, taker, (victim,)) if permitted(books, taker, (victim,), fairness) else None
    return None if places is None else Chosen((victim,), places)


def _on_node(
    books: Books,
    taker: Taker,
    own: list[Claim],
    rivals: Collection[DepartmentId],
    host: Host,
    fairness: Fairness,
    best: tuple[Cost, Chosen] | None,
) -> tuple[Cost, Chosen] | None:
    """The best set of each place on the node, exactly, if it is better than the best so far; where the cards would do, but
    not the node's CPU or memory, one that a search finds. Own claims elsewhere may give the right."""
    here = books.on_node.get(host.name, {})
    mine = [claim for claim in own if claim.id in here]
    open_here = open_to(books, taker, [claim for claim in here.values() if claim.department in rivals])
    theirs: dict[DepartmentId, list[Claim]] = {}
    for claim in open_here:
        theirs.setdefault(claim.department, []).append(claim)
    unsolved = False
    for site in sites_on(books, taker, host, mine, open_here):
        if best is not None and best[0] <= site.least:
            break
        need = need_of(books, taker, site.lacking)
        of_own = own if (rivals and not taker.inside) or need[1] > 0 else mine
        try:
            victims = (
                best_set(Problem(books, taker, of_own, theirs, site.gives, need, fairness)) if max(need) > 0 else ()
            )
        except TooManySets:
            unsolved = True
            continue
        chosen = _settled(books, taker, victims, fairness)
        unsolved = unsolved or (chosen is None and victims is not None)
        best = _better(books, taker, best, chosen)
    if unsolved:
        best = _better(books, taker, best, _found(books, taker, [*mine, *open_here], fairness))
    return best


def _better(
    books: Books, taker: Taker, best: tuple[Cost, Chosen] | None, chosen: Chosen | None
) -> tuple[Cost, Chosen] | None:
    """The best so far, or what was found if that is better."""
    if chosen is None:
        return best
    found = cost(books, taker, chosen.victims), chosen
    if best is None:
        return found
    return best if cheapest(books, taker, {found[0]: chosen.victims, best[0]: best[1].victims}) == best[0] else found


def cost(books: Books, taker: Taker, victims: Iterable[Claim]) -> Cost:
    """What a victim set costs, in the order in which sets are compared; the least wins."""
    victims = tuple(victims)
    taken: dict[str, int] = {}
    for victim in victims:
        taken[victim.department] = taken.get(victim.department, 0) + victim.units
    mine = taken.pop(taker.account.id, 0)
    change, below = NO_CHANGE, 0
    for department, units in taken.items():
        account = books.ledger[DepartmentId(department)]
        below += max(0, account.guaranteed - (account.usage - units))
        if books.settings.fair_sharing and not account.children:
            change += lowered(account, units)
    return (
        mine if taker.inside else sum(taken.values()),
        change,
        below,
        max((victim.priority for victim in victims), default=-(10**9)),
        sum(map(books.lost_work, victims)),
        len(victims),
        sum(victim.units for victim in victims),
        tuple(sorted(victim.id for victim in victims)),
    )


# Fitting --------------------------------------------------------------------------------------------------------------


def _settled(books: Books, taker: Taker, victims: tuple[Claim, ...] | None, fairness: Fairness) -> Chosen | None:
    """The set without those who can be put back – dearest first – or None when it makes no room after all."""
    places = None if victims is None else makes_room(books, taker, victims)
    if victims is None or places is None:
        return None
    kept, order = list(victims), list(victims)
    if len(order) > 1:
        order.sort(key=lambda victim: cost(books, taker, (victim,)), reverse=True)
    charges, spare = books.standing.charges, -lacking_of_pool(books, taker)
    spare += sum([charges[victim.id] for victim in victims])
    for victim in order:
        if charges[victim.id] > spare:
            continue
        rest = [other for other in kept if other is not victim]
        if permitted(books, taker, rest, fairness) or not permitted(books, taker, kept, fairness):
            room = makes_room(books, taker, rest)
            if room is not None:
                kept, places, spare = rest, room, spare - charges[victim.id]
    if not (permitted(books, taker, kept, fairness) and needs_own(books, taker, kept)):
        return None
    return Chosen(tuple(sorted(kept, key=lambda victim: victim.id)), places)
