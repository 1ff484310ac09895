"""Why a claim does not start: never (and the largest that could), not now whatever is free, or not yet and for what.

The largest request of a claim's shape that could ever run: what `impossible` names.

Shape means: no more pods, no more units in each, the same CPU, memory and domain, and for MIG any profile that is no
larger. The quotas bound it, and an empty pool must have the places.

Which moves would make room, where enough is free but not together.

Nothing is moved: the answer is a hint to people. A move takes one running pod that may be stopped from its node and
names another place for it. For each pod of the waiting claim the fewest moves on one node are looked for, one, two and
three at a time, each moved pod going where something is free already. The search is bounded; when it finds nothing,
more moves, or moves that wait for each other, might still do.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import combinations

from quotas.engine.books import Books
from quotas.engine.mig_layouts import profile_of, profiles_of
from quotas.engine.permission import stoppable
from quotas.engine.placement import best_spot
from quotas.engine.quota_tree import Account
from quotas.engine.reasons import (
    AboveCeiling,
    BackoffUntil,
    ClusterUnreachable,
    DepartmentPaused,
    Fragmented,
    HeldFor,
    Machine,
    Move,
    NoSuchProfile,
    NotEnough,
    NotLent,
    NotPreemptible,
    OverBorrowLimit,
    PoolShort,
    Reason,
    UserCap,
    WaitingForGang,
)
from quotas.engine.room import best_in, free_units, has_spot, largest_pod, nearest_machine, pods_that_fit
from quotas.engine.space import Host, Places, Vector
from quotas.engine.types import Claim, ClaimId, Decision, DecisionKind, Placed
from quotas.engine.units import beside_units, card_cores, card_units, comes_with_a_card, resized


@dataclass(frozen=True, slots=True)
class Never:
    """No state of the pool would let the claim run: every limit that it passes, the quotas' first; and the `largest` request of
    its shape that could, in units."""

    reasons: tuple[Reason, ...]
    largest: int


def impossible(books: Books) -> dict[ClaimId, Decision]:
    """The answers to those that could never run. They have no turn: their departments compete with the next claim, in every
    pass."""
    refused = {claim.id: never(books, claim) for claim in books.pending}
    return {
        id: Decision(id, DecisionKind.IMPOSSIBLE, reasons=why.reasons, largest=why.largest)
        for id, why in refused.items()
        if why is not None
    }


def never(books: Books, claim: Claim) -> Never | None:
    """Above its department's ceiling, a profile that does not exist, or larger than any node. While capacity is
    missing nobody knows what nodes there will be, so then a claim waits instead."""
    if not _profile_exists(books, claim):
        return Never((NoSuchProfile(),), 0 if books.pool.mig is None else largest(books, claim))
    limits = _limits(books, claim)
    if books.ledger.capacity < books.ledger.nominal or books.fits_when_empty(claim):
        place = None
    elif limits and (books.pool.nodes is None or claim.is_recall):
        place = None  # there are no places beside the units
    else:
        machine = nearest_machine(claim, books.pool, books.empty)
        place = Fragmented(books.ledger.capacity, largest(books, claim, by_quota=False), machine=machine, empty=True)
    if place is not None and limits and place.largest_fit >= _allowed(books, claim):
        place = None  # what the quotas allow has a place
    if place is None and not limits:
        return None
    cap = books.departments[claim.department].user_caps.get(books.pool.id)
    if cap is not None and claim.units > cap and not claim.is_recall:
        limits.append(UserCap(cap, books.used_by.get((claim.department, claim.user), 0)))
    return Never((*limits, place) if place is not None else tuple(limits), largest(books, claim))


def _limits(books: Books, claim: Claim) -> list[Reason]:
    """The limits of the department's quota that the claim alone passes."""
    account = books.ledger[claim.department]
    if claim.units > account.ceiling:
        return [AboveCeiling(account.ceiling)]
    return [_outside(account, claim)] if claim.units > account.guaranteed and claim.must_stay_inside else []


def _allowed(books: Books, claim: Claim) -> int:
    """Units that the department's quota lets such a claim have."""
    account = books.ledger[claim.department]
    return min(account.ceiling, account.guaranteed) if claim.must_stay_inside else account.ceiling


