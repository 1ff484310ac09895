"""What a pass over one pool decided, once all its answers are given: with who is told for each, the lenders of what it
borrows and the moves that would help; and who was told before and may stay."""

from collections.abc import Iterable, Iterator, Mapping

from quotas.engine.books import Books
from quotas.engine.quota_tree import Entry, lenders
from quotas.engine.types import Claim, ClaimId, Decision, DecisionKind, DepartmentId
from quotas.engine.units import entered_at
from quotas.engine.waiting import Consolidation

Answers = Mapping[ClaimId, Decision]
"""In the order in which they were given."""


def decided(books: Books, answers: Answers, charged: Mapping[ClaimId, int]) -> list[Decision]:
    """The answers, complete. `charged` is what those who use units now or have a title to them count in the ledger."""
    asking = {claim.id: claim for claim in books.pending}
    lending = any(decision.borrowed for decision in answers.values())
    borrowed = _lenders(books, answers, _entries(books, answers, charged, asking)) if lending else {}
    told: dict[ClaimId, list[ClaimId]] = {}
    waiting = {leaver: id for id, decision in answers.items() for leaver in decision.waiting_on}
    for victim in sorted(books.told):  # for its holder; if that one gave up, for who waits for the same victim
        told.setdefault(books.departures.holder.get(victim, waiting[victim]), []).append(victim)
    hints = Consolidation(books)
    complete: list[Decision] = []
    for id, decision in answers.items():
        reasons = hints.hinted(asking[id], decision.reasons) if decision.position else decision.reasons
        lent, victims = borrowed.get(id, {}), tuple(told.get(id, ()))
        if lent or victims or decision.borrowed or reasons is not decision.reasons:
            units, of_others = decision.own + decision.borrowed, sum(lent.values())  # as it is once all are answered
            decision = Decision(
                id, decision.decision, units - of_others, of_others, lent, decision.placement, victims, decision.waiting_on,
                decision.by, reasons, decision.position, decision.ahead, decision.largest,
            )  # fmt: skip  # thousands of them: half the time of replace()
        complete.append(decision)
    return complete


def _lenders(books: Books, answers: Answers, entries: Iterable[Entry]) -> Mapping[ClaimId, Mapping[DepartmentId, int]]:
    """Of whom each claim borrows. What is only held for those who wait is idle, and lent."""
    waiting = [hold for id, hold in books.holds.items() if answers[id].decision is DecisionKind.WAIT]
    for hold in waiting:
        books.ledger.lend(hold.claim.department, -hold.charged)
    found = lenders(books.ledger, entries)
    for hold in waiting:
        books.ledger.lend(hold.claim.department, hold.charged)
    return found


def _entries(
    books: Books, answers: Answers, charged: Mapping[ClaimId, int], asking: Mapping[ClaimId, Claim]
) -> Iterator[Entry]:
    """Who uses units, in the order in which they came by them. Who starts and must stay inside the guarantee holds from now on,
    as in the next pass: what others of its department have reserved stands behind it."""
    for claims in books.holding.values():
        for claim in claims.values():
            yield Entry(claim.id, claim.department, books.standing.charges[claim.id], (0, entered_at(claim)))
    for turn, id in enumerate(id for id, decision in answers.items() if decision.own + decision.borrowed):
        claim = asking[id]
        holds = answers[id].decision is DecisionKind.ADMIT and claim.must_stay_inside
        yield Entry(id, claim.department, charged[id], (0, books.now) if holds else (1, turn))


def withdrawn(books: Books, answers: Answers) -> list[ClaimId]:
    """Step 7: told for somebody, needed by nobody, before its deadline, and within the limits with it."""
    needed = {leaver for decision in answers.values() for leaver in decision.waiting_on}
    stay: list[ClaimId] = []
    if books.pool.cluster_unreachable_since is not None:
        return stay
    for leaver in sorted(books.departures.leaving.values(), key=lambda leaver: leaver.id):
        told = leaver.held_for is not None and (leaver.leave_by is None or leaver.leave_by > books.now)
        if told and leaver.id not in needed and books.may_return(leaver):
            books.ledger.add(leaver.department, leaver.units)
            stay.append(leaver.id)
    return stay
