"""What else could have been decided for a claim that others have to leave for: whom its pass would have named had each of them
been out of reach, and where the order of preference finds that worse.

Nothing here decides. The snapshot goes through `decide` once for each of the victims, who must not be stopped in it.
"""

from collections.abc import Collection
from dataclasses import dataclass, replace
from enum import StrEnum

from quotas.engine.admission import decide
from quotas.engine.books import Books
from quotas.engine.permission import Taker, taker_of
from quotas.engine.room import rooms_of
from quotas.engine.types import Claim, ClaimId, Decision, Snapshot
from quotas.engine.victims import Cost, cost


class Criterion(StrEnum):
    """What the order of preference looks at, in its order; of the first two only one, OWN for a claim inside its guarantee."""

    OWN = "own"
    OTHERS = "others"
    SHARES = "shares"
    BELOW_GUARANTEE = "below_guarantee"
    PRIORITY = "priority"
    LOST_WORK = "lost_work"
    COUNT = "count"
    UNITS = "units"
    ORDER = "order"


THEN = tuple(Criterion)[2:]
"""The criteria behind the first, as they stand in a cost (victims.py)."""


@dataclass(frozen=True, slots=True)
class Alternative:
    """What would have been answered with the `spared` out of reach.

    `worse_in` is the first criterion in which the other victims cost more, by the snapshot alone, with both numbers (units,
    priorities, unit-seconds, claims; None for those that are no number). It is None when there are no other victims to compare,
    or when they cost no more: then the other answers of the pass stood in the way.
    """

    spared: tuple[ClaimId, ...]
    answer: Decision
    worse_in: Criterion | None = None
    chosen: int | None = None
    instead: int | None = None


def alternatives(
    snapshot: Snapshot, asker: ClaimId, victims: Collection[ClaimId], most: int
) -> tuple[Alternative, ...]:
    """For each of the `victims` – for the `most` who cost most, if there are more – what had been answered without it; who
    would be replaced by the same others stand together. Raises ValueError when a claim is not in the snapshot."""
    books, taker, told = _at_the_start(snapshot, asker, victims)
    spent = cost(books, taker, told)
    dearest = sorted(told, key=lambda victim: cost(books, taker, (victim,)), reverse=True)[:most]
    found: dict[tuple[ClaimId, ...], Alternative] = {}
    for spared in dearest:
        answer = _answer_without(snapshot, asker, spared)
        known = found.get(answer.victims)
        if known is not None:
            found[answer.victims] = replace(known, spared=tuple(sorted((*known.spared, spared.id))))
        elif answer.victims:
            others = [books.claims[victim] for victim in answer.victims]
            found[answer.victims] = _compared(taker, spared.id, answer, spent, cost(books, taker, others))
        else:
            found[answer.victims] = Alternative((spared.id,), answer)
    books.close()
    return tuple(found.values())


def _at_the_start(
    snapshot: Snapshot, asker: ClaimId, victims: Collection[ClaimId]
) -> tuple[Books, Taker, tuple[Claim, ...]]:
    """The books before anything is decided, who asks, and who was told."""
    claims = {claim.id: claim for claim in snapshot.claims}
    unknown = {asker, *victims} - claims.keys()
    if unknown:
        raise ValueError(f"no claim {min(unknown)} in this snapshot")
    pool = next(pool for pool in snapshot.pools if pool.id == claims[asker].pool)
    books = Books(snapshot, pool, *rooms_of(snapshot))
    if asker in books.holds:  # what it has reserved before is not to be counted beside what it asks
        books.give_up(claims[asker])
    return books, taker_of(books, claims[asker]), tuple(claims[victim] for victim in sorted(victims))


def _answer_without(snapshot: Snapshot, asker: ClaimId, spared: Claim) -> Decision:
    """What the asker would be answered if the spared claim must not be stopped."""
    claims = (replace(claim, preemptible=False) if claim is spared else claim for claim in snapshot.claims)
    plan = decide(replace(snapshot, claims=tuple(claims)))
    return next(decision for decision in plan.decisions if decision.claim == asker)


def _compared(taker: Taker, spared: ClaimId, answer: Decision, spent: Cost, other: Cost) -> Alternative:
    """The first criterion in which the two costs differ says which is better."""
    if other <= spent:
        return Alternative((spared,), answer)
    criteria = (Criterion.OWN if taker.inside else Criterion.OTHERS, *THEN)
    told = zip(criteria, spent, other, strict=True)
    criterion, chosen, instead = next((each, mine, its) for each, mine, its in told if mine != its)
    if isinstance(chosen, int) and isinstance(instead, int):
        return Alternative((spared,), answer, criterion, chosen, instead)
    return Alternative((spared,), answer, criterion)
