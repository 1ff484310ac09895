"""Why a claim does not start: never (and the largest that could), not now whatever is free, or not yet and for what."""

from collections.abc import Iterator
from dataclasses import dataclass

from quotas.engine.books import Books
from quotas.engine.largest import largest
from quotas.engine.mig_layouts import profile_of
from quotas.engine.quota_tree import Account
from quotas.engine.reasons import (
    AboveCeiling,
    BackoffUntil,
    ClusterUnreachable,
    DepartmentPaused,
    Fragmented,
    HeldFor,
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
from quotas.engine.room import largest_pod, nearest_machine, pods_that_fit
from quotas.engine.types import Claim, ClaimId, Decision, DecisionKind


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
