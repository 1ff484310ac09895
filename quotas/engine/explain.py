"""Every reason, decision and difference in one sentence, in the reader's language.

The messages are English message ids with named parameters (reasons.py, and below). The caller passes the `gettext` of the
reader's language, and a `Reader` that formats times, amounts and names, or hides them.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields

from quotas.engine.reasons import N_, TIMES, Fragmented, LentOutReturning, Machine, Move, OverBudget, Reason
from quotas.engine.types import UNASSIGNED, Decision, DecisionKind
from quotas.engine.what_if import Difference

Gettext = Callable[[str], str]


def _as_is(message: str) -> str:
    return message


@dataclass(frozen=True, slots=True)
class Reader:
    """How to format values for a reader: times (engine seconds), unit amounts, millicores, MiB, and names by id."""

    time: Callable[[int], str] = str
    units: Callable[[int], str] = str
    cpu: Callable[[int], str] = lambda milli: f"{milli / 1000:g}"
    memory: Callable[[int], str] = lambda mebibytes: f"{mebibytes} MiB"
    claim: Callable[[str], str] = _as_is
    department: Callable[[str], str] = _as_is
    pool: Callable[[str], str] = _as_is


PLAIN = Reader()


STARTS_BY_ITSELF = LentOutReturning.advice
MOVES = N_("It would fit after these moves: %(moves)s.")
NO_MOVES = N_("No small set of moves would make room.")
MOVE = N_("%(claim)s from %(source)s to %(target)s")

DECISIONS: Mapping[str, str] = {
    "admit_own": N_("Starts now, from guaranteed quota."),
    "admit_borrowed": N_("Starts now, with %(borrowed)s borrowed from %(lenders)s."),
    "reclaim": N_("Starts by %(by)s at the latest, after %(waiting_on)s have been released."),
    "wait_first": N_("Waiting, first in the queue."),
    "wait": N_("Waiting at position %(position)s, behind %(ahead)s."),
    "impossible": N_("Cannot run as requested; the largest request that can run is %(largest)s."),
}

DIFFERENCES: Mapping[str, str] = {
    "nothing": N_("Nothing changes."),
    "new": N_("%(claim)s: %(after)s"),
    "gone": N_("%(claim)s is no longer requested; before: %(before)s"),
    "changed": N_("%(claim)s: %(after)s Before: %(before)s"),
    "recalled": N_("%(claim)s would have to release its capacity."),
    "spared": N_("%(claim)s would no longer have to release its capacity."),
    "borrows_more": N_("%(department)s would borrow %(units)s more of %(pool)s."),
    "borrows_less": N_("%(department)s would borrow %(units)s less of %(pool)s."),
}

UNASSIGNED_CAPACITY = N_("unassigned capacity")
AND = N_(", ")
AFTER = N_("%(sentence)s %(next)s")  # in Chinese without a space

_COUNTS = frozenset({"have", "need"})


def sentence(reason: Reason, gettext: Gettext = _as_is, reader: Reader = PLAIN) -> str:
    """The reason in one sentence; if moves were searched for, a second one names those that would help."""
    text = gettext(reason.sentence) % parameters(reason, gettext, reader)
    if not isinstance(reason, Fragmented) or reason.moves is None:
        return text
    return gettext(AFTER) % {"sentence": text, "next": _moves(reason.moves, gettext, reader)}


def _moves(moves: tuple[Move, ...], gettext: Gettext, reader: Reader) -> str:
    if not moves:
        return gettext(NO_MOVES)
    named = ({"claim": reader.claim(move.claim), "source": move.source, "target": move.target} for move in moves)
    return gettext(MOVES) % {"moves": gettext(AND).join(gettext(MOVE) % names for names in named)}


def advice(reason: Reason, gettext: Gettext = _as_is, reader: Reader = PLAIN, *, less_is_offered: bool = False) -> str:
    """What the reader can do about it, in one sentence. `less_is_offered`: a smaller request is offered, too."""
    message = getattr(reason, "or_else", reason.advice) if less_is_offered else reason.advice
    return gettext(message) % parameters(reason, gettext, reader)


def advices(
    reasons: Iterable[Reason], gettext: Gettext = _as_is, reader: Reader = PLAIN, *, less_is_offered: bool = False
) -> list[str]:
    """What the reader can do about all of them, each advice once."""
    found = dict.fromkeys(
        advice(reason, gettext, reader, less_is_offered=less_is_offered)
        for reason in reasons
        if not (less_is_offered and isinstance(reason, Fragmented) and reason.empty)
    )
    return list(found)


def parameters(reason: Reason, gettext: Gettext = _as_is, reader: Reader = PLAIN) -> dict[str, str]:
    """The reason's values, formatted for the reader, by the names that its sentence uses."""
    if isinstance(reason, Fragmented) and reason.machine is not None:
        return machine_parameters(reason.machine, reader)
    if isinstance(reason, OverBudget):  # in GPU-hours, whatever the pool counts
        hours = {"limit": f"{reason.limit:,}", "used": f"{reason.used:,}"}
        return {**hours, "department": reader.department(reason.department), "resets_at": reader.time(reason.resets_at)}
    values = ((f.name, getattr(reason, f.name)) for f in fields(reason) if f.name not in {"moves", "machine", "empty"})
    return {name: _write(name, value, gettext, reader) for name, value in values if value is not None}


