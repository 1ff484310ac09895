"""Places one pod may go to, and where to look first when it needs victims there.

A place is a node for whole cards, a card for a part of it, as many cards as it takes where whole ones are asked of those
that others share, a node's instances of a profile. Freely cut cards have no such sum. Nodes are kept in the order of
what a place there costs at least: the cheapest borrowed claims that give what is lacking, were each the only one taken
from its department.
"""

from collections.abc import Callable, Collection, Container, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import combinations, islice, takewhile
from operator import add

from quotas.engine.books import Books
from quotas.engine.bounds import Bound, Gift, Least, Offer, alone, bound, cheapest, fair_bound, is_wide
from quotas.engine.offers import NOTHING, Here, Offered, Pile, offer_of, offered, together
from quotas.engine.permission import Taker
from quotas.engine.problem import Goods
from quotas.engine.ranking import Falls, Rank
from quotas.engine.shares import NO_CHANGE
from quotas.engine.space import NOWHERE, Host
from quotas.engine.types import Claim, ClaimId, DepartmentId, Pool

Part = tuple[Pile, int]
"""What claims give of something that a place is made of, and how much of it is lacking."""

ENOUGH: Part = NOTHING, 0
FEW = 4
"""Where fewer than one of so many nodes have claims that may be taken from, these are looked at alone."""
SAME = 6
"""The costs of two claims are the same but for who they are if so much of them is."""
CHOICES = 128
"""Of several shared cards, so many choices are looked at on one node; those of eight cards are 70 at most."""


@dataclass(frozen=True, slots=True)
class Site:
    """A place that is not free: what each candidate gives there, what is lacking, and what any set there costs at least."""

    gives: Goods
    lacking: int
    least: Bound


def has_sites(pool: Pool) -> bool:
    """Whether what a pod needs of a place is a sum of units there."""
    return pool.mig is None or all(node.instances is not None for node in pool.nodes or ())


def sites_on(books: Books, taker: Taker, host: Host, own: list[Claim], theirs: list[Claim]) -> list[Site]:
    """The places on the node that these candidates can free, the taker's own and others', by what that costs at least."""
    mine = {claim.id for claim in own}
    here = Here(books, host, [offer_of(books, claim) for claim in [*own, *theirs]])
    places, needed, only = _places(books, taker, host, here)
    found = [
        Site({offer[4]: amount for offer, amount in pile.gifts}, lacking, _bound(books, taker, host, part, mine, only))
        for (pile, lacking), part in zip(places, needed, strict=True)
    ]
    return sorted(found, key=lambda site: site.least)


def _bound(books: Books, taker: Taker, host: Host, needed: Part, mine: Container[ClaimId], only: bool) -> Bound:
    pile, need = needed
    if not books.settings.fair_sharing:
        return bound(taker, pile.gifts, need, mine)
    all_may_go = not only or is_wide(books, taker)
    return fair_bound(books, taker, books.on_node[host.name], pile.gifts, need, mine, all_may_go)


def _places(books: Books, taker: Taker, host: Host, here: Here) -> tuple[list[Part], list[Part], bool]:
    """The places on the node that the claims here can free; of each the part that its bound is of; and whether nothing is
    lacking but these."""
    machine = _lacking_of_machine(books, taker.claim, host, here)
    if machine is None:
        return [], [], False
    places = _parts(books, taker.claim, host, here)
    count = _cards_asked(taker.claim, host)
    if count > 1:
        several = islice(combinations(places, count), CHOICES)
        places = [(together([pile for pile, _ in cards]), sum([max(0, u) for _, u in cards])) for cards in several]
    if min([lacking for _, lacking in places], default=1) > 0:
        return places, places, count == 1 and machine[1] <= 0
    rest = machine
    if machine[1] <= 0:
        rest = Pile((offer, 1) for offer in here.offers.values()), 1  # not counted here, such as a card's compute
    return places, [place if place[1] > 0 else rest for place in places], False


def _cards_asked(claim: Claim, host: Host) -> int:
    """How many cards that others share a pod asks for, each of them whole if it is more than one."""
    return claim.on_card // host.whole if host.counts_parts and claim.on_card > host.whole else 1


