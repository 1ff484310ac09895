"""A drawing of who lends to whom in a pool now: lenders on the left, borrowers on the right, and ribbons between them whose
width is the amount lent. Everything but the text stretches with the page, so one drawing serves desktop and phone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from portal.models import Department
from quotas.board.history import Loan

EACH, MOST = 70.0, 280.0  # px: the height of a side for each party on the side with more of them, and its maximum
GAP = 10.0  # px between two parties
LEAST = 54.0  # px: the least height of a party, for a name of up to two lines and the amount
LEFT, RIGHT = 0.0, 100.0  # x of the ribbons' ends


@dataclass(frozen=True, slots=True)
class Party:
    """A lender or a borrower, with its units; `y` from the top and `height` in px. `department` None: unassigned capacity."""

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
    """The drawing of one pool's running loans, the largest party at the top of each side; None if nothing is lent."""
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
    """One side of about `all_of_it` px, largest first: heights are proportional to units, but leave room for the text."""
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
    """The SVG path of a ribbon that is horizontal at both ends; `high` and `low` are its widths there."""
    middle = (LEFT + RIGHT) / 2
    return (
        f"M{LEFT:g},{top:.1f}C{middle:g},{top:.1f} {middle:g},{top_right:.1f} {RIGHT:g},{top_right:.1f}V{top_right + low:.1f}"
        f"C{middle:g},{top_right + low:.1f} {middle:g},{top + high:.1f} {LEFT:g},{top + high:.1f}Z"
    )
