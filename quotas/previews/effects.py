"""The present effect of a change, as far as one reader may see it: the difference between two plans.

Nothing is written. A change may concern several pool groups; each is planned without and with it.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from portal.access import Actor, Right
from portal.infra.confirm import Break
from portal.models import Department
from portal.text.words import amount
from quotas.engine import types as e
from quotas.engine.what_if import Difference
from quotas.models import Claim, Pool
from quotas.planning.snapshot import moment
from quotas.wording import clock_of


@dataclass(frozen=True, slots=True)
class ClaimSide:
    """One claim as far as the actor may see it: it has a name only if they may see its department."""

    department: Department
    pool: Pool
    units: int
    own: bool  # whether the actor may see the department
    name: str
    workload: str
    claim: str = ""  # its public id, never shown: distinguishes two of the same size


@dataclass(frozen=True, slots=True)
class Late:
    """A waiting claim that would start later than its promised time; `then` None: it would have no promised time."""

    side: ClaimSide
    now: dt.datetime
    then: dt.datetime | None


@dataclass(frozen=True, slots=True)
class Effect:
    """Claims that would be recalled, no longer be recalled, start, or wait instead of starting. `later`: units that would count
    as borrowed from now on. `promised_at`: when the last recalled claim would have left; None if none is recalled."""

    stopped: tuple[ClaimSide, ...] = ()
    staying: tuple[ClaimSide, ...] = ()
    starting: tuple[ClaimSide, ...] = ()
    waiting: tuple[ClaimSide, ...] = ()
    promised_at: dt.datetime | None = None
    later: tuple[tuple[Pool, int], ...] = ()
    late: tuple[Late, ...] = ()
    impossible: tuple[ClaimSide, ...] = ()  # waiting claims that could never run

    @property
    def is_nothing(self) -> bool:
        some = self.stopped or self.staying or self.starting or self.waiting or self.later or self.late
        return not (some or self.impossible)


@dataclass(frozen=True, slots=True)
class Preview:
    """`sentence`: the headline with its numbers; `lines`: further sentences; `stopped`: claims that would be
    recalled."""

    stopped: tuple[ClaimSide, ...]
    promised_at: dt.datetime | None
    sentence: str
    lines: tuple[str, ...] = ()
    breaks: tuple[Break, ...] = ()  # what the change takes away

    @property
    def unsaid(self) -> list[str]:
        """Breaks that neither the sentence, the lines nor the table of recalled claims mention."""
        return [
            each.sentence for each in self.breaks if each.kind not in IN_SENTENCE and each.sentence not in self.lines
        ]


IN_SENTENCE = {"stopped", "waits", "recallable"}


def effect_of(actor: Actor, *differences: Difference) -> Effect:
    """What the differences, one for each pool group, mean for this reader."""
    stopped = {claim for each in differences for claim in each.recalled}
    staying = {
        c for each in differences for c in (*each.spared, *(set(each.after.withdrawn) - set(each.before.withdrawn)))
    }
    starting = {c.claim for each in differences for c in each.changes if _starts(c.after) and not _starts(c.before)}
    waiting = {
        c.claim for each in differences for c in each.changes if _starts(c.before) and c.after and not _starts(c.after)
    }
    late = {claim: times for each in differences for claim, times in _late(each)}
    impossible = {
        c.claim
        for each in differences
        for c in each.changes
        if c.before and _impossible(c.after) and not _impossible(c.before)
    }
    rows = _rows(stopped | staying | starting | waiting | late.keys() | impossible)

    def sides(ids: Collection[str]) -> tuple[ClaimSide, ...]:
        return tuple(side_of(actor, row) for row in rows if row.public_id in ids)

    return Effect(
        sides(stopped), sides(staying), sides(starting), sides(waiting),
        max((by for by in map(_last, differences) if by is not None), default=None), _later(differences),
        tuple(Late(side_of(actor, row), *late[row.public_id]) for row in rows if row.public_id in late),
        sides(impossible),
    )  # fmt: skip


def _starts(decision: e.Decision | None) -> bool:
    return decision is not None and decision.decision is e.DecisionKind.ADMIT


def _impossible(decision: e.Decision | None) -> bool:
    return decision is not None and decision.decision is e.DecisionKind.IMPOSSIBLE


def _late(difference: Difference) -> Iterator[tuple[str, tuple[dt.datetime, dt.datetime | None]]]:
    """Claims with a promised time that would get a later one or none: (claim, (now, then))."""
    for change in difference.changes:
        before, after = change.before, change.after
        if before is None or after is None or before.by is None or _starts(after) or _impossible(after):
            continue
        if after.by is None or after.by > before.by:
            yield change.claim, (moment(before.by), moment(after.by) if after.by is not None else None)


def _rows(ids: Collection[str]) -> list[Claim]:
    rows = Claim.objects.filter(public_id__in=ids).select_related("department", "pool")
    return list(rows.order_by("pool", "department", "name"))


def side_of(actor: Actor, claim: Claim) -> ClaimSide:
    own = actor.may(Right.SEE, claim.department_id)
    name, workload = (claim.name, claim.workload) if own else ("", "")
    return ClaimSide(claim.department, claim.pool, claim.units, own, name, workload, claim.public_id)


def _last(difference: Difference) -> dt.datetime | None:
    """When the last recalled claim would have left."""
    victims = set(difference.recalled)
    by = [d.by for d in difference.after.decisions if d.by is not None and victims & set(d.victims)]
    return moment(max(by)) if by else None


def _later(differences: Iterable[Difference]) -> tuple[tuple[Pool, int], ...]:
    units: dict[str, int] = {}
    for each in differences:
        for (_department, pool), more in each.recallable.items():
            if more > 0:
                units[pool] = units.get(pool, 0) + more
    return tuple((pool, units[pool.slug]) for pool in Pool.objects.filter(slug__in=units))


def breaks_of(effect: Effect) -> Iterator[Break]:
    """What the change takes away, one sentence for each loss.

    Which claims are about to start changes every second, so a break of kind "waits" or "late" does not identify its claim.
    """
    for side in effect.stopped:
        yield Break(
            "stopped", _("%(who)s would have to release its capacity.") % {"who": claim_label(side)}, (side.claim,)
        )
    for side in effect.waiting:
        text = _("%(who)s is about to start and would have to wait.")
        yield Break("waits", text % {"who": claim_label(side)})
    for late in effect.late:
        numbers = {"who": claim_label(late.side), "now": clock_of(late.now)}
        if late.then is None:
            sentence = _("%(who)s is to start by %(now)s and would wait without a promised time.") % numbers
        else:
            text = _("%(who)s is to start by %(now)s and would start by %(then)s.")
            sentence = text % (numbers | {"then": clock_of(late.then)})
        yield Break("late", sentence)
    for side in effect.impossible:
        text = _("%(who)s is waiting and could no longer run.")
        yield Break("impossible", text % {"who": claim_label(side)}, (side.claim,))
    for pool, units in effect.later:
        text = _("%(later)s more in use would count as borrowed and could be recalled.")
        yield Break("recallable", text % {"later": amount(units, pool)}, (pool.slug, units))


def claim_label(side: ClaimSide) -> str:
    """One claim in a list, as far as the reader may see it."""
    name = side.name or (_("a recall") if side.own else _("a workload of another department"))
    text = _("%(department)s: %(name)s, %(units)s")
    return text % {"department": side.department.name, "name": name, "units": amount(side.units, side.pool)}


# In words -------------------------------------------------------------------------------------------------------------


def preview_of(
    effect: Effect, lines: Iterable[str] = (), breaks: Iterable[Break] = (), *, headline: str = ""
) -> Preview:
    """The effect in sentences, after the headline if there is one, and followed by further lines and breaks."""
    effects = ([headline] if headline else []) + _sentences(effect)
    sentence, *others = [*(effects or [_("No workload is affected now.")]), *lines]
    return Preview(effect.stopped, effect.promised_at, sentence, tuple(others), (*breaks_of(effect), *breaks))


def _sentences(effect: Effect) -> list[str]:
    sentences = []
    if effect.stopped:
        text = ngettext(
            "%(count)s workload would have to release %(units)s in total.",
            "%(count)s workloads would have to release %(units)s in total.", len(effect.stopped),
        )  # fmt: skip
        sentences.append(text % {"count": len(effect.stopped), "units": units_of(effect.stopped)})
    if effect.staying:
        text = ngettext(
            "%(count)s workload that is being recalled would keep its %(units)s.",
            "%(count)s workloads that are being recalled would keep their %(units)s.", len(effect.staying),
        )  # fmt: skip
        sentences.append(text % {"count": len(effect.staying), "units": units_of(effect.staying)})
    if effect.starting:
        text = ngettext(
            "No workload has to be preempted; %(starting)s queued workload would start.",
            "No workload has to be preempted; %(starting)s queued workloads would start.", len(effect.starting),
        )  # fmt: skip
        also = ngettext(
            "%(starting)s queued workload would start.",
            "%(starting)s queued workloads would start.", len(effect.starting),
        )  # fmt: skip
        sentences.append((also if sentences else text) % {"starting": len(effect.starting)})
    if effect.waiting:
        text = ngettext(
            "%(count)s workload that is about to start would wait.",
            "%(count)s workloads that are about to start would wait.", len(effect.waiting),
        )  # fmt: skip
        sentences.append(text % {"count": len(effect.waiting)})
    for pool, units in effect.later:
        text = _(
            "No workload has to be preempted now; %(later)s more in use would count as borrowed and could be recalled."
        )
        also = _("%(later)s more in use would count as borrowed and could be recalled.")
        sentences.append((also if sentences else text) % {"later": amount(units, pool)})
    return sentences


def units_of(sides: Iterable[ClaimSide]) -> str:
    """The amounts added up by unit: 4 cards, 15 GiB."""
    total: dict[str, int] = {}
    for side in sides:
        total[side.pool.unit] = total.get(side.pool.unit, 0) + side.units
    return _(", ").join(amount(units, unit) for unit, units in total.items())