def _parts(books: Books, claim: Claim, host: Host, here: Here) -> list[Part]:
    """What places on the node are made of, where the claims give enough of it, and how much of it lacks: all its whole cards
    together; or each card of those that others share, of which it takes one or several; or the instances of a profile."""
    free, asked, whole = books.free_later.row, claim.on_card, host.whole
    if host.pool.mig is not None:
        instances = host.instances.get(claim.profile or "")
        if instances is None:
            return []
        pile, lacking = here.pile(instances), 1 - free[instances]
    elif whole <= 1:
        pile, lacking = together(here.cards), asked - sum(free[host.stretch])
    elif asked <= whole or asked % whole == 0:
        need, left = min(asked, whole), free[host.stretch]
        return [
            (pile, need - units) for pile, units in zip(here.cards, left, strict=True) if need - units <= pile.given
        ]
    else:
        return []
    return [(pile, lacking)] if pile.given >= lacking else []


def _lacking_of_machine(books: Books, claim: Claim, host: Host, here: Here) -> Part | None:
    """What the node lacks of the first that it lacks beside its cards (CPU before memory before pods), and who gives how much
    of it; None when they do not give enough of all."""
    free, lacks = books.free_later.row, ENOUGH
    for what, amount in reversed(claim.beside):
        slot = host.beside.get(what, NOWHERE)
        if slot is not None and free[slot] < amount:
            lacks = here.pile(slot), amount - free[slot]
            if lacks[0].given < lacks[1]:
                return None
    return lacks


# Which node first -----------------------------------------------------------------------------------------------------


def nodes_to_try(
    books: Books, taker: Taker, own: list[Claim], rivals: Collection[DepartmentId], beaten: Callable[[Bound], bool]
) -> Generator[tuple[Bound, Host, ClaimId | None], None, None]:
    """Every node that may have a place, with what a set there costs at least, until that is `beaten` by what was found; and
    the claim that costs no more, if it gives all that a place there lacks."""
    standing: dict[str, list[Claim]] = {}
    for claim in own:
        for placed in claim.placement or ():
            standing.setdefault(placed.node, []).append(claim)
    mine = books.in_order(standing)
    if not taker.inside and not rivals:
        yield from _by_own_claims(books, taker, mine, standing)
    elif not taker.inside:
        yield from (((0,), host, None) for host in mine)
    if rivals:
        yield from _by_least_cost(books, taker, own, rivals, beaten)
    if taker.inside and not beaten((1,)):
        yield from (((1,), host, None) for host in mine)


def _by_own_claims(
    books: Books, taker: Taker, hosts: Iterable[Host], standing: Mapping[str, Sequence[Claim]]
) -> Iterator[tuple[Bound, Host, ClaimId | None]]:
    """The nodes where the taker's own claims alone make a place."""
    for host in hosts:
        here = standing[host.name]
        gone = [(books.vectors[claim.id], 1) for claim in here]
        if books.free_later.spot_with(taker.claim, (host,), gone) is not None:
            yield (0,), host, here[0].id if len(here) == 1 else None


def _by_least_cost(
    books: Books, taker: Taker, own: list[Claim], rivals: Collection[DepartmentId], beaten: Callable[[Bound], bool]
) -> Iterator[tuple[Bound, Host, ClaimId | None]]:
    """The nodes where others' claims alone give what is lacking, by the least that could cost; for who is not inside its
    guarantee yet together with its own that must go."""
    claim, fair = taker.claim, books.settings.fair_sharing
    below = None if taker.policy.reclaim == "any" else claim.priority
    open_ = offered(books, taker.patient, below)
    if fair and not taker.inside:  # often only few borrow so much that others may take from them
        theirs = _few_nodes_of(books, rivals)
        if theirs is not None:
            costs = ((_least_cost(books, taker, open_.on(host), host), host) for host in books.in_order(theirs))
            found = ((least, host, None) for least, host in costs if least is not None)
            yield from takewhile(lambda one: not beaten(one[0]), sorted(found, key=lambda one: one[0]))
            return
    may_borrow = taker.inside or taker.policy.borrow_preempt is not None or not books.ledger.flat
    _, _, ceiling, lost = (0, 0, -(10**9), 0) if may_borrow or fair else _least_own(books, taker, own)

    def whole(rank: Rank) -> Bound:
        if fair:
            return rank
        return rank[0], NO_CHANGE, rank[1], max(ceiling, rank[2]), lost + rank[3], *rank[4:SAME]

    shape = claim.on_card, claim.profile, claim.beside
    ranking = books.free_later.ranking(
        ("victims", taker.inside, shape, below, taker.patient, fair and is_wide(books, taker)),
        books.pool,
        lambda host: _floor(books, taker, open_.on(host), host),
        falls=Falls(open_.cheaper, lambda host, offers: _fallen(books, taker, open_, host, offers)),
    )
    walk = ranking.walk(lambda host: _least_cost(books, taker, open_.on(host), host), lambda rank: beaten(whole(rank)))
    yield from ((whole(rank), host, rank[SAME] if len(rank) > SAME else None) for rank, host in walk)


