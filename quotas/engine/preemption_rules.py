"""The rules of preemption: which claims the preemptor's policy opens to it, which sets of them may go together, and what
a set costs.

See docs/quota-rules-reference.md, "Who may be stopped". `open_by` checks one claim, `permitted` a whole set;
`cost` is the order in which sets are preferred.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import NamedTuple

from quotas.engine.pass_state import PassState
from quotas.engine.quota_tree import NO_CHANGE, Account, Ledger, ShareChange, lowered, share
from quotas.engine.types import Claim, DepartmentId, Policy


class Fairness(Enum):
    """With fair sharing, when one borrower may take from another: the strict rule is tried first, then the lenient one."""

    AFTER = "the preemptor's share after is at most the victim department's without the victim"
    BEFORE = "the preemptor's share after is less than the victim department's with the victim"


@dataclass(frozen=True, slots=True)
class Preemptor:
    """A pending claim that searches for victims, with the units `asked` that it would add to its department's `account`, and
    whether that is `inside` the guarantee.

    With `ignore_min_runtime`, claims that are still protected by their minimum runtime may be victims, too. A `renewing`
    preemptor has preempted its victims before: its policy is checked again only for what it takes as a borrower, and the
    units that its department has used since for claims after it in the queue (`used_by_later`) do not count against it.
    `fairness`: how it is compared with other borrowers.
    """

    state: PassState
    claim: Claim
    account: Account
    asked: int
    policy: Policy
    inside: bool
    ignore_min_runtime: bool = False
    renewing: bool = False
    used_by_later: int = 0
    fairness: Fairness = Fairness.BEFORE

    @property
    def above_guarantee(self) -> int:
        """Units by which its department would exceed its guarantee with this claim; negative if it would not."""
        return self.asked - self.account.own_left


def preemptor_of(state: PassState, claim: Claim, ignore_min_runtime: bool = False) -> Preemptor:
    account, asked = state.ledger[claim.department], state.asked(claim)
    return Preemptor(state, claim, account, asked, state.policy(claim), asked <= account.own_left, ignore_min_runtime)


def own_candidates(preemptor: Preemptor) -> list[Claim]:
    """The claims of its own department that are open to the preemptor."""
    return open_to(preemptor, preemptor.state.holding.get(preemptor.account.id, {}).values())


def may_call_back(state: PassState, claim: Claim, victim: Claim) -> bool:
    """Whether a claim with a reservation may preempt a victim that would otherwise stay."""
    if not open_to(preemptor_of(state, claim), (victim,)):
        return False
    with state.trial() as trial:
        trial.recharge((victim,))
        trial.charge(claim.department, -state.earmarks[claim.id].charged)
        return permitted(preemptor_of(state, claim), (victim,))


def candidate_departments(preemptor: Preemptor, own: Iterable[Claim]) -> set[DepartmentId]:
    """The other departments from which the preemptor may have a right to take, at best once all of `own` are stopped: they, and
    every account up to where the paths meet, use more than they are promised."""
    state = preemptor.state
    ledger, charges = state.ledger, state.charges
    net = preemptor.asked - sum(charges[claim.id] for claim in own)
    if ledger.flat:
        usage = preemptor.account.usage + net
        right = right_of(preemptor, preemptor.account, usage)
        if right is Right.NONE:
            return set()
        others = ledger.above - {preemptor.account.id}
        if right is not Right.FAIR:
            return others
        least = share(preemptor.account, usage)
        return {id for id in others if share(ledger[id], ledger[id].usage) >= least}
    towards = _children_towards(preemptor.account)
    met: dict[str, list[tuple[Account, Account]]] | None = None
    departments: set[DepartmentId] = set()
    gone = 0
    with state.trial() as trial:
        trial.charge(preemptor.account.id, net)
        for mine in towards.values():
            usage = mine.usage - gone  # as if all had left that it may take from below this level
            right = right_of(preemptor, mine, usage)
            if right is not Right.NONE:
                met = met or _where_paths_meet(ledger, towards, ledger.above - {preemptor.account.id})
                least = share(mine, usage) if right is Right.FAIR else 0
                found = [theirs for theirs, top in met.get(mine.id, ()) if share(top, top.usage) >= least]
                departments.update(account.id for account in found)
                gone += sum(account.usage for account in found)
    return departments


def _where_paths_meet(
    ledger: Ledger, towards: dict[str, Account], others: Iterable[DepartmentId]
) -> dict[str, list[tuple[Account, Account]]]:
    """Account on the preemptor's path → (department, top of its path) whose paths meet there, if every account on the
    department's path uses more than it is promised."""
    met: dict[str, list[tuple[Account, Account]]] = {}
    for department in others:
        mine, path = _paths_meet(towards, ledger[department])
        if all(account.usage > account.promised for account in path):
            met.setdefault(mine.id, []).append((path[0], path[-1]))
    return met


