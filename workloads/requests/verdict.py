"""What would happen to a request: the engine's verdict with one more claim. Nothing is written."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from django.conf import settings
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from portal.access import Actor, Right
from portal.errors import N_, Invalid
from portal.ids import new_id
from portal.models import Department
from portal.text.words import amount, cores, duration, memory, sentences
from quotas.amounts import written
from quotas.board.balances import balances_of
from quotas.budgets.warnings import warnings_for
from quotas.engine import explain
from quotas.engine import types as e
from quotas.engine import what_if as engine
from quotas.engine.planning_pass import decide
from quotas.engine.reasons import AboveCeiling, Fragmented, Machine, Reason, UserCap
from quotas.engine.snapshot_json import reason_to_json
from quotas.engine.units import resized
from quotas.engine.what_if import Headline, with_claim
from quotas.lending.windows import next_return
from quotas.models import Claim, ClaimState, Pool
from quotas.planning.snapshot import claim_of, load_snapshot, moment
from quotas.previews.blocking_policy import barred
from quotas.wording import Sentences, clock, named_claims, return_sentence
from workloads.idle import exemptions
from workloads.idle.names import idle_sentences
from workloads.idle.policies import Policies
from workloads.lifecycle import State
from workloads.models import Workload
from workloads.requests.offered_amounts import OfferedAmount
from workloads.requests.request import WorkloadRequest, claim_fields
from workloads.requests.token_budgets import refuse_used_up, token_sentences
from workloads.requests.validation import check
from workloads.requests.what_you_get import above_share


class QueueFull(Invalid):
    code = "queue_full"
    message = N_(
        "You already have %(waiting)s workloads in the queue; the maximum is %(most)s. Submit again "
        "when some have started, or stop some of them."
    )


def refuse_crowding(actor: Actor) -> None:
    """Raises QueueFull if the author has too many queued workloads.

    It keeps one person from filling the queue and takes no lock, so two concurrent submissions may both get in.
    """
    waiting = Workload.objects.filter(author=actor.user, state=State.QUEUED).count() if actor.user else 0
    if waiting >= settings.QUEUED_PER_PERSON:
        raise QueueFull(waiting=waiting, most=settings.QUEUED_PER_PERSON)


class Impossible(Invalid):
    """The request is above the ceiling, or larger than any node; `largest` is the largest that could run, in units."""

    code = "impossible"
    message = N_(
        "The quota of %(department)s does not allow %(size)s of %(pool)s. The largest request that "
        "can run is %(largest_size)s."
    )
    because = ""  # why more is charged than was requested, in the reader's language

    @property
    def detail(self) -> str:
        return sentences(filter(None, [super().detail, self.because]))


ABOVE_BOTH = N_(
    "The quota of %(department)s does not allow %(size)s of %(pool)s: it allows at most "
    "%(ceiling_size)s. The largest request that can run is %(largest_size)s, because the nodes "
    "have no room for more."
)
NO_PLACE = N_(
    "%(pool)s has no room for %(size)s, even with nothing running. The largest request that fits is %(largest_size)s."
)

COUNTED = {"card", "replica", "slice"}  # units whose number can be written alone

DECISION = {
    Headline.STARTS_OWN: e.DecisionKind.ADMIT,
    Headline.STARTS_BORROWING: e.DecisionKind.ADMIT,
    Headline.STARTS_BY: e.DecisionKind.RECLAIM,
    Headline.WAITS: e.DecisionKind.WAIT,
    Headline.CANNOT: e.DecisionKind.IMPOSSIBLE,
}


@dataclass(frozen=True, slots=True)
class Alternative:
    """Another request that would start now."""

    pool: Pool
    units_per_pod: int
    text: str

    @property
    def written(self) -> str:
        """The amount as text that the form can parse."""
        return written(self.units_per_pod, self.pool)


@dataclass(frozen=True, slots=True)
class Step:
    """An amount that a request could have, and when it would start. `when` is a few words; "" if there was no time to compute
    it."""

    amount: OfferedAmount
    headline: Headline | None = None
    when: str = ""
    asked: bool = False  # whether it is the requested amount


@dataclass(frozen=True, slots=True)
class Verdict:
    """One of five headlines, the numbers behind it, what to do, the contract, and what would start now instead.

    `title`, `lines`, `advice` and `contract` are sentences in the reader's language; `facts` are the engine's numbers.
    `advice` leaves out what an alternative offers.
    """

    headline: Headline
    title: str
    lines: tuple[str, ...]
    advice: tuple[str, ...]
    contract: str
    alternatives: tuple[Alternative, ...]
    by: dt.datetime | None
    facts: engine.Verdict
    claim: e.Claim  # the claim that was planned
    idle_policy: tuple[str, ...] = ()  # sentences about what happens to such a workload when it is idle
    steps: tuple[Step, ...] = ()

    @property
    def decision(self) -> str:
        """The engine's decision: admit, reclaim, wait or impossible."""
        return DECISION[self.headline].value

    @property
    def sentences(self) -> tuple[str, ...]:
        return tuple(text for text in (self.title, *self.lines, *self.advice, self.contract, *self.idle_policy) if text)