def impossible_now(books: Books, claim: Claim, reasons: tuple[Reason, ...]) -> tuple[Reason, ...]:
    """The reasons why a claim can never run, with what its department and its user use now."""
    account, used = books.ledger[claim.department], books.used_by.get((claim.department, claim.user), 0)

    def now(reason: Reason) -> Reason:
        if isinstance(reason, NotPreemptible | OverBorrowLimit):
            return _outside(account, claim)
        return UserCap(reason.limit, used) if isinstance(reason, UserCap) else reason

    return tuple(map(now, reasons))


def _outside(account: Account, claim: Claim) -> Reason:
    """What to say to a claim that must stay inside its guarantee and would not."""
    if not claim.preemptible:
        return NotPreemptible(account.guaranteed, account.usage + claim.units)
    return OverBorrowLimit(0, claim.units - account.own_left)


def _profile_exists(books: Books, claim: Claim) -> bool:
    if books.pool.mig is None:
        return claim.profile is None
    if claim.is_recall:
        return True
    return profile_of(books.pool.mig, claim.profile) is not None


def not_now(books: Books, claim: Claim) -> Reason | None:
    """What keeps the claim from starting whatever is free: no hold is made for it and nobody is stopped."""
    blocked = not_any_more(books, claim, itself_counted=False)
    if (
        blocked is None
        and claim.backoff_until is not None
        and claim.backoff_until > books.now
        and not books.inside(claim)
    ):
        return BackoffUntil(claim.backoff_until)
    return blocked


def not_any_more(books: Books, claim: Claim, itself_counted: bool) -> Reason | None:
    """The same for one that has a reservation: what its department took since does not make it wait for its back-off. What its
    user has may count the claim itself."""
    if books.departments[claim.department].paused:
        return DepartmentPaused()
    above = books.above_cap(claim, itself_counted)
    return None if above is None else UserCap(*above)


def waiting_reasons(books: Books, claim: Claim) -> tuple[Reason, ...]:
    """Why the claim waits, the most telling first."""
    since = books.pool.cluster_unreachable_since
    if since is not None:
        return (ClusterUnreachable(since),)
    blocked = not_now(books, claim)
    if blocked is not None:
        return (blocked,)
    return tuple(_by_right(books, claim) or _by_room(books, claim)) + tuple(_missing(books))


def _by_right(books: Books, claim: Claim) -> list[Reason]:
    """What the quotas say against it."""
    account, asked = books.ledger[claim.department], books.asked(claim)
    if claim.must_stay_inside and not books.inside(claim):
        return [_outside(account, claim)]
    before = books.inside_first(claim)
    if before is not None and not books.inside(claim):
        return [HeldFor(before)]
    passed = books.ledger.passed_limit(claim.department, asked)
    if passed is not None:
        above = None if passed.account is account else passed.account.id
        return [OverBorrowLimit(passed.limit, passed.asked, above)]
    short = asked - max(0, books.ledger.available(claim.department))
    if short <= 0:
        return []
    mine = {each.id for each in account.upwards()}
    keeper = max(
        (other for other in books.ledger.keepers if other.id not in mine and other.kept > other.usage),
        key=lambda other: (other.kept - other.usage, other.id),
        default=None,
    )
    if keeper is not None and keeper.kept - keeper.usage >= short:
        return [NotLent(keeper.id, keeper.kept - keeper.usage)]
    return [NotEnough(books.pool.id, short)]


def _by_room(books: Books, claim: Claim) -> Iterator[Reason]:
    """What the pool itself lacks, though the quotas would allow it."""
    asked, free = books.asked(claim), max(0, books.free_now.row[books.pool_slot])
    if free + books.held_now < asked:
        yield NotEnough(books.pool.id, asked - free)
    elif free < asked:
        yield HeldFor(next(id for id in books.holding_now if id != claim.id))
    else:  # where units are only counted, it would start
        if claim.pods > 1:
            yield WaitingForGang(pods_that_fit(claim, books.pool, books.free_now), claim.pods)
        yield Fragmented(free, largest_pod(books.pool, books.free_now, claim))


