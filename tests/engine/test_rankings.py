"""Room, Ranking and the order of places with victims answer as a scan over all nodes does, whatever happened before."""

from contextlib import ExitStack
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from quotas.engine.books import Books
from quotas.engine.permission import open_to, own_candidates, taker_of
from quotas.engine.ranking import Falls, Rank
from quotas.engine.room import Room, rooms_of
from quotas.engine.search import makes_room
from quotas.engine.sites import nodes_to_try, sites_on
from quotas.engine.space import Host, Space
from quotas.engine.types import Snapshot
from quotas.engine.victims import choose
from tests.engine.builders import a_pool, nodes
from tests.engine.effort import examples, patient
from tests.engine.strategies import snapshots

pytestmark = patient
POOL = a_pool(nodes=nodes(2, 4, 1, 2))
SPACE = Space((POOL,))
HOSTS = [*SPACE.hosts[POOL.id].values()]
CARDS = [slot for host in HOSTS for slot in host.cards]
LIMIT = 19
VECTORS = st.dictionaries(st.sampled_from(CARDS), st.integers(-3, 3), min_size=1, max_size=3)
STEPS = st.lists(
    st.tuples(st.sampled_from(["add", "weigh", "also", "back", "ask", "walk"]), VECTORS), min_size=1, max_size=40
)


@settings(max_examples=examples(200, 3000), deadline=None)
@given(STEPS)
def test_a_ranking_answers_as_a_scan_does(steps: list[tuple[str, dict[int, int]]]) -> None:
    room, weights = Room(SPACE), dict.fromkeys(["n1", "n2", "n3", "n4"], 0)
    lent: list[ExitStack] = []
    lighter: list[tuple[str, int]] = []

    def rank(host: Host) -> Rank | None:
        free = sum(room.row[host.stretch])
        return None if free < 0 else (free,)

    def cost(host: Host) -> Rank | None:  # the less is free the more
        known, least = rank(host), below(host)
        return None if known is None or least is None else (max(least[0], 20 + 2 * weights[host.name] - known[0]),)

    def below(host: Host) -> Rank | None:
        known = rank(host)
        return None if weights[host.name] < 0 or known is None else (10 + 2 * weights[host.name] - known[0],)

    def costs() -> list[tuple[Rank, int]]:
        found = ((cost(host), index) for index, host in enumerate(HOSTS))
        return [(one, index) for one, index in found if one is not None]

    for step, vector in steps:
        if step == "add":
            room.add(vector)
        elif step == "weigh":  # something else that costs depend on has changed
            for name in sorted({host.name for host in HOSTS if not vector.keys().isdisjoint(host.cards)}):
                before, weights[name] = weights[name], weights[name] + (1 if sum(vector.values()) % 3 else -1)
                if weights[name] < before or before < 0:
                    lighter.append((name, weights[name]))
        elif step == "also":
            lent.append(ExitStack())
            lent[-1].enter_context(room.also([vector]))
        elif step == "back" and lent:
            lent.pop().close()
        scanned = [(found, index) for index, host in enumerate(HOSTS) if (found := rank(host)) is not None]
        ranking = room.ranking("question", POOL, rank)
        if step == "walk":
            bounds = room.ranking("bound", POOL, below, falls=Falls(lighter, lambda host, fell: below(host)))
            ordered = [(found, f"n{index + 1}") for found, index in sorted(costs())]
            assert [(found, host.name) for found, host in bounds.walk(cost, lambda least: False)] == ordered
            dear = [(found, name) for found, name in ordered if found >= (LIMIT,)]
            cheap = [(found, host.name) for found, host in bounds.walk(cost, lambda least: least >= (LIMIT,))]
            assert cheap == ordered[: len(ordered) - len(dear)]
        elif step == "ask":
            first = ranking.first()
            assert (None if first is None else first.name) == (f"n{min(scanned)[1] + 1}" if scanned else None)
            assert ranking.ranks() == [rank(host) for host in HOSTS]
    for stack in reversed(lent):
        stack.close()