STALE = 5.0  # s
_possible: dict[tuple[Any, ...], float] = {}  # request that was possible → until when that is assumed (time.monotonic)
OWN = frozenset({"workload", "name", "submitted_at", "queued_at"})  # fields that are unique to a claim


def refuse_impossible(workload: Workload, request: WorkloadRequest, *, now: dt.datetime) -> None:
    """Raises Impossible if the workload could not run even on an empty cluster. Only rules and nodes are read, not the load.

    Pipelines submit the same request many times, and reading many nodes is slow, so a request that was possible within the
    last STALE seconds passes. If the rules have changed meanwhile, the next planning pass decides the same on the claim."""
    fields = claim_fields(workload)
    asked = {name: value for name, value in fields.items() if name not in OWN}
    shape = tuple(tuple(sorted(value.items())) if isinstance(value, dict) else value for value in asked.values())
    if _possible.get(shape, 0) > time.monotonic():
        return
    claim = claim_of(Claim(public_id=new_id(), state=ClaimState.PENDING, **fields))
    rules = load_snapshot(workload.pool.group, now=now, claims=False)
    [answer] = decide(replace(rules, claims=(claim,))).decisions
    if answer.decision is e.DecisionKind.IMPOSSIBLE:
        problem = _impossible(workload.department, workload.pool, claim.units, answer)
        problem.because = above_share(request)
        raise problem
    if len(_possible) > 1000:
        _possible.clear()
    _possible[shape] = time.monotonic() + STALE


def limit_sentences(reasons: Sequence[Reason], largest: int, pods: int, units: Callable[[int], str]) -> list[str]:
    """Sentences that tell two limits apart: the most that the department's quota allows, and the most that the nodes can give
    to one request. Empty unless both are shown."""
    ceiling = next((reason.ceiling for reason in reasons if isinstance(reason, AboveCeiling)), None)
    place = next((reason for reason in reasons if isinstance(reason, Fragmented)), None)
    if ceiling is None or not largest or any(isinstance(reason, UserCap) for reason in reasons):
        return []
    if place is not None:
        text = _("The quota allows %(ceiling)s, the nodes %(largest)s: no node has more.")
        if pods > 1:
            text = _(
                "The quota allows %(ceiling)s, the nodes %(largest)s: they have no room for more pods of this size."
            )
        return [text % {"ceiling": units(ceiling), "largest": units(place.largest_fit)}]
    return [_("This is the limit of the department's quota; the nodes have room for it.")]


