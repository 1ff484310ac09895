"""Room, Ranking and the order of places with victims answer as a scan over all nodes does, whatever happened before."""

from contextlib import ExitStack
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from quotas.engine.books import Books
from quotas.engine.permission import open_to, own_candidates, taker_of
from quotas.engine.placement import Key, capacity_vector
from quotas.engine.ranking import Falls, Rank
from quotas.engine.room import Room, free_vectors
from quotas.engine.search import makes_room
from quotas.engine.sites import nodes_to_try, sites_on
from quotas.engine.types import Node, Snapshot
from quotas.engine.victims import choose
from tests.engine.builders import a_pool, nodes
from tests.engine.effort import examples, patient
from tests.engine.strategies import snapshots

pytestmark = patient
POOL = a_pool(nodes=nodes(2, 4, 1, 2))
KEYS: list[Key] = [key for key in capacity_vector(POOL, ()) if key[0] == "card"]
LIMIT = 19
VECTORS = st.dictionaries(st.sampled_from(KEYS), st.integers(-3, 3), min_size=1, max_size=3)
STEPS = st.lists(
    st.tuples(st.sampled_from(["add", "weigh", "also", "back", "ask", "walk"]), VECTORS), min_size=1, max_size=40
)


@settings(max_examples=examples(200, 3000), deadline=None)
@given(STEPS)
def test_a_ranking_answers_as_a_scan_does(steps: list[tuple[str, dict[Key, int]]]) -> None:
    room, weights = Room(capacity_vector(POOL, ())), dict.fromkeys(["n1", "n2", "n3", "n4"], 0)
    lent: list[tuple[ExitStack, dict[Key, int]]] = []
    lighter: list[tuple[str, int]] = []

    def rank(node: Node) -> Rank | None:
        free = sum(room["card", POOL.id, node.name, index] for index in range(len(node.cards)))
        return None if free < 0 else (free,)

    def cost(node: Node) -> Rank | None:  # the less is free the more
        known, least = rank(node), below(node)
        return None if known is None or least is None else (max(least[0], 20 + 2 * weights[node.name] - known[0]),)

    def below(node: Node) -> Rank | None:
        known = rank(node)
        return None if weights[node.name] < 0 or known is None else (10 + 2 * weights[node.name] - known[0],)

    def costs() -> list[tuple[Rank, int]]:
        found = ((cost(node), index) for index, node in enumerate(POOL.nodes or ()))
        return [(one, index) for one, index in found if one is not None]

    for step, vector in steps:
        if step == "add":
            room.add(vector)
        elif step == "weigh":  # something else that costs depend on has changed
            for name in sorted({str(key[2]) for key in vector}):
                before, weights[name] = weights[name], weights[name] + (1 if sum(vector.values()) % 3 else -1)
                if weights[name] < before or before < 0:
                    lighter.append((name, weights[name]))
        elif step == "also":
            lent.append((ExitStack(), dict(room)))
            lent[-1][0].enter_context(room.also([vector]))
        elif step == "back" and lent:
            lent.pop()[0].close()
        scanned = [(found, index) for index, node in enumerate(POOL.nodes or ()) if (found := rank(node)) is not None]
        ranking = room.ranking("question", POOL, rank)
        if step == "walk":
            bounds = room.ranking("bound", POOL, below, falls=Falls(lighter, lambda node, fell: below(node)))
            ordered = [(found, f"n{index + 1}") for found, index in sorted(costs())]
            assert [(found, node.name) for found, node in bounds.walk(cost, lambda least: False)] == ordered
            dear = [(found, name) for found, name in ordered if found >= (LIMIT,)]
            cheap = [(found, node.name) for found, node in bounds.walk(cost, lambda least: least >= (LIMIT,))]
            assert cheap == ordered[: len(ordered) - len(dear)]
        elif step == "ask":
            first = ranking.first()
            assert (None if first is None else first.name) == (f"n{min(scanned)[1] + 1}" if scanned else None)
            assert ranking.ranks() == [rank(node) for node in POOL.nodes or ()]
    for stack, _ in reversed(lent):
        stack.close()


def test_only_what_differs_from_the_last_question_is_asked_again() -> None:
    room, asked, cheaper = Room(capacity_vector(POOL, ())), list[str](), list[tuple[str, Rank | None]]()
    first, second = KEYS[0], KEYS[-1]

    def rank(node: Node) -> Rank | None:
        asked.append(node.name)
        return (sum(room["card", POOL.id, node.name, index] for index in range(len(node.cards))),)

    def ask(bounds: bool) -> list[str]:
        asked.clear()
        falls = Falls(cheaper, lambda node, fell: fell[-1]) if bounds else None
        room.ranking(("question", bounds), POOL, rank, falls=falls).first()
        return sorted(asked)

    assert ask(False) == ask(True) == ["n1", "n2", "n3", "n4"]
    room.add({first: 2, second: -1})
    room.add({first: -2, second: 1})
    assert ask(False) == ask(True) == []
    room.add({first: 2})
    room.add({first: -3})
    assert (ask(False), ask(True)) == (["n1"], [])  # less than before: what bounds it bounds it still
    with room.also([{first: 1}, {first: 1}], -1):
        assert (ask(False), ask(True)) == (["n1"], [])
    assert ask(False) == ask(True) == []
    with room.also([{second: 1}]):
        assert ask(False) == ask(True) == ["n4"]
    assert ask(False) == ask(True) == []
    ranking = room.ranking(("question", True), POOL, rank)
    first_of_all = ranking.first()
    for least, named in ((None, first_of_all), ((3,), first_of_all), ((0,), POOL.nodes[1] if POOL.nodes else None)):
        cheaper.append(("n2", least))
        cheaper.append(("elsewhere", (-1,)))
        assert ranking.first() is named
        assert asked == []  # what a bound may have fallen to is told, not asked