def machine_parameters(machine: Machine, reader: Reader = PLAIN) -> dict[str, str]:
    """What a pod requests beside its cards, and what the nearest node has, formatted for the reader."""
    return {
        "cpu": reader.cpu(machine.asked_cpu_milli),
        "memory": reader.memory(machine.asked_memory_mib),
        "node": machine.node,
        "node_cpu": reader.cpu(machine.cpu_milli),
        "node_memory": reader.memory(machine.memory_mib),
        "device": machine.lacking or "",
        "device_has": str(max(0, machine.has)),
        "device_asked": str(machine.asked),
    }


def _write(name: str, value: object, gettext: Gettext, reader: Reader) -> str:
    if isinstance(value, tuple):
        return gettext(AND).join(reader.claim(claim) for claim in value)
    if name == "ends_by" and isinstance(value, int):
        return reader.time(value // 60 * 60)  # shown in minutes: the claim must not end later
    if isinstance(value, int):
        return reader.time(value) if name in TIMES else str(value) if name in _COUNTS else reader.units(value)
    names = {"pool": reader.pool, "department": reader.department, "claim": reader.claim}
    return names[name](str(value))


def decision_sentence(decision: Decision, gettext: Gettext = _as_is, reader: Reader = PLAIN) -> str:
    """The decision in one sentence; its reasons have their own."""
    comma = gettext(AND)
    lenders = [
        gettext(UNASSIGNED_CAPACITY) if d == UNASSIGNED else reader.department(d) for d in sorted(decision.from_)
    ]
    return gettext(DECISIONS[_wording(decision)]) % {
        "borrowed": reader.units(decision.borrowed),
        "lenders": comma.join(lenders),
        "by": "" if decision.by is None else reader.time(decision.by),
        "waiting_on": comma.join(reader.claim(claim) for claim in decision.waiting_on),
        "position": decision.position,
        "ahead": comma.join(reader.claim(claim) for claim in decision.ahead),
        "largest": reader.units(decision.largest or 0),
    }


def _wording(decision: Decision) -> str:
    if decision.decision is DecisionKind.ADMIT:
        return "admit_borrowed" if decision.borrowed else "admit_own"
    if decision.decision is DecisionKind.WAIT:
        return "wait" if decision.ahead else "wait_first"
    return decision.decision.value


def difference_sentences(difference: Difference, gettext: Gettext = _as_is, reader: Reader = PLAIN) -> list[str]:
    """What a change does: one sentence for each claim and department that it affects."""

    def effect(wording: str, **values: str) -> str:
        return gettext(DIFFERENCES[wording]) % values

    def answer(decision: Decision) -> str:
        text = decision_sentence(decision, gettext, reader)
        for reason in decision.reasons:
            text = gettext(AFTER) % {"sentence": text, "next": sentence(reason, gettext, reader)}
        return text

    found = []
    for change in difference.changes:
        wording = "new" if change.before is None else "gone" if change.after is None else "changed"
        texts = {"before": change.before and answer(change.before), "after": change.after and answer(change.after)}
        found.append(effect(wording, claim=reader.claim(change.claim), **{n: text or "" for n, text in texts.items()}))
    found += [effect("recalled", claim=reader.claim(claim)) for claim in difference.recalled]
    found += [effect("spared", claim=reader.claim(claim)) for claim in difference.spared]
    for (department, pool), units in difference.recallable.items():
        names = {
            "department": reader.department(department),
            "pool": reader.pool(pool),
            "units": reader.units(abs(units)),
        }
        found.append(effect("borrows_more" if units > 0 else "borrows_less", **names))
    return found or [effect("nothing")]
