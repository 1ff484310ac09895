"""Places one pod may go to, and where to look first when it needs victims there.

A place is a node for whole cards, a card for a part of it, as many cards as it takes where whole ones are asked of those
that others share, a node's instances of a profile. Freely cut cards have no such sum. Nodes are kept in the order of
what a place there costs at least: the cheapest borrowed claims that give what is lacking, were each the only one taken
from its department.
"""

from collections.abc import Collection, Generator, Iterator
from dataclasses import dataclass
from itertools import combinations, islice

from quotas.engine.books import Books
from quotas.engine.exact import Goods
from quotas.engine.permission import Taker, stoppable
from quotas.engine.placement import Key
from quotas.engine.room import Rank
from quotas.engine.types import Claim, ClaimId, DepartmentId, Node, Pool
from quotas.engine.units import lost_work

Bound = tuple[object, ...]
"""The beginning of a cost (victims.py) that no set at a place is below."""
Offer = tuple[int, int, int, int, ClaimId]
"""(priority, units below the guarantee were it the only one taken, lost work, units, id)"""
Least = tuple[int, int, int, int]
"""The least (units, where they come first, units below guarantees, priority ceiling, lost work)."""

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


def sites_on(books: Books, taker: Taker, node: Node, own: list[Claim], theirs: list[Claim]) -> list[Site]:
    """The places on the node that these candidates can free, the taker's own and others', by what that costs at least."""
    candidates = [*own, *theirs]
    machine = _lacking_of_machine(books, taker.claim, node, candidates)
    if machine is None:
        return []
    offers = sorted(_offer(books, claim) for claim in theirs)
    mine = [claim.id for claim in own]
    found: list[Site] = []
    for gives, lacking in _places(books, taker.claim, node, candidates):
        amounts, need = (gives, lacking) if lacking > 0 else machine
        if need <= 0:  # something that is not counted here, such as a card's compute
            amounts, need = {claim.id: 1 for claim in candidates}, 1
        found.append(Site(gives, lacking, _bound(taker, offers, amounts, need, mine)))
    return sorted(found, key=lambda site: site.least)


def _places(books: Books, claim: Claim, node: Node, candidates: Collection[Claim]) -> Iterator[tuple[Goods, int]]:
    """What each candidate gives at each place on the node, and how much is lacking; only where they give enough."""
    given: dict[Key, dict[ClaimId, int]] = {}
    for candidate in candidates:
        for key, amount in books.vectors[candidate.id].items():
            given.setdefault(key, {})[candidate.id] = amount
    places = []
    for keys, amount in _site_keys(books.pool, claim, node):
        gives = _together([given.get(key, {}) for key in keys])
        lacking = amount - sum(books.free_later[key] for key in keys)
        if sum(gives.values()) >= lacking:
            places.append((gives, lacking))
    for several in islice(combinations(places, _cards_asked(books.pool, claim, node)), CHOICES):
        yield _together([gives for gives, _ in several]), sum(max(0, lacking) for _, lacking in several)


def _together(goods: list[dict[ClaimId, int]]) -> dict[ClaimId, int]:
    """What each claim gives of all of them."""
    if len(goods) == 1:
        return goods[0]
    sums: dict[ClaimId, int] = {}
    for each in goods:
        for id, amount in each.items():
            sums[id] = sums.get(id, 0) + amount
    return sums


def _site_keys(pool: Pool, claim: Claim, node: Node) -> Iterator[tuple[list[Key], int]]:
    """The keys of the free vector that make up a place on the node, and how much of them the claim needs; or each card,
    where it needs several whole ones of those that others share."""
    if pool.mig is not None:
        if claim.profile in (node.instances or {}):
            yield [("instance", pool.id, node.name, claim.profile or "")], 1
        return
    cards: list[Key] = [("card", pool.id, node.name, index) for index in range(len(node.cards))]
    whole = _whole(node)
    if whole == 1:
        yield cards, claim.on_card
    elif whole and (claim.on_card <= whole or claim.on_card % whole == 0):
        yield from (([card], min(claim.on_card, whole)) for card in cards)