def _missing(books: Books) -> Iterator[Reason]:
    missing = books.ledger.nominal - books.ledger.capacity
    if missing > 0:
        yield PoolShort(missing)


SOME_PODS = 16
"""Numbers of pods that parts of cards are tried for one by one; more only all together."""


def largest(books: Books, claim: Claim, by_quota: bool = True) -> int:
    """Units of the largest request like the claim that the quotas, the user's cap and the empty pool would hold; or the empty
    pool alone."""
    limit = _limit(books, claim) if by_quota else books.ledger.capacity
    if claim.is_recall:
        return limit
    if books.pool.nodes is None:
        return max(pods * min(claim.units_per_pod, limit // pods) for pods in range(1, claim.pods + 1))
    return max((_with_most_pods(books, pod, claim.pods, limit) for pod in _pods(books, claim, limit)), default=0)


def _limit(books: Books, claim: Claim) -> int:
    """Units that the department's ceiling, its guarantee for who must stay inside, and the user's cap allow."""
    account = books.ledger[claim.department]
    limits = [account.ceiling]
    if claim.must_stay_inside:
        limits.append(account.guaranteed)
    cap = books.departments[claim.department].user_caps.get(books.pool.id)
    if cap is not None and not claim.is_recall:
        limits.append(cap)
    return max(0, min(limits))


def _with_most_pods(books: Books, pod: Claim, pods: int, limit: int) -> int:
    """Units of as many such pods, at most `pods`, as fit together."""
    most = _most(min(pods, limit // pod.units_per_pod), lambda count: books.fits_when_empty(replace(pod, pods=count)))
    return most * pod.units_per_pod


def _pods(books: Books, claim: Claim, limit: int) -> Iterator[Claim]:
    """Single pods worth trying: the claim's own, and the largest smaller ones."""
    if books.pool.mig is not None:
        yield from _profiles(books, claim)
        return
    for units in _sizes(books, claim, limit):
        if 0 < units <= claim.units_per_pod:
            yield _smaller(books, claim, units)


def _profiles(books: Books, claim: Claim) -> Iterator[Claim]:
    """Every profile no larger than the claim's; any when its own does not exist."""
    for name, profile in profiles_of(books.pool.mig).items():
        if not claim.on_card or profile.size <= claim.on_card:
            yield resized(replace(claim, pods=1, profile=name), profile.size, books.pool)


def _sizes(books: Books, claim: Claim, limit: int) -> Iterator[int]:
    """Every number of whole cards; of a part of a card the most that so many pods can each have."""
    nodes = books.pool.nodes or ()
    for whole in {card.units for node in nodes for card in node.cards if card.units}:
        yield from (count * whole for count in range(1, max(len(node.cards) for node in nodes) + 1))
        for pods in {*range(1, min(claim.pods, SOME_PODS) + 1), claim.pods} if whole > 1 else ():
            like = replace(claim, pods=pods)
            yield _largest_part(books, like, min(whole, claim.units_per_pod, limit // pods))


def _largest_part(books: Books, like: Claim, most: int) -> int:
    """Units, at most so many, that each pod of such a claim can be charged."""
    return _most(most, lambda units: books.fits_when_empty(replace(_smaller(books, like, units), pods=like.pods)))


def _smaller(books: Books, claim: Claim, units: int) -> Claim:
    """One pod of the claim that is charged so many units: with no more of a card's compute, and of the CPU and memory that
    come with cards, than that pays for."""
    cores, whole = claim.cores_per_pod, card_units(books.pool)
    if cores is not None and whole:
        cores = min(cores, card_cores(books.pool) * units // whole)
    cpu, memory = claim.cpu_milli, claim.memory_mib
    share = comes_with_a_card(books.pool)
    if whole and beside_units((cpu, memory), whole, share) <= claim.units_per_pod:  # as it is charged for them
        cpu, memory = (
            min(asked, most * units // whole) if most else asked
            for asked, most in zip((cpu, memory), share, strict=True)
        )
    return replace(
        claim, pods=1, units_per_pod=units, asked_per_pod=min(claim.on_card, units), cores_per_pod=cores,
        cpu_milli=cpu, memory_mib=memory,
    )  # fmt: skip


def _most(high: int, fits: Callable[[int], bool]) -> int:
    """The largest number up to `high` that fits; what is smaller than one that fits does too, and 0 always."""
    low = 0
    while low < high:
        middle = (low + high + 1) // 2
        if fits(middle):
            low = middle
        else:
            high = middle - 1
    return low


MOST_MOVES = 3
"""For each pod that asks."""
TRIES, LOOKS = 100, 5_000
"""In one pass over a pool, for all who wait: how many sets of pods are moved to see, and how many are looked at."""


@dataclass(frozen=True, slots=True)
class Running:
    """One pod that may be moved, as a claim of its own, with what it occupies."""

    claim: Claim
    placed: Placed
    vector: Vector

    @property
    def key(self) -> tuple[str, int]:
        return self.claim.id, self.placed.pod


class Consolidation:
    """The hints of one pass, looked for when it is over."""

    def __init__(self, books: Books) -> None:
        self._books, self._pool, self._free = books, books.pool, books.free_now
        self._hosts = tuple(books.hosts.values())
        self._tries, self._looks = TRIES, LOOKS
        self._known: dict[tuple[object, ...], tuple[Move, ...]] = {}
        self._machines: dict[tuple[object, ...], Machine | None] = {}
        self._running: dict[str, list[Running]] | None = None

    def hinted(self, claim: Claim, reasons: tuple[Reason, ...]) -> tuple[Reason, ...]:
        """The reasons why the claim waits; one that says "fragmented" also with the moves that would make room, and with the
        nearest machine if it is CPU or memory that is missing."""
        if not any(isinstance(reason, Fragmented) for reason in reasons):
            return reasons
        machine, moves = self.machine(claim), self.moves(claim)
        return tuple(replace(r, moves=moves, machine=machine) if isinstance(r, Fragmented) else r for r in reasons)

    def machine(self, claim: Claim) -> Machine | None:
        """See room.nearest_machine; one answer for all claims that ask for the same, unless something is held for them."""
        hold = self._books.holds.get(claim.id)
        key = claim.shape, claim.pods, claim.same_domain, hold and claim.id
        if key not in self._machines:
            with self._free.also([hold.now] if hold else []):
                self._machines[key] = nearest_machine(claim, self._pool, self._free)
        return self._machines[key]

    def moves(self, claim: Claim) -> tuple[Move, ...] | None:
        """The fewest moves found that would let the claim start now; () for none, None when there were too many tries."""
        key = claim.shape, claim.pods, claim.same_domain
        if key not in self._known:
            if not self._tries:
                return None
            found = [moves for hosts in self._parts(claim) if (moves := self._all_pods(claim, hosts)) is not None]
            self._known[key] = min(found, key=len, default=())
        return self._known[key]

    def _parts(self, claim: Claim) -> list[tuple[Host, ...]]:
        """The nodes that all pods of the claim may share: the whole pool, or each domain."""
        if not claim.same_domain:
            return [self._hosts]
        domains = sorted({host.domain for host in self._hosts if host.domain is not None})
        return [tuple(host for host in self._hosts if host.domain == domain) for domain in domains]

    def _all_pods(self, claim: Claim, hosts: tuple[Host, ...]) -> tuple[Move, ...] | None:
        """Pod by pod: where one fits it goes there, else moves make room for it."""
        one, moves, hold = replace(claim, pods=1, same_domain=False), list[Move](), self._books.holds.get(claim.id)
        with ExitStack() as done:
            done.enter_context(self._free.also([hold.now] if hold else []))  # what is held for the claim itself
            for _ in range(claim.pods):
                if self._take(one, hosts, done):
                    continue
                made = self._room_for(one, hosts, {(move.claim, move.pod) for move in moves}, done)
                if made is None:
                    return None
                moves += made
        return tuple(moves)

    def _take(self, one: Claim, hosts: Sequence[Host], done: ExitStack) -> Places:
        """The best place for a pod on these nodes, if there is any: taken until all is undone."""
        everywhere = hosts is self._hosts
        spot = best_in(self._free, one, self._pool) if everywhere else best_spot(one, hosts, self._free.row)
        if spot is None:
            return ()
        done.enter_context(self._free.also([self._free.space.taken(one, (spot.placed,))], -1))
        return (spot.placed,)

    def _room_for(
        self, one: Claim, hosts: tuple[Host, ...], moved: set[tuple[str, int]], done: ExitStack
    ) -> list[Move] | None:
        """The fewest moves that free a place for one more pod. They, and the pod, are done until all is undone."""
        short = list(self._short(one, hosts, moved))
        for count in range(1, MOST_MOVES + 1):
            for host, pods in self._candidates(short, count):
                if not self._tries:
                    return None
                self._tries -= 1
                made = self._moved(one, host, pods, done)
                if made is not None:
                    return made
        return None

    def _short(
        self, one: Claim, hosts: tuple[Host, ...], moved: set[tuple[str, int]]
    ) -> Iterator[tuple[Host, int, list[Running]]]:
        """The nodes where moves could make room, those where least is lacking first: how many units are, and the pods that
        could go elsewhere, small ones first."""
        running, elsewhere = self._movable(), self._with_a_place()
        free = dict(zip(self._books.hosts, free_units(self._pool, self._free), strict=True))
        for host in sorted(hosts, key=lambda host: (-free[host.name], host.name)):
            lacking, pods_here = one.on_card - free[host.name], running.get(host.name, [])
            if sum(pod.claim.on_card for pod in pods_here[-MOST_MOVES:]) >= lacking:
                yield host, lacking, [pod for pod in pods_here if pod.key not in moved and elsewhere(pod.claim)]

    def _candidates(
        self, short: Iterable[tuple[Host, int, list[Running]]], count: int
    ) -> Iterator[tuple[Host, tuple[Running, ...]]]:
        """So many pods of one node that give enough units."""
        for host, lacking, here in short:
            if sum(pod.claim.on_card for pod in here[-count:]) < lacking:
                continue
            for pods in combinations(here, count):
                if not self._looks:
                    return
                self._looks -= 1
                if sum(pod.claim.on_card for pod in pods) >= lacking:
                    yield host, pods

    def _with_a_place(self) -> Callable[[Claim], bool]:
        """Whether a pod could go anywhere else as things are."""
        known: dict[tuple[object, ...], bool] = {}

        def has(pod: Claim) -> bool:
            shape = pod.shape
            if shape not in known:
                known[shape] = has_spot(self._free, pod, self._pool)
            return known[shape]

        return has

    def _movable(self) -> dict[str, list[Running]]:
        """Every pod that may be stopped, by node, smallest first. Pods of a gang in one domain stay together."""
        if self._running is None:
            books, self._running = self._books, {}
            for claim in (claim for claims in books.holding.values() for claim in claims.values()):
                if stoppable(books, False, claim) and not (claim.same_domain and claim.pods > 1):
                    one = claim if claim.pods == 1 else replace(claim, pods=1, same_domain=False)
                    for placed in claim.placement or ():
                        vector = (
                            books.vectors[claim.id] if one is claim else books.space.taken(one, (placed,), one.units)
                        )
                        self._running.setdefault(placed.node, []).append(Running(one, placed, vector))
            for pods in self._running.values():
                pods.sort(key=lambda pod: (pod.claim.on_card, pod.key))
        return self._running

    def _moved(self, one: Claim, host: Host, pods: tuple[Running, ...], done: ExitStack) -> list[Move] | None:
        """The moves of these pods, if one more then fits on the node and each of them elsewhere."""
        with ExitStack() as tried:
            tried.enter_context(self._free.also(pod.vector for pod in pods))
            moves = list(self._placed(one, host, pods, tried))
            if len(moves) == len(pods):
                done.enter_context(tried.pop_all())
                return moves
        return None

    def _placed(self, one: Claim, host: Host, pods: Iterable[Running], tried: ExitStack) -> Iterator[Move]:
        """The pod that asks goes to the node; then the largest pods choose first, as long as each finds a place."""
        if not self._take(one, [host], tried):
            return
        for pod in sorted(pods, key=lambda pod: (-pod.claim.on_card, pod.key)):
            for placed in self._take(pod.claim, self._hosts, tried):
                yield Move(pod.claim.id, pod.placed.pod, pod.placed.node, placed.node, placed.cards, placed.start)