def _impossible(department: Department, pool: Pool, asked: int, answer: e.Decision) -> Impossible:
    """An Impossible that names the field at fault: the amount, or the CPU or memory that no node has beside the cards."""
    numbers: dict[str, Any] = {"asked": asked, "largest": answer.largest or 0, "unit": pool.unit}
    ceiling = next((reason.ceiling for reason in answer.reasons if isinstance(reason, AboveCeiling)), None)
    place = next((reason for reason in answer.reasons if isinstance(reason, Fragmented)), None)
    machine = None if place is None else place.machine
    if machine is not None:
        words = explain.machine_parameters(machine, explain.Reader(cpu=cores, memory=memory))
        return Impossible(machine.sentence, field=_field_at_fault(machine), **words, **numbers)
    if place is not None and ceiling is None:
        size, largest = amount(asked, pool), amount(answer.largest or 0, pool)
        return Impossible(NO_PLACE, field="units_per_pod", size=size, pool=pool.name, largest_size=largest, **numbers)
    message = ""
    if place is not None and ceiling is not None and answer.largest:
        message = ABOVE_BOTH
        numbers |= {"ceiling": ceiling, "ceiling_size": amount(ceiling, pool)}
    return Impossible(
        message,
        field="units_per_pod",
        department=department.name,
        size=amount(asked, pool),
        pool=pool.name,
        largest_size=amount(answer.largest or 0, pool),
        **numbers,
    )


def _field_at_fault(machine: Machine) -> str:
    """The field of a request for which no node has enough of something other than cards."""
    if machine.cpu_milli < machine.asked_cpu_milli:
        return "cpu_milli"
    if machine.memory_mib < machine.asked_memory_mib:
        return "memory_mib"
    return "pods" if machine.lacking == e.PODS else "rdma"


def verdict_of(
    *, actor: Actor, department: Department, request: WorkloadRequest, amounts: Sequence[OfferedAmount] = ()
) -> Verdict:
    """The verdict, with when the request would start with each of `amounts` instead. Raises Forbidden, InvalidRequest (errors
    that do not depend on the load), TokenUsedUp."""
    actor.require(Right.SUBMIT, department)
    check(request, department, highest_priority=2**31 - 1 if actor.may(Right.OPERATE, department) else 0)
    now = timezone.now()
    refuse_used_up(actor, now=now)
    asked = claim_of(_claim(department, request, actor, now))
    snapshot = load_snapshot(request.pool.group, now=now)
    facts = engine.verdict(snapshot, asked)
    instead = _alternatives(actor, department, request, snapshot, asked, now) if _must_wait(facts) else iter(())
    verdict = _in_words(actor, request.pool, facts, asked, tuple(instead))
    why, then = verdict.lines[: len(facts.reasons)], verdict.lines[len(facts.reasons) :]
    if facts.headline is Headline.WAITS and (barrier := barred(with_claim(snapshot, asked), asked.id)):
        why = (*why, barrier.sentence(department, request.pool))
    held = any(reason.code == "over_budget" for reason in facts.reasons)
    near = () if held else warnings_for(actor, department, request.pool, now=now)
    more = filter(
        None,
        [
            above_share(request),
            *_balances(department, request.pool, facts, asked, now),
            *near,
            *token_sentences(actor, request, now=now),
        ],
    )
    rule = Policies().effective(request.pool.pk, department.pk, request.kind)
    idle = idle_sentences(request.kind, rule, exemptions.of_department(department, now) if rule else None)
    steps = _steps(snapshot, facts, request, amounts, lambda other: claim_of(_claim(department, other, actor, now)))
    return replace(
        verdict, lines=(*why, *then, *more, *_window_return(department, request, facts, now)), steps=tuple(steps),
        idle_policy=() if facts.headline is Headline.CANNOT else tuple(idle),
    )  # fmt: skip


STEPS_TIME = 0.4  # s that the verdicts on all other amounts may take together: each costs a planning pass