def _cards_asked(pool: Pool, claim: Claim, node: Node) -> int:
    """How many of the places that `_site_keys` names the claim needs."""
    whole = _whole(node)
    return 1 if pool.mig is not None or whole <= 1 else max(1, claim.on_card // whole)


def _whole(node: Node) -> int:
    """The units of a whole card."""
    return max((card.units for card in node.cards), default=0)


# What a set costs at least --------------------------------------------------------------------------------------------


def _offer(books: Books, claim: Claim) -> Offer:
    short = max(0, claim.units - _spare(books, claim))
    return claim.priority, short, lost_work(claim, books.now, books.settings), claim.units, claim.id


def _spare(books: Books, claim: Claim) -> int:
    account = books.ledger[claim.department]
    return account.usage - account.guaranteed


def _bound(taker: Taker, offers: list[Offer], gives: Goods, need: int, mine: list[ClaimId]) -> Bound:
    """The beginning of what a set costs at least: others' claims alone, or with those of the taker's own department."""
    given = sum(gives.get(id, 0) for id in mine)
    if taker.inside:
        least = _cheapest(offers, gives, need, by_units=False)
        return (1,) if least is None else (0, (), *least[1:])
    least = _cheapest(offers, gives, need - given, by_units=True)
    if least is None:
        return (1 << 60,)
    return least[:1] if given else (least[0], (), *least[1:])


def _cheapest(offers: list[Offer], gives: Goods, need: int, by_units: bool) -> Least | None:
    """The least that offers which give the need cost. They come by priority, so the last of a set is its ceiling."""
    if need <= 0:
        return 0, 0, -(10**9), 0
    found: list[Least] = []
    table: dict[int, tuple[int, int, int]] = {0: (0, 0, 0)}
    for priority, short, lost, units, id in offers:
        given = gives.get(id, 0)
        if not given:
            continue
        for amount, old in list(table.items()):
            if amount < need:
                value = (old[0] + units if by_units else 0, old[1] + short, old[2] + lost)
                state = min(amount + given, need)
                if state not in table or value < table[state]:
                    table[state] = value
                    if state == need:
                        found.append((value[0], value[1], priority, value[2]))
    return min(found, default=None)


# Which node first -----------------------------------------------------------------------------------------------------


def nodes_to_try(
    books: Books, taker: Taker, own: list[Claim], rivals: Collection[DepartmentId]
) -> Generator[tuple[Bound, Node], None, None]:
    """Every node that may have a place, with what a set there costs at least."""
    nodes = books.pool.nodes or ()
    if books.settings.fair_sharing or (not taker.inside and taker.policy.borrow_preempt is not None):
        yield from (((), node) for node in nodes)
        return
    mine = {placed.node for claim in own for placed in claim.placement or ()}
    if not taker.inside:
        yield from (((0,), node) for node in nodes if node.name in mine)
    if rivals and taker.policy.reclaim != "never":
        yield from _by_least_cost(books, taker, own)
    if taker.inside:
        yield from (((1,), node) for node in nodes if node.name in mine)


def _by_least_cost(books: Books, taker: Taker, own: list[Claim]) -> Iterator[tuple[Bound, Node]]:
    """The nodes where others' claims alone give what is lacking, by the least that could cost; for who is not inside its
    guarantee yet together with its own that must go."""
    claim = taker.claim
    for department in books.departments_grown():
        if department in books.ledger.above:
            held = books.holding.get(department, {}).values()
            books.free_later.touch(placed.node for claim in held for placed in claim.placement or ())
    below = None if taker.policy.reclaim == "any" else claim.priority
    shape = claim.on_card, claim.profile, claim.cpu_milli, claim.memory_mib
    ranking = books.free_later.ranking(
        ("victims", taker.inside, shape, below, taker.patient),
        books.pool,
        lambda node: _least_cost(books, taker, below, node),
    )
    _, _, ceiling, lost = (0, 0, -(10**9), 0) if taker.inside else _least_own(books, taker, own)
    for (units, below_guarantee, highest, loss), node in ranking.walk():
        yield (units, (), below_guarantee, max(ceiling, highest), lost + loss), node


def _least_own(books: Books, taker: Taker, own: list[Claim]) -> Least:
    """What the taker's own claims cost at least that must go before it has a right to others'."""
    over = taker.account.usage + taker.asked - taker.account.guaranteed
    charges = books.standing.charges
    offers = [(0, 0, lost_work(claim, books.now, books.settings), 0, claim.id) for claim in own]
    gives = {claim.id: charges[claim.id] for claim in own}
    least = _cheapest(offers, gives, over, by_units=False)
    return (0, 0, min(claim.priority for claim in own), 0 if least is None else least[3])


def _least_cost(books: Books, taker: Taker, below: int | None, node: Node) -> Rank | None:
    """What victims on the node cost at least, in the order of preference; None when they cannot give what is lacking."""
    theirs = [
        claim
        for claim in books.on_node.get(node.name, {}).values()
        if _spare(books, claim) > 0
        and (below is None or claim.priority < below)
        and stoppable(books, taker.patient, claim)
    ]
    least = min((site.least for site in sites_on(books, taker, node, [], theirs)), default=None) if theirs else None
    return None if least is None else (least[0], *least[2:])


def _lacking_of_machine(books: Books, claim: Claim, node: Node, candidates: list[Claim]) -> tuple[Goods, int] | None:
    """What the node lacks of CPU or else of memory, and what each candidate would give of it; None when they are not
    enough."""
    lacks: tuple[Goods, int] = {}, 0
    for kind, asked, present in (
        ("memory", claim.memory_mib, node.memory_mib),
        ("cpu", claim.cpu_milli, node.cpu_milli),
    ):
        key: Key = (kind, node.name)
        lacking = 0 if present is None else asked - books.free_later[key]
        if lacking > 0:
            gives = {candidate.id: books.vectors[candidate.id].get(key, 0) for candidate in candidates}
            if sum(gives.values()) < lacking:
                return None
            lacks = gives, lacking
    return lacks