def test_what_has_fallen_while_something_is_lent_has_fallen_afterwards() -> None:
    room, fell = Room(capacity_vector(POOL, ())), list[tuple[str, Rank]]()
    costs: dict[str, int | None] = {"n1": 10, "n2": 50, "n3": 60, "n4": 70}
    on_first = [key for key in KEYS if key[2] == "n1"]

    def rank(node: Node) -> Rank | None:
        cost = costs[node.name]
        return None if cost is None else (cost,)

    def names(below: int = 100) -> list[str]:
        ranking = room.ranking("bound", POOL, rank, falls=Falls(fell, lambda node, ranks: min(ranks)))
        return [node.name for _, node in ranking.walk(rank, lambda bound: bound >= (below,))]

    def falls(cost: int) -> None:
        costs["n1"] = cost
        fell.append(("n1", (cost,)))

    assert names() == ["n1", "n2", "n3", "n4"]
    costs["n1"] = 65
    assert names() == ["n2", "n3", "n1", "n4"]
    with room.also([{on_first[0]: 1}], -1):
        falls(55)
        assert names() == ["n2", "n1", "n3", "n4"]
    assert names() == ["n2", "n1", "n3", "n4"]
    costs["n1"] = None
    with room.also([{on_first[0]: 1}], -1):
        assert names() == ["n2", "n3", "n4"]
        with room.also([{on_first[1]: 1}], -1):
            falls(65)
            assert names(below=60) == ["n2"]
        assert names() == ["n2", "n3", "n1", "n4"]


@settings(max_examples=examples(150, 2000), deadline=None)
@given(snapshots(fair=False, placed=True, takers=6), st.randoms(use_true_random=False))
def test_who_fits_nowhere_yet_is_looked_for_only_where_the_victims_stand(snapshot: Snapshot, chance: Random) -> None:
    books = Books(snapshot, snapshot.pools[0], *free_vectors(snapshot))
    for claim in books.pending:
        taker = taker_of(books, claim)
        held = sorted((claim for claims in books.holding.values() for claim in claims.values()), key=lambda c: c.id)
        victims = chance.sample(held, chance.randint(0, len(held)))
        with books.as_if(victims, gone=True):
            places = books.places(claim, books.free_later) if books.entitled(claim) else None
        assert makes_room(books, taker, victims) == places
        if places is not None and chance.random() < 0.5:
            books.tell(tuple(victims))
            books.reserve(claim, places, victims)


def test_what_was_lent_leaves_no_trace() -> None:
    room = Room(capacity_vector(POOL, ()))
    before = dict(room)
    with room.also([{KEYS[0]: 2}]), room.also([{KEYS[0]: 1, KEYS[1]: 1}], -1):
        assert room[KEYS[0]] == before[KEYS[0]] + 1
    assert room == before


@settings(max_examples=examples(150, 2000), deadline=None)
@given(snapshots(fair=False, placed=True, takers=6), st.randoms(use_true_random=False))
def test_no_node_costs_less_than_what_it_is_ranked_by(snapshot: Snapshot, chance: Random) -> None:
    """Of every taker, after whatever those before it were given: each node with a set is named, and no set of any place
    costs less than the bound that it is named with."""
    books = Books(snapshot, snapshot.pools[0], *free_vectors(snapshot))
    for claim in [claim for claim in books.pending if claim.pods == 1]:
        taker = taker_of(books, claim)
        own, rivals = own_candidates(books, taker), books.ledger.above - {claim.department}
        bounds: dict[str, list[tuple[object, ...]]] = {}
        named = nodes_to_try(books, taker, own, rivals, lambda bound: False)
        for bound, node, _ in named if taker.inside else ():
            bounds.setdefault(node.name, []).append(bound)
        for node in snapshot.pools[0].nodes or ():
            here = books.on_node.get(node.name, {})
            theirs = open_to(books, taker, [other for other in here.values() if other.department in rivals])
            if theirs and taker.inside and taker.policy.reclaim != "never":
                for site in sites_on(books, taker, node, [], theirs):
                    assert min(bounds[node.name])[: len(site.least)] <= site.least
        chosen = choose(books, claim) if chance.random() < 0.7 else None
        if chosen is not None:
            books.tell(chosen.victims)
            books.reserve(claim, chosen.places, chosen.victims)
            if chosen.victims and chance.random() < 0.3:
                books.give_up(claim)
                for victim in chosen.victims:
                    books.untell(victim)


@settings(max_examples=examples(150, 2000), deadline=None)
@given(snapshots(fair=False, placed=True, takers=6))
def test_what_is_remembered_of_nodes_changes_no_choice(snapshot: Snapshot) -> None:
    books = Books(snapshot, snapshot.pools[0], *free_vectors(snapshot))
    for claim in books.pending:
        if claim.id in books.holds:
            continue
        chosen = choose(books, claim)
        remembered, books.offers = books.offers, {}
        rankings, books.free_later._rankings = books.free_later._rankings, {}
        again = choose(books, claim)
        assert (None if again is None else again.victims) == (None if chosen is None else chosen.victims)
        books.offers, books.free_later._rankings = remembered, rankings
        if chosen is not None and chosen.victims:
            books.tell(chosen.victims)
            books.reserve(claim, chosen.places, chosen.victims)