def _few_nodes_of(books: Books, departments: Iterable[DepartmentId]) -> set[str] | None:
    """Where the departments' claims stand; None as soon as these are not few nodes."""
    nodes: set[str] = set()
    for department in departments:
        for claim in books.holding.get(department, {}).values():
            nodes.update([placed.node for placed in claim.placement or ()])
        if len(nodes) * FEW >= len(books.hosts):
            return None
    return nodes


def _least_own(books: Books, taker: Taker, own: list[Claim]) -> Least:
    """What the taker's own claims cost at least that must go before it has a right to others'."""
    charges = books.standing.charges
    gifts: list[Gift] = [((0, 0, *offer_of(books, claim)[2:]), charges[claim.id]) for claim in own]
    least = cheapest(gifts, taker.beyond, by_units=False)
    return (0, 0, min(claim.priority for claim in own), 0 if least is None else least[3])


def _floor(books: Books, taker: Taker, here: Here, host: Host) -> Rank | None:
    """A bound that is found quickly: every set costs at least what its dearest claim does, and has the units that are lacking;
    with fair sharing no more than all of them change."""
    least = here.least
    if least is None:
        return None
    if books.settings.fair_sharing:
        on_node = books.on_node[host.name]
        changes = [alone(books, on_node[id]) for id in here.offers]
        return 0 if taker.inside else here.least_units, reduce(add, changes)
    if taker.inside:
        return 0, *least
    return max(here.least_units, _lacking(books, taker.claim, host)), 0, -(10**9), 0


def _fallen(books: Books, taker: Taker, open_: Offered, host: Host, offers: Collection[Offer]) -> Rank | None:
    """What every set with one of these claims on the node costs at least."""
    if books.settings.fair_sharing:
        return _floor(books, taker, open_.on(host), host)
    if taker.inside:
        return min([(0, short, priority, lost) for priority, short, lost, _, _ in offers])
    return max(min([offer[3] for offer in offers]), _lacking(books, taker.claim, host)), 0, -(10**9), 0


def _lacking(books: Books, claim: Claim, host: Host) -> int:
    """So many units the cards lack at least of what a pod needs of them, wherever it goes on the node."""
    whole = host.whole
    if not host.counts_parts:
        return 0
    left, need = sorted(books.free_later.row[host.stretch], reverse=True), min(claim.on_card, whole)
    return sum([need - units for units in left[: _cards_asked(claim, host)] if units < need])


def _least_cost(books: Books, taker: Taker, here: Here, host: Host) -> Rank | None:
    """What victims on the node cost at least, in the order of preference; None when they cannot give what is lacking. Where
    one claim alone is the best of all sets, it is its whole cost."""
    _, needed, only = _places(books, taker, host, here)
    if books.settings.fair_sharing:
        return min((_bound(books, taker, host, part, (), only) for part in needed), default=None)
    by_units, one_may_do = not taker.inside, only and taker.inside and books.ledger.flat
    ranks = [rank for pile, need in needed if (rank := pile.rank(need, by_units, one_may_do)) is not None]
    least = min(ranks, default=None)
    if (
        least is not None
        and len(ranks) > 1
        and sum([rank[:SAME] == least[:SAME] for rank in ranks if rank[3] == least[3]]) > 1
    ):
        return least[:4]  # it matters where they stand
    return least
