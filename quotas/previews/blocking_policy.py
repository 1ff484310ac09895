"""Whether a preemption policy keeps a claim waiting: the rule, and where it is set."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from django.utils.translation import gettext as _

from portal.models import Department
from quotas.board.usage import department_usage
from quotas.engine import types as e
from quotas.engine.planning_pass import decide
from quotas.engine.reasons import NotEnough
from quotas.engine.what_if import with_quota
from quotas.models import Claim, LedgerEntry, Pool, Quota
from quotas.rules.policies import Scope
from quotas.wording import policy_sentences

USUAL = e.Policy()
RULES = ("reclaim", "within")  # in the order of `policy_sentences`


@dataclass(frozen=True, slots=True)
class BlockingRule:
    """A rule that prevents preemption, and where it is set: quota, department, pool or default."""

    policy: e.Policy
    rule: str
    source: str

    def sentence(self, department: Department, pool: Pool) -> str:
        """A sentence with the rule, the place of its policy and who can change it."""
        where = {
            "quota": _("%(department)s in %(pool)s") % {"department": department.name, "pool": pool.name},
            "department": department.name,
            "pool": pool.name,
        }.get(self.source, _("this installation"))
        text = _("%(rule)s This is the policy of %(where)s; an operator can change it.")
        return text % {"rule": policy_sentences(self.policy)[RULES.index(self.rule)], "where": where}


def barred(snapshot: e.Snapshot, id: e.ClaimId) -> BlockingRule | None:
    """The rule that keeps a waiting claim of the snapshot from starting or reclaiming; None if no policy does.

    Plans once more for each rule that is stricter than the default.
    """
    claim = next(each for each in snapshot.claims if each.id == id)
    department = next(each for each in snapshot.departments if each.id == claim.department)
    pool = next(each for each in snapshot.pools if each.id == claim.pool)
    quota = department.quotas.get(pool.id, e.Quota())
    chain = (("quota", quota.policy), ("department", department.policy), ("pool", pool.policy))
    source, policy = next(
        ((name, each) for name, each in chain if each is not None), ("default", snapshot.settings.policy)
    )
    for rule, gentler in _gentler(policy):
        other = decide(with_quota(snapshot, department.id, pool.id, replace(quota, policy=gentler)))
        answer = next(each for each in other.decisions if each.claim == id)
        if answer.decision in {e.DecisionKind.ADMIT, e.DecisionKind.RECLAIM}:
            return BlockingRule(policy, rule, source)
    return None


def _gentler(policy: e.Policy) -> Iterator[tuple[str, e.Policy]]:
    if policy.reclaim != USUAL.reclaim:
        yield "reclaim", replace(policy, reclaim=USUAL.reclaim)
    if policy.within == "never":
        yield "within", replace(policy, within=USUAL.within)


def policy_against_reclaim(department: Department, pool: Pool) -> BlockingRule | None:
    """The policy that does not let the department reclaim anything it lends; None if it can. It must have a quota in the
    pool."""
    policy, source = Scope(department, pool).effective()
    return BlockingRule(policy, "reclaim", source) if policy.reclaim == "never" else None


def barred_in_queue(claim: Claim) -> BlockingRule | None:
    """As `barred`, but from the claim's last answer and the ledger, because a page cannot plan on each view.

    It is not None for a claim within the guarantee that lacks units which others borrow, and whose policy restricts
    reclaiming them.
    """
    if [reason["code"] for reason in claim.reasons] != [NotEnough.code]:
        return None
    department, pool = claim.department, claim.pool
    if not Quota.objects.filter(department=department, pool=pool, guaranteed__gte=claim.units).exists():
        return None
    policy, source = Scope(department, pool).effective()
    if policy.reclaim == USUAL.reclaim:
        return None
    inside = all(row.used + claim.units <= row.guaranteed for row in department_usage(department, [pool]))
    lent = LedgerEntry.objects.filter(pool=pool, own=False, ended_at=None).exclude(department=department)
    return BlockingRule(policy, "reclaim", source) if inside and lent.exists() else None