def open_to(preemptor: Preemptor, claims: Iterable[Claim]) -> list[Claim]:
    """The claims among these that are open to the preemptor by any right, each taken alone."""
    state, mine, early = preemptor.state, preemptor.account.id, preemptor.ignore_min_runtime
    return [
        claim
        for claim in claims
        if (
            _within(preemptor, claim)
            if claim.department == mine
            else _reclaimable(preemptor, claim) or _outranked(preemptor, claim)
        )
        and may_be_preempted(state, early, claim)
    ]


def open_claims(state: PassState, claim: Claim) -> list[Claim]:
    """All claims that are open to this one, each taken alone, including claims that start in this pass and that the next pass
    could preempt."""
    preemptor = preemptor_of(state, claim)
    departments = {claim.department, *candidate_departments(preemptor, own_candidates(preemptor))}
    claims = [each for department in departments for each in state.holding.get(department, {}).values()]
    claims += [each for each in state.started.values() if each.department in departments and not each.min_runtime]
    return open_to(preemptor, claims)


def may_be_preempted(state: PassState, ignore_min_runtime: bool, claim: Claim) -> bool:
    """Whether the claim can be a victim: it is preemptible, no recall and not drawing from one, not on lost capacity
    (`stranded`), and no longer protected by its minimum runtime. Leaving claims and those started in this pass are never
    candidates, because they are not in `state.holding`."""
    if not claim.preemptible or claim.is_recall or claim.id in state.standing.drawing or claim.id in state.stranded:
        return False
    return ignore_min_runtime or claim.id not in state.young


def _within(preemptor: Preemptor, claim: Claim) -> bool:
    """Whether `within` opens a claim of the preemptor's own department to it."""
    mine, within = preemptor.claim, preemptor.policy.within
    if claim.priority == mine.priority:
        return within == "lower_or_newer_equal" and claim.submitted_at > mine.submitted_at
    return claim.priority < mine.priority and within != "never"


def _reclaimable(preemptor: Preemptor, claim: Claim) -> bool:
    """Whether the preemptor's department may take another's claim by `reclaim`, as far as priorities go."""
    return preemptor.policy.reclaim == "any" or (
        preemptor.policy.reclaim == "lower_priority" and claim.priority < preemptor.claim.priority
    )


def _outranked(preemptor: Preemptor, claim: Claim) -> bool:
    """Whether a claim that would borrow may take a borrower's claim by `borrow_preempt`, as far as priorities go."""
    rule = preemptor.policy.borrow_preempt
    if rule is None or claim.priority >= preemptor.claim.priority:
        return False
    return rule.max_priority is None or claim.priority <= rule.max_priority


class Right(StrEnum):
    """The right by which the preemptor, counted as running, takes from other departments. For a borrower it is FAIR with fair
    sharing, else PRIORITY if its policy has `borrow_preempt`."""

    RECLAIM = "inside its guarantee, from who borrows"
    FAIR = "as a borrower with the smaller share"
    PRIORITY = "as a borrower with the higher priority"
    NONE = "not at all"


def right_of(preemptor: Preemptor, account: Account, usage_after: int) -> Right:
    """The right of a preemptor on whose path `account` will use `usage_after` units."""
    if usage_after <= account.promised:
        return Right.RECLAIM
    if preemptor.state.settings.fair_sharing:
        return Right.FAIR
    return Right.NONE if preemptor.policy.borrow_preempt is None else Right.PRIORITY