def _steps(
    snapshot: e.Snapshot,
    facts: engine.Verdict,
    request: WorkloadRequest,
    amounts: Sequence[OfferedAmount],
    claim: Callable[[WorkloadRequest], e.Claim],
) -> Iterator[Step]:
    """A step for each amount. Amounts that could never run are left out, except the requested one."""
    until = time.monotonic() + STEPS_TIME
    for offered in amounts:
        if offered.is_of(request):
            answer: engine.Verdict | None = facts
        else:
            answer = engine.verdict(snapshot, claim(offered.put_into(request))) if time.monotonic() < until else None
        if answer is None:
            yield Step(offered)
        elif answer is facts or answer.headline is not Headline.CANNOT:
            yield Step(offered, answer.headline, _when(answer, request.pool), answer is facts)


def _when(facts: engine.Verdict, pool: Pool) -> str:
    """When it starts, in the few words that fit on a button."""
    if facts.headline is Headline.STARTS_BORROWING:
        borrowed = str(facts.borrowed) if pool.unit in COUNTED else amount(facts.borrowed, pool)
        return _("now, %(borrowed)s borrowed") % {"borrowed": borrowed}
    if facts.headline is Headline.STARTS_BY:
        left = {"time": duration(max(1, (facts.by or 0) - round(time.time())))}
        text = _("within %(time)s, when lent capacity returns") if facts.returning else _("within %(time)s")
        return text % left
    return {Headline.STARTS_OWN: _("now"), Headline.WAITS: _("waits")}.get(facts.headline, _("cannot run"))


def _window_return(
    department: Department, request: WorkloadRequest, facts: engine.Verdict, now: dt.datetime
) -> Iterator[str]:
    """A sentence if the capacity that it would borrow is due back before it would end, because a lending window closes."""
    lenders = {str(slug): units for slug, units in facts.from_.items() if slug}
    due = next_return(department, request.pool, lenders, now=now) if lenders else None
    ends = now + dt.timedelta(seconds=request.max_runtime) if request.max_runtime else None
    if due is not None and (ends is None or due.at < ends):
        yield return_sentence(due, request.pool)


def _balances(department: Department, pool: Pool, facts: engine.Verdict, asked: e.Claim, now: dt.datetime) -> list[str]:
    """With fairness over time: what the department lent and borrowed lately, and which departments therefore come before it."""
    borrows = facts.borrowed or (facts.headline is Headline.WAITS and facts.in_use_after > facts.guaranteed)
    balances = balances_of(pool, now=now) if borrows and not asked.own_only else None
    return balances.sentences(department, facts.ahead, facts.position) if balances else []


def _must_wait(facts: engine.Verdict) -> bool:
    return facts.headline in {Headline.WAITS, Headline.CANNOT, Headline.STARTS_BY}


def _claim(department: Department, request: WorkloadRequest, actor: Actor, now: dt.datetime) -> Claim:
    """The claim that a submission would create, unsaved."""
    return Claim(
        public_id=new_id(), state=ClaimState.PENDING, **claim_fields(request.workload(department, actor.user, now=now))
    )


# In words -------------------------------------------------------------------------------------------------------------


def _in_words(
    actor: Actor, pool: Pool, facts: engine.Verdict, asked: e.Claim, alternatives: tuple[Alternative, ...]
) -> Verdict:
    named = {*facts.ahead, *facts.waiting_on, *named_claims(map(reason_to_json, facts.reasons))}
    words = Words(facts, pool, Sentences(actor, named).reader(pool), asked.pods)
    title, lines = {
        Headline.STARTS_OWN: words.starts_own,
        Headline.STARTS_BORROWING: words.starts_borrowing,
        Headline.STARTS_BY: words.starts_by,
        Headline.WAITS: words.waits,
        Headline.CANNOT: words.cannot,
    }[facts.headline]()
    return Verdict(
        headline=facts.headline,
        title=title,
        lines=tuple(lines),
        advice=words.advice(less_is_offered=any(each.pool == pool for each in alternatives)),
        contract=words.contract(own_only=asked.own_only, preemptible=asked.preemptible),
        alternatives=alternatives,
        by=moment(facts.by) if facts.by is not None else None,
        facts=facts,
        claim=asked,
    )