def test_only_what_differs_from_the_last_question_is_asked_again() -> None:
    room, asked, cheaper = Room(SPACE), list[str](), list[tuple[str, Rank | None]]()
    first, second = CARDS[0], CARDS[-1]

    def rank(host: Host) -> Rank | None:
        asked.append(host.name)
        return (sum(room.row[host.stretch]),)

    def ask(bounds: bool) -> list[str]:
        asked.clear()
        falls = Falls(cheaper, lambda host, fell: fell[-1]) if bounds else None
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
    for least, named in ((None, first_of_all), ((3,), first_of_all), ((0,), HOSTS[1])):
        cheaper.append(("n2", least))
        cheaper.append(("elsewhere", (-1,)))
        assert ranking.first() is named
        assert asked == []  # what a bound may have fallen to is told, not asked


def test_what_has_fallen_while_something_is_lent_has_fallen_afterwards() -> None:
    room, fell = Room(SPACE), list[tuple[str, Rank]]()
    costs: dict[str, int | None] = {"n1": 10, "n2": 50, "n3": 60, "n4": 70}
    on_first = HOSTS[0].cards

    def rank(host: Host) -> Rank | None:
        cost = costs[host.name]
        return None if cost is None else (cost,)

    def names(below: int = 100) -> list[str]:
        ranking = room.ranking("bound", POOL, rank, falls=Falls(fell, lambda host, ranks: min(ranks)))
        return [host.name for _, host in ranking.walk(rank, lambda bound: bound >= (below,))]

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
    books = Books(snapshot, snapshot.pools[0], *rooms_of(snapshot))
    for claim in books.pending:
        taker = taker_of(books, claim)
        held = sorted((claim for claims in books.holding.values() for claim in claims.values()), key=lambda c: c.id)
        victims = chance.sample(held, chance.randint(0, len(held)))
        with books.as_if(victims, gone=True):
            places = books.places(claim, books.free_later) if books.entitled(claim) else None
        assert makes_room(books, taker, victims) == places
        if places is not None and chance.random() < 0.5:
            books.tell(tuple(victims))
            books.reserve(claim, places, books.need(claim, places), victims)


def test_what_was_lent_leaves_no_trace() -> None:
    room = Room(SPACE)
    before = [*room.row]
    with room.also([{CARDS[0]: 2}]), room.also([{CARDS[0]: 1, CARDS[1]: 1}], -1):
        assert room.row[CARDS[0]] == before[CARDS[0]] + 1
    assert room.row == before


@settings(max_examples=examples(150, 2000), deadline=None)
@given(snapshots(fair=False, placed=True, takers=6), st.randoms(use_true_random=False))
def test_no_node_costs_less_than_what_it_is_ranked_by(snapshot: Snapshot, chance: Random) -> None:
    """Of every taker, after whatever those before it were given: each node with a set is named, and no set of any place
    costs less than the bound that it is named with."""
    books = Books(snapshot, snapshot.pools[0], *rooms_of(snapshot))
    for claim in [claim for claim in books.pending if claim.pods == 1]:
        taker = taker_of(books, claim)
        own, rivals = own_candidates(books, taker), books.ledger.above - {claim.department}
        bounds: dict[str, list[tuple[object, ...]]] = {}
        named = nodes_to_try(books, taker, own, rivals, lambda bound: False)
        for bound, host, _ in named if taker.inside else ():
            bounds.setdefault(host.name, []).append(bound)
        for host in books.hosts.values():
            here = books.on_node.get(host.name, {})
            theirs = open_to(books, taker, [other for other in here.values() if other.department in rivals])
            if theirs and taker.inside and taker.policy.reclaim != "never":
                for site in sites_on(books, taker, host, [], theirs):
                    assert min(bounds[host.name])[: len(site.least)] <= site.least
        chosen = choose(books, claim) if chance.random() < 0.7 else None
        if chosen is not None:
            books.tell(chosen.victims)
            books.reserve(claim, chosen.places, books.need(claim, chosen.places), chosen.victims)
            if chosen.victims and chance.random() < 0.3:
                books.give_up(claim)
                for victim in chosen.victims:
                    books.untell(victim)


@settings(max_examples=examples(150, 2000), deadline=None)
@given(snapshots(fair=False, placed=True, takers=6))
def test_what_is_remembered_of_nodes_changes_no_choice(snapshot: Snapshot) -> None:
    books = Books(snapshot, snapshot.pools[0], *rooms_of(snapshot))
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
            books.reserve(claim, chosen.places, books.need(claim, chosen.places), chosen.victims)