def open_by(right: Right, preemptor: Preemptor, claim: Claim) -> bool:
    """Whether the preemptor's policy opens another department's claim to it by this right. By FAIR, only if the claim comes
    after it in line, so that they do not take from each other for ever. `may_lose` decides whether its department may lose it."""
    if right is Right.RECLAIM or right is Right.FAIR:
        in_line = right is Right.RECLAIM or preemptor.state.comes_after(claim, preemptor.claim)
        return in_line and _reclaimable(preemptor, claim)
    return right is Right.PRIORITY and _outranked(preemptor, claim)


def may_lose(
    right: Right, fairness: Fairness, losing: Account, usage: int, units: int, mine: Account, mine_after: int
) -> bool:
    """Whether the account `losing`, now at `usage`, may lose a claim of `units` to the account `mine`, which will then use
    `mine_after`. A borrower must leave it what it is promised."""
    if right is Right.RECLAIM:
        return usage > losing.promised
    if right is Right.NONE or usage - units < losing.promised:
        return False
    if right is Right.PRIORITY:
        return True
    if fairness is Fairness.AFTER:
        return share(mine, mine_after) <= share(losing, usage - units)
    return share(mine, mine_after) < share(losing, usage)


def permitted(preemptor: Preemptor, victims: Iterable[Claim]) -> bool:
    """Whether the victims may go together: each must be open to the preemptor's right when its turn comes (`_may_take`). The
    nearest in the tree go first, because they allow it to take more further away; of these the largest go last. Those of its
    own department were selected by `own_candidates`."""
    state = preemptor.state
    ledger, charges, mine = state.ledger, state.charges, preemptor.account.id
    own: list[Claim] = []
    others: list[Claim] = []
    for victim in victims:
        (own if victim.department == mine else others).append(victim)
    if not others:
        return True
    others.sort(key=lambda victim: (victim.units, victim.id))
    towards = _children_towards(preemptor.account)
    if not ledger.flat:
        nearest = [account.id for account in towards.values()]
        others.sort(key=lambda victim: nearest.index(_paths_meet(towards, ledger[victim.department])[0].id))
    with state.trial() as trial:
        trial.charge(mine, preemptor.asked - preemptor.used_by_later - sum([charges[victim.id] for victim in own]))
        for victim in others:
            if not _may_take(preemptor, towards, victim):
                return False
            trial.charge(victim.department, -charges[victim.id])
        return True


def _may_take(preemptor: Preemptor, towards: dict[str, Account], victim: Claim) -> bool:
    """Whether the preemptor, already charged in the ledger, may take this one victim now."""
    state = preemptor.state
    mine, theirs = _paths_meet(towards, state.ledger[victim.department])
    right = right_of(preemptor, mine, mine.usage)
    if not (preemptor.renewing and right is not Right.PRIORITY) and not open_by(right, preemptor, victim):
        return False
    units = state.charges[victim.id]
    *teams, side = theirs  # `side` meets the preemptor's path; the teams are below it, down to the victim's
    margin = 1 if right is Right.RECLAIM else units  # by RECLAIM, the last victim may take it below its promise
    return all(team.usage - margin >= team.promised for team in teams) and may_lose(
        right, preemptor.fairness, side, side.usage, units, mine, mine.usage
    )


def within_reach(preemptor: Preemptor, claims: Iterable[Claim]) -> list[Claim]:
    """The claims among these that may go once all that are nearer to the preemptor have gone. With fair sharing, the others
    never may: each claim that goes lowers its department's share, and only nearer ones allow the preemptor to take more."""
    state = preemptor.state
    ledger, charges, mine = state.ledger, state.charges, preemptor.account.id
    towards = _children_towards(preemptor.account)
    theirs: dict[DepartmentId, list[Claim]] = {}
    for claim in claims:
        theirs.setdefault(claim.department, []).append(claim)
    found = theirs.pop(mine, [])
    nearer: dict[str, list[DepartmentId]] = {}
    for department in theirs:
        nearer.setdefault(_paths_meet(towards, ledger[department])[0].id, []).append(department)
    with state.trial() as trial:
        trial.charge(mine, preemptor.asked - preemptor.used_by_later - sum(charges[claim.id] for claim in found))
        for side in towards.values():
            departments = nearer.get(side.id, ())
            reached = [_takeable(preemptor, towards, theirs[other]) for other in departments]
            for claims in reached:
                found = [*found, *claims]
                trial.uncharge(claims)
    return found


