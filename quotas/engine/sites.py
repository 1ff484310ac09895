"""Places one pod may go to, and which node to look at first when it needs victims there.

A place is a node for whole cards, a card for a part of it, a node's instances of a profile. Freely cut cards have no
such sum. For a taker inside its guarantee the nodes are kept in the order of what a place there costs at least: the
cheapest borrowed claims that give what is lacking, were each the only one taken from its department.
"""

from collections.abc import Generator, Iterator

from quotas.engine.books import Books
from quotas.engine.exact import Goods
from quotas.engine.permission import Taker, stoppable
from quotas.engine.placement import Key
from quotas.engine.room import Rank
from quotas.engine.types import Claim, DepartmentId, Node, Pool
from quotas.engine.units import lost_work

Value = tuple[int, int, int, int, tuple[str, ...]]
"""(units below guarantees, lost work, how many, units, which)"""
Bound = tuple[object, ...]
"""The beginning of a cost (victims.py) that no set at a place is below."""


def has_sites(pool: Pool, claim: Claim) -> bool:
    """Whether what the claim needs of a place is a sum of units there."""
    if pool.mig is not None:
        return all(node.instances is not None for node in pool.nodes or ())
    whole = max((card.units for node in pool.nodes or () for card in node.cards), default=0)
    return whole == 1 or claim.on_card <= whole


def sites_on(books: Books, taker: Taker, node: Node) -> Iterator[tuple[Goods, int]]:
    """The places on the node: what each claim that holds would give there, and how much is lacking."""
    here = books.on_node.get(node.name, {})
    for keys, amount in _site_keys(books, taker.claim, node):
        gives = {id: sum(books.vectors[id].get(key, 0) for key in keys) for id in here}
        yield gives, amount - sum(books.free_later[key] for key in keys)


def _site_keys(books: Books, claim: Claim, node: Node) -> Iterator[tuple[list[Key], int]]:
    """The keys of the free vector that make up a place on the node, and how much of them the claim needs."""
    pool = books.pool
    if pool.mig is not None:
        if claim.profile in (node.instances or {}):
            yield [("instance", pool.id, node.name, claim.profile or "")], 1
        return
    cards: list[Key] = [("card", pool.id, node.name, index) for index in range(len(node.cards))]
    whole = max((card.units for card in node.cards), default=0)
    if whole == 1:
        yield cards, claim.on_card
    elif claim.on_card <= whole:
        yield from (([card], claim.on_card) for card in cards)


# Which node first -----------------------------------------------------------------------------------------------------


def nodes_to_try(
    books: Books, taker: Taker, own: list[Claim], rivals: list[DepartmentId]
) -> Generator[tuple[Bound, Node], None, None]:
    """Every node that may have a place, with what a set there costs at least."""
    nodes = books.pool.nodes or ()
    if books.settings.fair_sharing or (not taker.inside and taker.policy.borrow_preempt is not None):
        yield from (((), node) for node in nodes)
        return
    if taker.inside and rivals and taker.policy.reclaim != "never":
        yield from _by_least_cost(books, taker)
    mine = {placed.node for claim in own for placed in claim.placement or ()}
    yield from (((int(taker.inside),), node) for node in nodes if node.name in mine)


def _by_least_cost(books: Books, taker: Taker) -> Iterator[tuple[Bound, Node]]:
    """The nodes where others' claims alone give what is lacking, by the least that could cost."""
    claim = taker.claim
    for department in books.departments_grown():
        if department in books.ledger.above:
            held = books.holding.get(department, {}).values()
            books.free_later.touch(placed.node for claim in held for placed in claim.placement or ())
    below = None if taker.policy.reclaim == "any" else claim.priority
    shape = claim.on_card, claim.profile, claim.cpu_milli, claim.memory_mib
    ranking = books.free_later.ranking(
        ("victims", shape, below, taker.patient), books.pool, lambda node: _least_cost(books, taker, below, node)
    )
    for rank, node in ranking.walk():
        yield (0, (), *rank), node


def _least_cost(books: Books, taker: Taker, below: int | None, node: Node) -> Rank | None:
    """What victims on the node cost at least, in the order of preference; None when they cannot give what is lacking."""
    offers = [
        (claim, max(0, claim.units - spare))
        for claim in books.on_node.get(node.name, {}).values()
        if (spare := books.ledger[claim.department].usage - books.ledger[claim.department].guaranteed) > 0
        and (below is None or claim.priority < below)
        and stoppable(books, taker.patient, claim)
    ]
    if not offers:
        return None
    machine = _lacking_of_machine(books, taker.claim, node, [claim for claim, _ in offers])
    if machine is None:
        return None
    least: list[Rank] = []
    for gives, lacking in sites_on(books, taker, node):
        amounts, need = (gives, lacking) if lacking > 0 else machine
        if need <= 0:  # something that is not counted here, such as a card's compute
            amounts, need = {claim.id: 1 for claim, _ in offers}, 1
        found = _cheapest(books, offers, amounts, need)
        least += [found] if found is not None else []
    return min(least, default=None)


def _lacking_of_machine(books: Books, claim: Claim, node: Node, offers: list[Claim]) -> tuple[Goods, int] | None:
    """What the node lacks of CPU or else of memory, and what each claim would give of it; None when they are not enough."""
    lacks: tuple[Goods, int] = {}, 0
    for kind, asked, present in (
        ("memory", claim.memory_mib, node.memory_mib),
        ("cpu", claim.cpu_milli, node.cpu_milli),
    ):
        key: Key = (kind, node.name)
        lacking = 0 if present is None else asked - books.free_later[key]
        if lacking > 0:
            gives = {offer.id: books.vectors[offer.id].get(key, 0) for offer in offers}
            if sum(gives.values()) < lacking:
                return None
            lacks = gives, lacking
    return lacks


def _cheapest(books: Books, offers: list[tuple[Claim, int]], gives: Goods, need: int) -> Rank | None:
    """The least (units below, priority ceiling, lost work, how many, units, which) of claims that give the need."""
    found: list[Rank] = []
    table: dict[int, Value] = {0: (0, 0, 0, 0, ())}
    for claim, short in sorted(offers, key=lambda offer: offer[0].priority):
        given = gives.get(claim.id, 0)
        if given <= 0:
            continue
        lost = lost_work(claim, books.now, books.settings)
        for amount, old in list(table.items()):
            if amount < need:
                value = (
                    old[0] + short,
                    old[1] + lost,
                    old[2] + 1,
                    old[3] + claim.units,
                    tuple(sorted((*old[4], claim.id))),
                )
                state = min(amount + given, need)
                if state not in table or value < table[state]:
                    table[state] = value
                    if state == need:
                        found.append((value[0], claim.priority, *value[1:]))
    return min(found, default=None)
