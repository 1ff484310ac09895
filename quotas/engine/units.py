"""Units and times: how much a pool has, what a claim is charged, what stopping it loses, and when it has left."""

from collections.abc import Callable, Iterable
from dataclasses import replace

from quotas.engine.mig_profiles import profile_of
from quotas.engine.types import (
    Claim,
    ClaimId,
    ClaimState,
    Department,
    DepartmentId,
    Node,
    Placed,
    Policy,
    Pool,
    Settings,
    SpentBudget,
)


def capacity_of(pool: Pool, departments: Iterable[Department]) -> int:
    """The pool's present capacity in units: what its nodes have, or else its `capacity`, or else Σ guaranteed."""
    if pool.nodes is not None:
        return sum(node_units(pool, node) for node in pool.nodes)
    if pool.capacity is not None:
        return pool.capacity
    return sum(d.quotas[pool.id].guaranteed for d in departments if pool.id in d.quotas)


def node_units(pool: Pool, node: Node) -> int:
    """Units on a node. With a fixed MIG geometry, the units of its instances count, not those of its cards."""
    if node.instances is None:
        return sum(card.capacity for card in node.cards)
    profiles = ((profile_of(pool.mig, name), count) for name, count in node.instances.items())
    return sum(profile.size * count for profile, count in profiles if profile is not None)


def card_units(pool: Pool) -> int:
    """Units of a card of the pool, of the largest if cards differ; 0 if it has none."""
    return pool.units_per_card or max((card.units for node in pool.nodes or () for card in node.cards), default=0)


def card_cores(pool: Pool) -> int:
    """Percent of compute that a card of the pool gives out in all; 100 if it is not limited. If cards differ, the smallest, so
    that no claim is charged less than its pods take of it."""
    known = (card.cores for node in pool.nodes or () for card in node.cards if card.cores)
    return pool.cores_per_card or min(known, default=100)