def _takeable(preemptor: Preemptor, towards: dict[str, Account], claims: list[Claim]) -> list[Claim]:
    """The claims of one department that may go now, which depends on size, priority and whether they come after the preemptor."""
    state = preemptor.state
    known: dict[tuple[int, int, bool], bool] = {}
    found: list[Claim] = []
    for claim in claims:
        kind = state.charges[claim.id], claim.priority, state.comes_after(claim, preemptor.claim)
        if kind not in known:
            known[kind] = _may_take(preemptor, towards, claim)
        if known[kind]:
            found.append(claim)
    return found


def _children_towards(preemptor: Account) -> dict[str, Account]:
    """Account above the preemptor → its child on the preemptor's path, from below."""
    towards: dict[str, Account] = {}
    account = preemptor
    while account.parent is not None:
        towards[account.parent.id] = account
        account = account.parent
    return towards


def _paths_meet(towards: dict[str, Account], victim: Account) -> tuple[Account, list[Account]]:
    """The child of the lowest common ancestor on the preemptor's path, and the victim's path up to the child on its side."""
    path = [victim]
    while path[-1].parent is not None and path[-1].parent.id not in towards:
        path.append(path[-1].parent)
    met = path[-1].parent
    return towards[met.id if met is not None else victim.id], path


# What a set costs -----------------------------------------------------------------------------------------------------


class Cost(NamedTuple):
    """The cost of a set of victims, in the order of rule 15."""

    units_of_spared: int  # taken from departments to spare: its own, or for a borrower the others
    fair: ShareChange
    below_guarantee: int  # units by which departments fall below their guarantees
    priority: int  # of the most important victim
    lost_work: int  # unit-seconds
    workloads: int
    units: int
    ids: tuple[str, ...]


def cost(preemptor: Preemptor, victims: Iterable[Claim]) -> Cost:
    """What a victim set costs; the least cost wins. If only the ids differ, the set whose places waste less wins (`cheapest`).
    When you change the order, change it also in these twelve shortcuts, which find cheap sets without comparing all: `choose`,
    `_own_then_others`, `_best_on_a_node`, `_cheapest_of_borrowers` (preemption.py), `cheapest_sum`, `lowest_sum`, `_orders`,
    `_lower_bound`, `_whole_cards`, `_cheapest` (victim_search.py), `_prices`, `lowest` (node_clearing.py).
    """
    state = preemptor.state
    victims = tuple(victims)
    taken: dict[str, int] = {}
    for victim in victims:
        taken[victim.department] = taken.get(victim.department, 0) + victim.units
    mine = taken.pop(preemptor.account.id, 0)
    change, below = NO_CHANGE, 0
    for department, units in taken.items():
        account = state.ledger[DepartmentId(department)]
        below += max(0, account.guaranteed - (account.usage - units))
        if state.settings.fair_sharing and not account.children:
            change += lowered(account, units)
    return Cost(
        mine if preemptor.inside else sum(taken.values()),
        change,
        below,
        max((victim.priority for victim in victims), default=-(10**9)),
        sum(map(state.lost_work, victims)),
        len(victims),
        sum(victim.units for victim in victims),
        tuple(sorted(victim.id for victim in victims)),
    )


# What is lacking --------------------------------------------------------------------------------------------------------


def lacking_of_pool(preemptor: Preemptor) -> int:
    """Units that the pool as a whole lacks: a set that frees fewer cannot make room."""
    state = preemptor.state
    return preemptor.asked - state.free_later.row[state.pool_slot]
