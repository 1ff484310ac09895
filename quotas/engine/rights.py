"""What the quotas allow: the ledger, what reservations count in it, and what a claim would add to it. No word of places."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from quotas.engine.queue import queue_order
from quotas.engine.quota_tree import Ledger, Standing, standing_of
from quotas.engine.space import Slot, Vector
from quotas.engine.types import Claim, ClaimId, ClaimState, Department, DepartmentId, Policy, Pool, Snapshot
from quotas.engine.units import gone_by, lost_work, policy_of, stranded_units


@dataclass(slots=True)
class Hold:
    """Units and places kept for a pending claim. `charged` is what it counts in the ledger (0 for a starving claim);
    an `old` one came with the snapshot and was not looked at yet. What it will draw from recalls of its
    department is `drawn`. Of one on a single `node`, `needed` has leavers it could not
    do without, and the version of the node (room.py) at which that was so."""

    claim: Claim
    charged: int
    later: Vector
    coming: Vector = field(default_factory=dict)
    now: Vector = field(default_factory=dict)
    start: int | None = None
    starving: bool = False
    old: bool = False
    node: str | None = None
    drawn: int = 0
    needed: dict[ClaimId, int] = field(default_factory=dict)

    def needs(self, slot: Slot, amount: int) -> int:
        """How much of the `amount` that one of those gives it waits for is needed: the rest comes from others or is held."""
        return max(0, self.later.get(slot, 0) - self.now.get(slot, 0) - self.coming.get(slot, 0) + amount)


class Rights:
    """One pool's ledger with the titles to its units. `unsettled` counts, by department, what reservations of the snapshot
    charge that were not looked at yet; `strict` has those that must stay inside the guarantee, `reserved` all
    reservations."""

    def __init__(self, snapshot: Snapshot, pool: Pool, mine: Collection[Claim]) -> None:
        self.now, self.settings, self.pool = snapshot.now, snapshot.settings, pool
        self.departments: dict[DepartmentId, Department] = {d.id: d for d in snapshot.departments}
        self.stranded = stranded_units(pool, (c for c in mine if c.state is not ClaimState.PENDING))
        holding = [claim for claim in mine if claim.state is ClaimState.HOLDING]
        stay = sum(self.stranded.get(claim.id, 0) for claim in holding)
        self.ledger = Ledger(pool, snapshot.departments, stay)
        self.standing: Standing = standing_of(holding, self.now, snapshot.departments)
        self.recalled = dict(self.standing.left)
        self._lost_work: dict[ClaimId, int] = {}
        self._policies: dict[DepartmentId, Policy] = {}
        self.used_by: dict[tuple[DepartmentId, str], int] = {}
        self.holds: dict[ClaimId, Hold] = {}
        self.strict: dict[DepartmentId, dict[ClaimId, None]] = {}
        self.reserved: dict[DepartmentId, dict[ClaimId, None]] = {}
        self.unsettled: dict[DepartmentId, int] = {}

    def asked(self, claim: Claim) -> int:
        """Units the claim would add to its department's usage: all of them, less what it draws from a recall."""
        if not self.recalled or claim.is_recall:
            return claim.units
        hold = self.holds.get(claim.id)
        left = self.recalled.get(claim.department, 0) + (0 if hold is None else hold.drawn)
        return max(0, claim.units - left)

    def inside(self, claim: Claim) -> bool:
        """Whether all the claim would add stays inside its department's guarantee."""
        return self.asked(claim) <= self.ledger.accounts[claim.department].own_left

    def own_after(self, claim: Claim) -> int:
        """How many of the units asked would be its department's own. A reservation came before those not settled yet."""
        left = self.ledger[claim.department].own_left + self.unsettled.get(claim.department, 0)
        return min(self.asked(claim), max(0, left))

    def entitled(self, claim: Claim) -> bool:
        """Whether the quotas allow it now, wherever it would stand."""
        asked = self.asked(claim)
        if self.may_not_borrow(claim) and self.own_after(claim) < asked:
            return False
        return self.ledger.available(claim.department) >= asked

    def may_not_borrow(self, claim: Claim) -> bool:
        """Whether the claim has to stay inside the guarantee, by what it is or since another has to."""
        return claim.must_stay_inside or self.inside_first(claim) is not None

    def inside_first(self, claim: Claim) -> ClaimId | None:
        """Of the claim's department, or of one above it, a claim that must stay inside the guarantee and has a title to units of
        it: were others to borrow before it starts, it would not be inside any more."""
        return next((id for id in self._strict_of(claim.department) if id != claim.id), None) if self.strict else None

    def _strict_of(self, department: DepartmentId) -> Iterator[ClaimId]:
        """Those of the department and of the ones above it that must stay inside the guarantee, and have a title."""
        account = self.ledger.accounts[department]
        while account.parent is not None:
            yield from self.strict.get(account.id, ())
            account = account.parent

    def reserved_behind(self, claim: Claim) -> bool:
        """Whether a claim of its department that comes after it has a reservation."""
        mine = self.reserved.get(claim.department, {})
        return any(queue_order(self.holds[id].claim) > queue_order(claim) for id in mine)

    def lost_its_right(self, claim: Claim) -> bool:
        """Whether the quotas would not allow a reservation any more, now that others stay after all."""
        hold, department = self.holds[claim.id], claim.department
        self.ledger.lend(department, -hold.charged)
        before = self.unsettled.get(department, 0)
        self.unsettled[department] = before - (hold.charged if hold.old else 0)
        allowed = self.entitled(claim)
        self.unsettled[department] = before
        self.ledger.lend(department, hold.charged)
        return not allowed

    def breaks_its_word(self, department: DepartmentId) -> bool:
        """Whether a claim that must stay inside the guarantee of the department, or of one above it, has lost its title to it."""
        return any(self.lost_its_right(self.holds[id].claim) for id in self._strict_of(department))

    def depending_on(self, leaver: Claim, units: int) -> list[Claim]:
        """Who of its department has a reservation and would lose the right to it if the leaver stayed; the last to reserve
        comes first."""
        reserved = [self.holds[id].claim for id in reversed(self.reserved.get(leaver.department, {}))]
        claims = [claim for claim in reserved if not self.lost_its_right(claim)]
        self.ledger.lend(leaver.department, units)
        losing = [claim for claim in claims if self.lost_its_right(claim)]
        self.ledger.lend(leaver.department, -units)
        return losing

    def above_cap(self, claim: Claim, itself_counted: bool = False) -> tuple[int, int] | None:
        """What each person of its department may have and what the claim's has, if that would be too much with the claim."""
        cap = self.departments[claim.department].user_caps.get(self.pool.id)
        if cap is None or claim.is_recall:
            return None
        used = self.used_by.get((claim.department, claim.user), 0) - (claim.units if itself_counted else 0)
        return (cap, used) if used + claim.units > cap else None

    def policy(self, claim: Claim) -> Policy:
        """Whose work may be stopped for this claim."""
        if claim.department not in self._policies:
            department = self.departments[claim.department]
            self._policies[claim.department] = policy_of(department, self.pool, self.settings)
        return self._policies[claim.department]

    def lost_work(self, claim: Claim) -> int:
        """What stopping the claim throws away, in unit-seconds."""
        if claim.id not in self._lost_work:
            self._lost_work[claim.id] = lost_work(claim, self.now, self.settings)
        return self._lost_work[claim.id]

    def gone_by(self, leaver: Claim) -> int:
        """The latest time at which the claim's units are free."""
        return gone_by(leaver, self.pool, self.settings, self.now)

    def may_return(self, leaver: Claim) -> bool:
        """Whether the quotas bear it that a claim stays after all, and with it whoever has a reservation there."""
        department, units = leaver.department, leaver.units
        if self.ledger.available(department) < units or self.above_cap(leaver):
            return False
        self.ledger.lend(department, units)
        broken = self.breaks_its_word(department)
        self.ledger.lend(department, -units)
        return not (broken or self.depending_on(leaver, units))

    # Entries ----------------------------------------------------------------------------------------------------------

    def unsettle(self, claim: Claim) -> None:
        """Mark a reservation to be looked at again."""
        hold = self.holds[claim.id]
        self.unsettled[claim.department] = self.unsettled.get(claim.department, 0) + (0 if hold.old else hold.charged)
        hold.old = True

    def settle(self, claim: Claim) -> None:
        """The reservation was looked at."""
        hold = self.holds[claim.id]
        self.unsettled[claim.department] -= hold.charged if hold.old else 0
        hold.old = False