def compute_units(cores: int, card_units: int, card_cores: int) -> int:
    """The charge in units for `cores` percent of compute: the same share of `card_units` as of `card_cores`, rounded up."""
    return -(-cores * card_units // card_cores)


def comes_with_a_card(pool: Pool) -> tuple[int, int]:
    """CPU in millicores and memory in MiB that come with a card of the pool: as set for the pool, else the smallest even share
    of its nodes, so that a pod that is charged for it finds it on every node. 0: not charged for."""
    cpu, memory = pool.cpu_per_card, pool.memory_per_card
    return (
        _least_even_share(pool, lambda node: node.cpu_milli) if cpu is None else cpu,
        _least_even_share(pool, lambda node: node.memory_mib) if memory is None else memory,
    )


def _least_even_share(pool: Pool, has: Callable[[Node], int | None]) -> int:
    cards = ((node, sum(card.units > 0 for card in node.cards)) for node in pool.nodes or ())
    return min(((has(node) or 0) // count for node, count in cards if count and has(node)), default=0)


def beside_units(asked: tuple[int, int], card_units: int, with_a_card: tuple[int, int]) -> int:
    """The charge in units for CPU and memory: the larger of their shares of what comes `with_a_card`, rounded up."""
    pairs = zip(asked, with_a_card, strict=True)
    return max([-(-amount * card_units // share) for amount, share in pairs if share], default=0)


def resized(claim: Claim, asked: int, pool: Pool) -> Claim:
    """The claim with `asked` units of a card for each pod, charged for its largest share: of the card's units, of its
    compute, or of the CPU and memory that come with a card."""
    compute = 0 if pool.mig is not None else claim.cores_per_pod or 0
    charge = max(
        asked,
        compute_units(compute, card_units(pool), card_cores(pool)),
        beside_units((claim.cpu_milli, claim.memory_mib), card_units(pool), comes_with_a_card(pool)),
    )
    return replace(claim, units_per_pod=charge, asked_per_pod=None if charge == asked else asked)


def stranded_units(pool: Pool, claims: Iterable[Claim]) -> dict[ClaimId, int]:
    """Claim id → units on lost, drained or quarantined nodes and cards: they take nothing of the present capacity, and
    stopping the claim frees nothing there. Claims on present cards only are left out."""
    if pool.nodes is None:
        return {}
    nodes = [node for node in pool.nodes if node_units(pool, node)]
    present = {node.name: {index for index, card in enumerate(node.cards) if card.units} for node in nodes}

    def is_gone(placed: Placed) -> bool:
        cards = present.get(placed.node)
        return cards is None or not cards.issuperset(placed.cards)

    pods = ((claim, sum(map(is_gone, claim.placement or ()))) for claim in claims)
    return {claim.id: gone * claim.units_per_pod for claim, gone in pods if gone}


def lost_work(claim: Claim, pool: Pool, settings: Settings, now: int) -> int:
    """Unit-seconds of work lost if the claim gets notice now: the time to its deadline since its start or last checkpoint (also
    one that it will save by then, if it still saves them regularly), plus the restart cost. A claim that is idle by
    measurement loses only the restart cost."""
    lost = 0
    if claim.idle_since is None:
        since = _started(claim, now)
        if claim.checkpointed_at is not None:
            since = max(since, claim.checkpointed_at)
        lost = max(0, now + notice_of(claim, pool, settings) - since)
        if claim.checkpoint_every and now - since < 2 * claim.checkpoint_every:
            lost %= claim.checkpoint_every
    return claim.units * (lost + settings.restart_cost)


def young_until(claim: Claim, now: int) -> int:
    """The time until which a holding claim is protected by its minimum runtime."""
    return _started(claim, now) + claim.min_runtime


def _started(claim: Claim, now: int) -> int:
    return now if claim.started_at is None else claim.started_at


def ends_at(claim: Claim) -> int | None:
    """When a holding claim's maximum runtime is over; None if it has none."""
    if claim.max_runtime is None or claim.started_at is None:
        return None
    return claim.started_at + claim.max_runtime


def notice_of(claim: Claim, pool: Pool, settings: Settings) -> int:
    """Seconds between the announcement and SIGTERM: those promised to the claim, else its pool's, else the default."""
    if claim.notice is not None:
        return claim.notice
    return settings.notice if pool.notice is None else pool.notice


def grace_of(claim: Claim, pool: Pool, settings: Settings) -> int:
    """Seconds between SIGTERM and SIGKILL, from the same places as the notice."""
    if claim.grace is not None:
        return claim.grace
    return settings.grace if pool.grace is None else pool.grace


def notice_began(leaver: Claim, pool: Pool, settings: Settings, now: int) -> int:
    """When the notice of a leaving claim began; `now` if unknown."""
    return now if leaver.leave_by is None else leaver.leave_by - notice_of(leaver, pool, settings)


def gone_by(claim: Claim, pool: Pool, settings: Settings, now: int) -> int:
    """The latest time at which the claim's units are free. A holding claim gets notice now, or when its minimum runtime is
    over, and then grace."""
    grace = grace_of(claim, pool, settings)
    if claim.state is ClaimState.LEAVING:
        return (now if claim.leave_by is None else claim.leave_by) + grace
    return max(now, young_until(claim, now)) + notice_of(claim, pool, settings) + grace


def policy_of(department: Department, pool: Pool, settings: Settings) -> Policy:
    """The policy of a department's claims: the first that is set, of quota, department, pool and default. They are not merged."""
    quota = department.quotas.get(pool.id)
    return (quota and quota.policy) or department.policy or pool.policy or settings.policy


def spent_budget(department: Department, claim: Claim) -> SpentBudget | None:
    """The used-up budget that restricts a claim of the department the most: one that lets nothing start, then the one that lasts
    longest. A budget that only forbids borrowing does not restrict claims that never borrow."""
    binding = [
        budget
        for budget in department.budgets
        if budget.user in (None, claim.user)
        and budget.pool in (None, claim.pool)
        and not (budget.borrowing_only and claim.must_stay_inside)
    ]
    return max(binding, key=_weight_of, default=None)


def _weight_of(budget: SpentBudget) -> tuple[bool, int, bool, DepartmentId, str, int, int]:
    """A total order, so that the order in which budgets are listed does not matter."""
    whose = (budget.user is None, budget.department, budget.pool or "")
    return not budget.borrowing_only, budget.resets_at, *whose, budget.limit, budget.used


def entered_at(claim: Claim) -> int:
    """Since when a holding claim is charged."""
    return claim.submitted_at if claim.started_at is None else claim.started_at