class Words:
    """The sentences of one verdict for one reader."""

    def __init__(self, facts: engine.Verdict, pool: Pool, reader: explain.Reader, pods: int) -> None:
        self.facts, self.pool, self.reader, self.pods = facts, pool, reader, pods
        self.department = reader.department(facts.department)

    def starts_own(self) -> tuple[str, list[str]]:
        return _("Starts now, from your own quota."), [*self._quota(), *self._where()]

    def starts_borrowing(self) -> tuple[str, list[str]]:
        title = _("Starts now, %(borrowed)s of %(asked)s borrowed from %(lenders)s.") % {
            "borrowed": self._count(self.facts.borrowed),
            "asked": self._units(self.facts.asked),
            "lenders": self._departments(self.facts.from_),
        }
        return title, [*self._quota(), *self._where()]

    def starts_by(self) -> tuple[str, list[str]]:
        by = clock(self.facts.by or 0)
        if not self.facts.returning:
            return _("Starts by %(by)s at the latest.") % {"by": by}, [*self._quota()]
        title = ngettext(
            "Starts by %(by)s at the latest, when %(departments)s has returned %(units)s.",
            "Starts by %(by)s at the latest, when %(departments)s have returned %(units)s.",
            len(self.facts.returning),
        ) % {
            "by": by,
            "departments": self._departments(self.facts.returning),
            "units": self._units(sum(self.facts.returning.values())),
        }
        return title, [*self._quota()]

    def waits(self) -> tuple[str, list[str]]:
        title = _("Waiting at position %(position)s.") % {"position": self.facts.position}
        lines = [explain.sentence(reason, _, self.reader) for reason in self.facts.reasons]
        if self.facts.ahead:
            ahead = _(", ").join(self.reader.claim(claim) for claim in self.facts.ahead[:5])
            lines.append(_("Ahead in the queue: %(claims)s.") % {"claims": ahead})
        return title, [*lines, *self._quota()]

    def cannot(self) -> tuple[str, list[str]]:
        which = limit_sentences(self.facts.reasons, self.facts.largest or 0, self.pods, self._units)
        lines = [
            explain.sentence(reason, _, self.reader)
            for reason in self.facts.reasons
            if not which or not isinstance(reason, Fragmented) or reason.machine is not None
        ]
        if self.facts.largest:
            lines.append(
                _("The largest request that can run is %(largest)s.") % {"largest": self._units(self.facts.largest)}
            )
        return _("Cannot run as requested."), [*lines, *which]

    def advice(self, *, less_is_offered: bool) -> tuple[str, ...]:
        """What the person can do about a request that does not start now."""
        if not _must_wait(self.facts):
            return ()
        advices = explain.advices(self.facts.reasons, _, self.reader, less_is_offered=less_is_offered)
        if not advices and self.facts.headline is Headline.STARTS_BY:
            advices = [_(explain.STARTS_BY_ITSELF)]
        return tuple(advices)

    def contract(self, *, own_only: bool, preemptible: bool) -> str:
        """Under which terms the workload would run: who can recall it, and with how much notice."""
        if not preemptible:
            return _("Runs within guaranteed quota and is non-preemptible: it runs until it ends.")
        if own_only:
            return _("From your own quota only: no other department can recall it.")
        if self.facts.headline is Headline.CANNOT:
            return ""
        times = {"notice": duration(self.facts.notice), "grace": duration(self.facts.grace)}
        if self.facts.borrowed:
            text = _(
                "Recallable: %(lenders)s can recall it with %(notice)s notice and %(grace)s grace; your "
                "workload is then queued again with the same ID."
            )
            return text % (times | {"lenders": self._callers()})
        if self.facts.in_use_after <= self.facts.guaranteed:
            return _("Within your guaranteed quota: no other department can recall it.")
        text = _("Anything it borrows can be recalled with %(notice)s notice and %(grace)s grace.")
        return text % times

    def _callers(self) -> str:
        """The departments that can recall what would be borrowed: its lenders, and, for unassigned capacity, any department
        that uses less than its guaranteed quota."""
        named = {slug: units for slug, units in self.facts.from_.items() if slug}
        if len(named) == len(self.facts.from_):
            return self._departments(named)
        if not named:
            return _("any department that claims its guaranteed quota")
        return _("%(lenders)s, or any other department that claims its guaranteed quota,") % {
            "lenders": self._departments(named)
        }

    def _quota(self) -> Iterator[str]:
        if self.facts.guaranteed:
            text = _(
                "%(department)s has %(guaranteed)s guaranteed and uses %(in_use)s; with this workload it would use %(after)s."
            )
        else:
            text = _(
                "%(department)s has no guaranteed quota here and uses %(in_use)s; with this workload it would use %(after)s."
            )
        yield text % {
            "department": self.department,
            "guaranteed": self._units(self.facts.guaranteed),
            "in_use": self._units(self.facts.in_use),
            "after": self._units(self.facts.in_use_after),
        }
        if drawn := self.facts.in_use + self.facts.asked - self.facts.in_use_after:
            text = _("That includes %(units)s held by a recall, which this workload takes.")
            yield text % {"units": self._units(drawn)}

    def _where(self) -> Iterator[str]:
        for place in self.facts.placement or ():
            cards = ", ".join(map(str, place.cards))
            if cards:
                text = ngettext(
                    "Runs on %(node)s, card %(cards)s.", "Runs on %(node)s, cards %(cards)s.", len(place.cards)
                )
                yield text % {"node": place.node, "cards": cards}
            else:
                yield _("Runs on %(node)s.") % {"node": place.node}

    def _count(self, units: int) -> str:
        """The amount before "of 4 cards": the number alone if the unit is counted."""
        return str(units) if self.pool.unit in COUNTED else self._units(units)

    def _units(self, units: int) -> str:
        return amount(units, self.pool)

    def _departments(self, slugs: Mapping[e.DepartmentId, int]) -> str:
        return _(", ").join(
            self.reader.department(slug) if slug else _("unassigned capacity") for slug in sorted(slugs)
        )


