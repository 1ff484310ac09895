"""The status on a workload's page: what it does now, why, and what can be done."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from portal.access import Actor
from portal.models import Department
from portal.text.words import amount, duration, stored_sentence
from quotas.board.balances import balances_of
from quotas.engine.explain import STARTS_BY_ITSELF
from quotas.health.quarantines import that_stops
from quotas.lending.windows import next_return
from quotas.models import OCCUPYING, Claim, ClaimState, LedgerEntry, Quarantine
from quotas.previews.blocking_policy import barred_in_queue
from quotas.wording import Sentences, clock, clock_of, named_claims, return_sentence
from workloads.estimates.words import start_lines
from workloads.idle.spells import rule_of
from workloads.lifecycle import State
from workloads.models import Attempt, IdleSpell, Kind, SpellEnd, StopCause, Workload
from workloads.runtime.gangs import first_failed, was_stopped
from workloads.status.attempts import estimate_of, idle_spell
from workloads.status.out_of_service import mode_change_of

IMAGE = gettext_lazy(
    "The image cannot be pulled. Check its name and tag; if they are right, the cluster may not be allowed to read its registry."
)
CONTAINER = gettext_lazy("The cluster cannot create its container. Change the request, or ask an operator.")
NODE = gettext_lazy(
    "No node accepts it although the plan has room. Something outside the portal may be using "
    "the capacity: ask an operator."
)
OBSTACLES = {
    "ErrImagePull": IMAGE, "ImagePullBackOff": IMAGE, "ErrImageNeverPull": IMAGE, "InvalidImageName": IMAGE,
    "CreateContainerConfigError": CONTAINER, "CreateContainerError": CONTAINER, "Unschedulable": NODE,
    "UnexpectedAdmissionError": NODE,
}  # fmt: skip


@dataclass(frozen=True)
class Situation:
    """The status of a workload. The page counts down to `moment` or counts the time since it, depending on `ticks`. `advice` is
    what a person can do for which there is no button."""

    sentence: str
    details: list[str] = field(default_factory=list)
    moment: dt.datetime | None = None
    ticks: str = "since"
    caption: str = ""
    action: str = ""  # leave | rerun | notebook | extend
    advice: list[str] = field(default_factory=list)


def situation_of(actor: Actor, workload: Workload, attempt: Attempt | None) -> Situation:
    if attempt is None:
        return Situation(_("It was not queued."))
    situation = _situation(actor, workload, attempt)
    since = attempt.cluster.unreachable_since
    if since is not None and attempt.claim.state in OCCUPYING:
        situation.details.insert(0, _(
            "Its cluster has been unreachable since %(since)s: this is the last known state. It keeps "
                "its cards and is not started elsewhere."
        ) % {"since": clock(int(since.timestamp()))})  # fmt: skip
    return situation


def _situation(actor: Actor, workload: Workload, attempt: Attempt) -> Situation:
    claim, state = attempt.claim, State(workload.state)
    if state is State.QUEUED and claim.state == ClaimState.HOLDING:
        return Situation(
            _("Capacity is assigned; it starts in a moment."), shares_of(workload, claim), attempt.queued_at,
            caption=_("waiting for"),
        )  # fmt: skip
    if state is State.QUEUED:
        return queued(actor, workload, attempt, claim)
    if state in (State.ADMITTED, State.STARTING):
        where = where_of(attempt, claim)
        return Situation(
            _("Starting on %(where)s.") % {"where": where} if where else _("Starting."),
            [*obstacle(attempt.reason, attempt.message), *shares_of(workload, claim)],
            workload.state_since, caption=_("starting for"),
        )  # fmt: skip
    if state is State.RUNNING:
        spell = idle_spell(workload)
        if spell is not None:
            return idle(workload, attempt, spell)
        where = where_of(attempt, claim)
        return Situation(
            _("Running on %(where)s.") % {"where": where} if where else _("Running."), shares_of(workload, claim),
            attempt.started_at or workload.state_since, caption=_("running for"),
        )  # fmt: skip
    if state is State.RECALLED:
        return recalled(workload, attempt, claim)
    if state is State.STOPPING:
        return stopping(workload, attempt)
    return ended(workload, attempt)


def idle(workload: Workload, attempt: Attempt, spell: IdleSpell) -> Situation:
    """The status of a workload that was warned for being idle."""
    rule, where = rule_of(spell), where_of(attempt, attempt.claim)
    since = {"since": clock_of(spell.since), "below": f"{rule.below} %"}
    details = [_("Running on %(where)s.") % {"where": where}] if where else []
    if spell.stops_at is None:
        text = _("Idle since %(since)s: its GPU activity is below %(below)s. Stop it if it is not needed.") % since
        return Situation(text, [*details, *shares_of(workload, attempt.claim)], spell.since, caption=_("idle for"))
    text = (
        _("Idle since %(since)s: its GPU activity is below %(below)s. It is stopped unless it becomes active.") % since
    )
    if spell.kept_at is not None:
        by = spell.kept_by.label if spell.kept_by else ""
        text_of_keeper = _(
            "%(by)s chose “Keep it”: it is kept until %(until)s. That is possible once in an idle spell."
        )
        details = [text_of_keeper % {"by": by, "until": clock_of(spell.stops_at)}, *details] if by else details
    if workload.kind == Kind.NOTEBOOK:
        details.append(_("A busy kernel, or use of a terminal, counts as activity."))
    then = _("When the time is over it receives SIGTERM, and SIGKILL %(grace)s later. Its files are kept.")
    details.append(then % {"grace": duration(attempt.grace)})
    return Situation(text, details, spell.stops_at, "countdown", _("until it is stopped"), "keep")


def where_of(attempt: Attempt, claim: Claim) -> str:
    places = attempt.placement or claim.placement or []
    return "; ".join(place_text(each["node"], each.get("cards", [])) for each in places) or attempt.node


UUID = re.compile(r"((?:GPU|MIG)-[0-9a-f]{8})-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")


def place_text(node: str, cards: Sequence[object]) -> str:
    """Node and cards: "n3, cards 4, 5". Several UUIDs are shortened to the prefixes that CUDA accepts, as whole ones are long."""
    if not cards:
        return node
    names = list(map(str, cards))
    short = sorted({match[1] for name in names if (match := UUID.fullmatch(name))})
    text = ngettext("%(node)s, card %(cards)s", "%(node)s, cards %(cards)s", len(names))
    return text % {"node": node, "cards": ", ".join(short if 1 < len(short) == len(names) else names)}


def lenders_of(claim: Claim) -> list[Department | None]:
    """The departments that the claim borrows from; None in the list stands for unassigned capacity."""
    rows = LedgerEntry.objects.filter(claim=claim, own=False, ended_at=None).select_related("lender")
    return [entry.lender for entry in rows]


def shares_of(workload: Workload, claim: Claim) -> list[str]:
    """Sentences: how much is own and how much borrowed, and under which terms borrowed capacity can be recalled."""
    pool = workload.pool
    if not claim.preemptible:
        return [_("Runs within guaranteed quota and is non-preemptible: it runs until it ends.")]
    if not claim.borrowed:
        return [_("All from your department's own quota: no other department can recall it.")]
    lenders = lenders_of(claim)
    names = [lender.name if lender else _("unassigned capacity") for lender in lenders]
    numbers = {
        "borrowed": amount(claim.borrowed, pool), "all": amount(claim.units, pool),
        "lenders": _(", ").join(names), "notice": duration(claim.notice), "grace": duration(claim.grace),
    }  # fmt: skip
    text = (
        _("%(borrowed)s of %(all)s borrowed from %(lenders)s.")
        if numbers["lenders"]
        else _("%(borrowed)s of %(all)s borrowed.")
    )
    contract = _("Recallable with %(notice)s notice and %(grace)s grace; then it is queued again with the same ID.")
    now = timezone.now()
    back = next_return(claim.department, pool, {lender.slug: 0 for lender in lenders if lender}, now=now)
    until = (
        claim.started_at + dt.timedelta(seconds=claim.max_runtime) if claim.started_at and claim.max_runtime else None
    )
    concerns = back is not None and (until is None or back.at < until)
    return [text % numbers, contract % numbers, *([return_sentence(back, pool)] if back and concerns else [])]


def queued(actor: Actor, workload: Workload, attempt: Attempt, claim: Claim) -> Situation:
    sentences = Sentences(actor, {*named_claims(claim.reasons), *claim.ahead})
    reasons = sentences.reasons(claim.reasons, workload.pool)
    details, advice = [why for why, _advice in reasons], [advice for _why, advice in reasons if advice]
    if rule := barred_in_queue(claim):
        details.append(rule.sentence(workload.department, workload.pool))
    if claim.ahead:
        ahead = _(", ").join(sentences.ahead(claim.ahead[:5]))
        details.append(_("Ahead in the queue: %(claims)s.") % {"claims": ahead})
    balances = balances_of(workload.pool, now=timezone.now())
    if balances and claim.decision == "wait" and not claim.own_only:
        details += balances.sentences(workload.department, claim.ahead, claim.position)
    if estimate := estimate_of(workload):
        details += start_lines(estimate)
    if attempt.number > 1:
        details.append(_("Attempt %(number)s: ID, files and queue time are kept.") % {"number": attempt.number})
    if claim.decision == "reclaim" and claim.promised_at:
        text = _("Starts by %(by)s at the latest, after lent capacity has been returned.")
        text %= {"by": clock(int(claim.promised_at.timestamp()))}
        advice = advice or [_(STARTS_BY_ITSELF)]
        return Situation(text, details, claim.promised_at, "countdown", _("starts within"), advice=advice)
    if claim.position:
        return Situation(
            _("Waiting at position %(position)s.") % {"position": claim.position}, details, attempt.queued_at,
            caption=_("waiting for"), advice=advice,
        )  # fmt: skip
    return Situation(_("Scheduling…"), details, attempt.queued_at, caption=_("waiting for"), advice=advice)


def recalled(workload: Workload, attempt: Attempt, claim: Claim) -> Situation:
    taker, quarantine = claim.preempted_for.department.name if claim.preempted_for else "", that_stops(claim)
    if taker:
        text = _("%(department)s is recalling its capacity: save your work now.") % {"department": taker}
    elif quarantine is not None:
        text = _("%(place)s is quarantined: save your work now.") % {"place": place_of(quarantine)}
    elif node := being_changed(claim):
        text = _("%(node)s is being drained: save your work now.") % {"node": node}
    else:
        text = _("Its capacity is being recalled: save your work now.")
    then = _(
        "At the deadline it receives SIGTERM, and SIGKILL %(grace)s later; then it is queued again with the same ID."
    )
    details = [then % {"grace": duration(attempt.grace)}]
    if quarantine is not None:
        details = [reason_of(quarantine), *details, _("This counts neither as a recall nor as a failure.")]
    if attempt.ready_at:
        details = [_("It reported that its work is saved and is releasing its capacity.")]
    return Situation(text, details, attempt.reclaim_at, "countdown", _("until SIGTERM"), "leave")


def being_changed(claim: Claim) -> str:
    """Name of the claim's node if an operator is changing that node's mode, else ""."""
    change = mode_change_of(claim)
    return change.node.name if change else ""


def place_of(quarantine: Quarantine) -> str:
    return place_text(quarantine.node.name, [] if quarantine.card is None else [quarantine.card])


def reason_of(quarantine: Quarantine) -> str:
    return _("Reason: %(why)s.") % {"why": stored_sentence(quarantine.sentence)}


def stopping(workload: Workload, attempt: Attempt) -> Situation:
    causes = {
        "recalled": _("Stopping to release its capacity; it will be queued again."),
        "cancelled": _("Stopping on request."),
        "expired": _("Stopping: it reached its maximum runtime."),
        "idle": _("Stopping: it was idle."),
        "stuck": _("Stopping: the cluster could not start it (%(reason)s).") % {"reason": reason_word(attempt.reason)},
    }
    limit = (attempt.stopping_at or workload.state_since) + dt.timedelta(seconds=attempt.grace)
    text = causes.get(attempt.stop_cause, _("Stopping."))
    return Situation(text, [], limit, "countdown", _("until SIGKILL"))


def ended(workload: Workload, attempt: Attempt) -> Situation:
    lasted = duration((attempt.finished_at or workload.state_since) - attempt.started_at) if attempt.started_at else ""
    code = "" if workload.exit_code is None else str(workload.exit_code)
    numbers = {"lasted": lasted, "code": code, "reason": reason_word(workload.reason)}
    details = obstacle(workload.reason, workload.message)
    state = State(workload.state)
    if state is State.SUCCEEDED:
        text = _("Succeeded after %(lasted)s with exit code 0.") if lasted else _("Succeeded with exit code 0.")
    elif state is State.CANCELLED and workload.reason == StopCause.IDLE:
        text = _("Stopped because it was idle.")
        details = [*idle_rule_of(attempt), _("Its files are kept; run it again when you need it.")]
    elif state is State.CANCELLED:
        by = workload.cancelled_by.label if workload.cancelled_by else ""
        text = _("Stopped by %(by)s.") if by else _("Stopped.")
        numbers["by"] = by
    elif state is State.REJECTED:
        text = _("It did not start: %(reason)s.") if numbers["reason"] else _("It did not start.")
    elif workload.kind == Kind.DISTRIBUTED and (rank := first_failed(attempt.ranks)) is not None:
        numbers |= {"rank": rank["rank"], "code": rank["exit_code"], "reason": reason_word(rank["reason"])}
        text = (
            _("Rank %(rank)s failed with exit code %(code)s.")
            if rank["exit_code"] is not None
            else _("Rank %(rank)s was lost.")
        )
        if numbers["reason"]:
            text = _("Rank %(rank)s failed with exit code %(code)s: %(reason)s.")
        if numbers["reason"] and rank["exit_code"] is None:
            text = _("Rank %(rank)s was lost: %(reason)s.")
        if any(map(was_stopped, attempt.ranks)):
            details.append(_("The other ranks were stopped. The log below is from rank %(rank)s.") % numbers)
    elif numbers["reason"] and code:
        text = _("Failed with exit code %(code)s: %(reason)s.")
    elif code:
        text = _("Failed with exit code %(code)s. See its log.")
    else:
        text = _("Failed: %(reason)s.") if numbers["reason"] else _("Failed.")
    if state is State.FAILED and (meaning := meaning_of(numbers["code"])):
        details.append(meaning)
    return Situation(text % numbers, details, workload.finished_at, caption=_("ended"), action="rerun")


def idle_rule_of(attempt: Attempt) -> list[str]:
    """A sentence about why an attempt was stopped for being idle; empty if it was not."""
    spell = attempt.idle_spells.filter(end=SpellEnd.STOPPED).last()
    if spell is None:
        return []
    numbers = {
        "below": f"{rule_of(spell).below} %",
        "since": clock_of(spell.since),
        "warned": clock_of(spell.warned_at),
    }
    return [_("Its GPU activity was below %(below)s since %(since)s; its author was warned at %(warned)s.") % numbers]


def meaning_of(code: object) -> str:
    """A sentence about a well-known exit code; "" for others."""
    return {
        "126": _("Exit code 126: the command exists but cannot be executed."),
        "127": _("Exit code 127: the command was not found in the image."),
        "134": _("Exit code 134: the program aborted (SIGABRT), usually after an internal error in a library."),
        "137": _(
            "Exit code 137: it was killed (SIGKILL), usually because it used more memory than requested, "
                "or was still running at the end of its grace period."
        ),
        "139": _(
            "Exit code 139: it crashed (SIGSEGV, a segmentation fault), usually in native code such as "
                "an incompatible CUDA library or Python extension."
        ),
        "143": _("Exit code 143: it was terminated (SIGTERM) before reporting that its work was done."),
    }.get(str(code), "")  # fmt: skip


def obstacle(reason: str, message: str) -> list[str]:
    """The cluster's message, and what to do about it if the reason is known."""
    lines = [f"{reason}: {message}" if reason in OBSTACLES else message] if message else []
    return [*lines, str(OBSTACLES[reason])] if reason in OBSTACLES else lines


def reason_word(code: str) -> str:
    """The portal's own codes in words; a cluster's reasons (ImagePullBackOff, …) unchanged; "" for those that say no more than
    the outcome."""
    return {
        "Completed": "",
        "Error": "",
        "Stopped": "",
        "DeadlineExceeded": _("it exceeded its maximum runtime"),
        "Deleted": _("its pod was deleted"),
        "NodeLost": _("its node was lost"),
        "ClusterStopped": _("the cluster was stopped"),
        "max_runtime": _("it exceeded its maximum runtime"),
        "max_reclaims": _("it was recalled more often than this pool allows"),
        "out_of_service": _("its node or card was taken out of service"),
        "idle": _("it was idle"),
        "not_started": _("the cluster did not start it in time"),
        "max_wait": _("it waited longer than its maximum waiting time"),
        "OOMKilled": _("it used more memory than requested (OOMKilled)"),
    }.get(code, code)
