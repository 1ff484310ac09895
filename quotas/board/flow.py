"""Who lends to whom in a pool now, as a drawing: lenders on the left, borrowers on the right, ribbons between them as wide as
what is lent. Everything stretches with the page but the text, so the same drawing serves a screen and a phone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from portal.models import Department
from quotas.board.history import Loan

EACH, MOST = 70.0, 280.0  # px of a side: for each party on the longer one, and at most
GAP = 10.0  # px between two parties
LEAST = 54.0  # px of a party: its name in two lines at most, and its amount
LEFT, RIGHT = 0.0, 100.0  # between the columns of parties


@dataclass(frozen=True, slots=True)
class Party:
    """A lender (None: unassigned capacity) or a borrower, with its units and its place from the top, in px."""

    department: Department | None
    units: int
    y: float
    height: float


@dataclass(frozen=True, slots=True)
class Ribbon:
    loan: Loan
    units: int
    path: str
    leaving: bool  # being recalled


@dataclass(frozen=True, slots=True)
class Flow:
    lenders: tuple[Party, ...]
    borrowers: tuple[Party, ...]
    ribbons: tuple[Ribbon, ...]
    height: float


def flow(loans: Sequence[Loan]) -> Flow | None:
    """The drawing of one pool's running loans; None where nothing is lent. The largest party stands at the top of each side."""
    running = [loan for loan in loans if loan.units]
    if not running:
        return None
    height = min(MOST, EACH * max(len({loan.lender for loan in running}), len({loan.borrower for loan in running})))
    lenders = _parties([(loan.lender, loan.units) for loan in running], height)
    borrowers = _parties([(loan.borrower, loan.units) for loan in running], height)
    left, right = ({party.department: at for at, party in enumerate(side)} for side in (lenders, borrowers))
    out, into = [party.y for party in lenders], [party.y for party in borrowers]
    ribbons = list[Ribbon]()
    for loan in sorted(running, key=lambda loan: (left[loan.lender], right[loan.borrower])):
        start, end = left[loan.lender], right[loan.borrower]
        for units, leaving in ((loan.units - loan.leaving, False), (loan.leaving, True)):
            if units:
                high = lenders[start].height * units / lenders[start].units
                low = borrowers[end].height * units / borrowers[end].units
                ribbons.append(Ribbon(loan, units, _path(out[start], high, into[end], low), leaving))
                out[start] += high
                into[end] += low
    return Flow(lenders, borrowers, tuple(ribbons), max(_end(lenders), _end(borrowers)))


def _parties(shares: Sequence[tuple[Department | None, int]], all_of_it: float) -> tuple[Party, ...]:
    """One side, `all_of_it` px high: the largest first, each as high as its part, but high enough for its words."""
    units: dict[Department | None, int] = {}
    for department, amount in shares:
        units[department] = units.get(department, 0) + amount
    total, y, parties = sum(units.values()), 0.0, list[Party]()
    for department, amount in sorted(units.items(), key=lambda item: (-item[1], item[0].name if item[0] else "")):
        height = max(LEAST, all_of_it * amount / total)
        parties.append(Party(department, amount, y, height))
        y += height + GAP
    return tuple(parties)


def _end(side: tuple[Party, ...]) -> float:
    return side[-1].y + side[-1].height


def _path(top: float, high: float, top_right: float, low: float) -> str:
    """A ribbon that leaves and arrives level."""
    middle = (LEFT + RIGHT) / 2
    return (
        f"M{LEFT:g},{top:.1f}C{middle:g},{top:.1f} {middle:g},{top_right:.1f} {RIGHT:g},{top_right:.1f}V{top_right + low:.1f}"
        f"C{middle:g},{top_right + low:.1f} {middle:g},{top + high:.1f} {LEFT:g},{top + high:.1f}Z"
    )