# Alternatives ---------------------------------------------------------------------------------------------------------


def _alternatives(
    actor: Actor,
    department: Department,
    request: WorkloadRequest,
    snapshot: e.Snapshot,
    asked: e.Claim,
    now: dt.datetime,
) -> Iterator[Alternative]:
    """At most three requests that would start now: a smaller one in the same pool, and ones of the same size in others."""
    pool = request.pool
    if not request.profile:
        most = _largest_now(snapshot, asked)
        if most:
            yield Alternative(pool, most, _("%(amount)s here") % {"amount": amount(most, pool)})
    cards = -(-request.card_charge // pool.units_per_card)
    others = Pool.objects.filter(quotas__department=department, mig="").exclude(pk=pool.pk).select_related("group")
    for other in others[:2]:
        units = cards if other.unit == "card" else other.units_per_card
        elsewhere = replace(request, pool=other, units_per_pod=units, profile="")
        claim = claim_of(_claim(department, elsewhere, actor, now))
        if _starts_now(load_snapshot(other.group, now=now), claim):
            text = _("%(amount)s in %(pool)s") % {"amount": amount(units, other), "pool": other.name}
            yield Alternative(other, units, text)


def _largest_now(snapshot: e.Snapshot, asked: e.Claim) -> int:
    """The most units per pod, fewer than requested, that would start now; found by bisection. 0: none."""
    pool = next(pool for pool in snapshot.pools if pool.id == asked.pool)
    low, high = 0, asked.on_card - 1
    while low < high:
        middle = (low + high + 1) // 2
        if _starts_now(snapshot, resized(asked, middle, pool)):
            low = middle
        else:
            high = middle - 1
    return low


def _starts_now(snapshot: e.Snapshot, claim: e.Claim) -> bool:
    headline = engine.verdict(snapshot, claim).headline
    return headline in {Headline.STARTS_OWN, Headline.STARTS_BORROWING}
