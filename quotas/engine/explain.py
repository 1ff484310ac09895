"""Every reason and every decision in one sentence.

The sentences are literal English message ids (marked N_ for the extraction of messages) with named parameters; the
caller gives the `gettext` of the reader's language and a `Reader` that knows how to write a time, an amount of the
pool's units, and the names of claims, departments and pools – or to hide them.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields

from quotas.engine.reasons import (
    AboveCeiling,
    BackoffUntil,
    ClusterUnreachable,
    DepartmentPaused,
    Fragmented,
    HeldFor,
    LentOutReturning,
    Machine,
    Move,
    NoSuchProfile,
    NotEnough,
    NotLent,
    NotPreemptible,
    OverBorrowLimit,
    PoolShort,
    Reason,
    UserCap,
    WaitingForGang,
)
from quotas.engine.types import PODS, UNPROMISED, Decision, DecisionKind
from quotas.engine.what_if import Difference

Gettext = Callable[[str], str]


def N_(message: str) -> str:
    """Mark a message for extraction; it is translated when it is shown."""
    return message


def _as_is(message: str) -> str:
    return message


@dataclass(frozen=True, slots=True)
class Reader:
    """How to write values for whoever reads: times (engine seconds), unit amounts, millicores, MiB, and names by id."""

    time: Callable[[int], str] = str
    units: Callable[[int], str] = str
    cpu: Callable[[int], str] = lambda milli: f"{milli / 1000:g}"
    memory: Callable[[int], str] = lambda mebibytes: f"{mebibytes} MiB"
    claim: Callable[[str], str] = _as_is
    department: Callable[[str], str] = _as_is
    pool: Callable[[str], str] = _as_is


PLAIN = Reader()

SENTENCES: Mapping[str, str] = {
    NotEnough.code: N_("Pool %(pool)s is short of %(short_by)s for this."),
    OverBorrowLimit.code: N_("The department would borrow %(asked)s; its limit is %(limit)s."),
    LentOutReturning.code: N_("What it needs is lent out and comes back by %(at)s: %(victims)s."),
    HeldFor.code: N_("Free capacity is held for %(claim)s, which comes first."),
    NotLent.code: N_("%(department)s keeps %(kept)s idle for itself and does not lend them."),
    Fragmented.code: N_("%(free_units)s are free, but not together: the largest request that fits is %(largest_fit)s."),
    UserCap.code: N_("The department allows each user %(limit)s, and you use %(used)s."),
    DepartmentPaused.code: N_("The department is paused and starts nothing."),
    PoolShort.code: N_("The pool has lost %(by)s of its capacity."),
    NoSuchProfile.code: N_("The cards of this pool cannot be cut into this profile."),
    AboveCeiling.code: N_("By its quota the department can never have more than %(ceiling)s of this pool."),
    NotPreemptible.code: N_(
        "Work that must not be stopped needs guaranteed quota: the department would use %(asked)s of %(guaranteed)s."
    ),
    WaitingForGang.code: N_("All pods start together: there is room for %(have)s of %(need)s."),
    BackoffUntil.code: N_("It was called back and tries to borrow again at %(t)s."),
    ClusterUnreachable.code: N_("The cluster has not answered since %(since)s."),
}

ABOVE_ITS_LIMIT = N_(
    "%(department)s, of which the department is a part, would borrow %(asked)s; its limit is %(limit)s."
)
THOUGH_EMPTY = N_(
    "The machines have no place for it, even with nothing running: for at most %(largest_fit)s of this shape."
)
BESIDE_THE_CARDS = N_(
    "Its pods find the cards, but not %(cpu)s CPU and %(memory)s of memory beside them:"
    " %(node)s comes nearest, with %(node_cpu)s and %(node_memory)s."
)
NO_POD_BESIDE = N_(
    "Its pods find the cards, but none of those nodes takes one more pod: %(node)s comes nearest, and is full of pods."
)
NO_DEVICE_BESIDE = N_(
    "Its pods find the cards, but not %(device_asked)s × %(device)s beside them: %(node)s comes nearest, with %(device_has)s."
)
SMALLER = N_("Ask for fewer units in each pod.")
LESS_BESIDE = N_("Ask for less CPU or memory in each pod, or wait until a node has more of it.")
FEWER_PODS = N_("Ask for more in each of fewer pods, or wait until a pod on those nodes ends.")
FEWER_DEVICES = N_("Ask for fewer such devices in each pod, or wait until a node has more of them.")
MOVES = N_("It would fit if moved: %(moves)s.")
NO_MOVES = N_("No move of a few running pods was found that would make room.")
LESS: Mapping[str, str] = {
    BESIDE_THE_CARDS: LESS_BESIDE,
    NO_POD_BESIDE: FEWER_PODS,
    NO_DEVICE_BESIDE: FEWER_DEVICES,
}
MOVE = N_("%(claim)s from %(source)s to %(target)s")

ADVICE: Mapping[str, str] = {
    NotEnough.code: N_("Ask for less, or wait until something ends."),
    OverBorrowLimit.code: N_("Wait until the department uses less, or ask the operator for a higher borrow limit."),
    LentOutReturning.code: N_("Nothing to do: it starts then."),
    HeldFor.code: N_("Give it a short maximum runtime and it may run before."),
    NotLent.code: N_("Ask that department to lend more, or wait."),
    Fragmented.code: N_("Ask for fewer units in each pod, or wait until a node is free."),
    UserCap.code: N_("Ask for less, stop something of yours, or ask the quota owner for a higher cap."),
    DepartmentPaused.code: N_("Ask the quota owner when it goes on."),
    PoolShort.code: N_("The operators see it too; it starts when nodes are back."),
    NoSuchProfile.code: N_("Choose one of the profiles the pool offers."),
    AboveCeiling.code: N_("Ask for less, or ask the quota owner for more quota."),
    NotPreemptible.code: N_("Allow it to be stopped, or wait until the department uses less."),
    WaitingForGang.code: N_("Ask for fewer pods, or wait."),
    BackoffUntil.code: N_("Nothing to do: it tries again by itself."),
    ClusterUnreachable.code: N_("Nothing to do: it goes on when the cluster answers."),
}

OR_ELSE: Mapping[str, str] = {
    NotEnough.code: N_("Or wait until something ends."),
    Fragmented.code: N_("Or wait until a node is free."),
    AboveCeiling.code: N_("Or ask the quota owner for more quota."),
}
"""What is left to say where less of the same stands there to be taken."""
STARTS_BY_ITSELF = ADVICE[LentOutReturning.code]

DECISIONS: Mapping[str, str] = {
    "admit_own": N_("Starts now, from its own quota."),
    "admit_borrowed": N_("Starts now, with %(borrowed)s borrowed from %(lenders)s."),
    "reclaim": N_("Starts by %(by)s at the latest, when %(waiting_on)s have left."),
    "wait_first": N_("Waits, first in line."),
    "wait": N_("Waits, position %(position)s, behind %(ahead)s."),
    "impossible": N_("Cannot run as asked; the largest request that can is %(largest)s."),
}

DIFFERENCES: Mapping[str, str] = {
    "nothing": N_("Nothing changes."),
    "new": N_("%(claim)s: %(after)s"),
    "gone": N_("%(claim)s is not asked any more; before: %(before)s"),
    "changed": N_("%(claim)s: %(after)s Before: %(before)s"),
    "told": N_("%(claim)s would be told to go."),
    "spared": N_("%(claim)s would not be told to go."),
    "borrows_more": N_("%(department)s would borrow %(units)s more of %(pool)s as things stand."),
    "borrows_less": N_("%(department)s would borrow %(units)s less of %(pool)s as things stand."),
}

UNPROMISED_REST = N_("the unpromised rest")
AND = N_(", ")

_TIMES = frozenset({"at", "t", "since"})
_COUNTS = frozenset({"have", "need"})


def sentence(reason: Reason, gettext: Gettext = _as_is, reader: Reader = PLAIN) -> str:
    """The reason in one sentence, and where moves were looked for, which of them would help in another."""
    values = parameters(reason, gettext, reader)
    if isinstance(reason, OverBorrowLimit) and reason.department is not None:
        return gettext(ABOVE_ITS_LIMIT) % values
    if not isinstance(reason, Fragmented):
        return gettext(SENTENCES[reason.code]) % values
    text = gettext(THOUGH_EMPTY if reason.empty else SENTENCES[reason.code]) % values
    if reason.machine is not None:
        text = gettext(machine_wording(reason.machine)) % machine_parameters(reason.machine, reader)
    return text if reason.moves is None else f"{text} {_hint(reason.moves, gettext, reader)}"


def machine_wording(machine: Machine) -> str:
    """The sentence that says what is missing beside the cards: CPU and memory first."""
    if machine.lacks_cpu_or_memory or machine.lacking is None:
        return BESIDE_THE_CARDS
    return NO_POD_BESIDE if machine.lacking == PODS else NO_DEVICE_BESIDE


def machine_parameters(machine: Machine, reader: Reader = PLAIN) -> dict[str, str]:
    """What a pod asks for beside its cards, and what the nearest node has, written for the reader."""
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


def _hint(moves: tuple[Move, ...], gettext: Gettext, reader: Reader) -> str:
    if not moves:
        return gettext(NO_MOVES)
    named = ({"claim": reader.claim(move.claim), "source": move.source, "target": move.target} for move in moves)
    return gettext(MOVES) % {"moves": gettext(AND).join(gettext(MOVE) % names for names in named)}


def advice(reason: Reason, gettext: Gettext = _as_is) -> str:
    """What the reader can do about it, in one sentence."""
    if isinstance(reason, Fragmented) and reason.machine is not None:
        return gettext(LESS[machine_wording(reason.machine)])
    if isinstance(reason, Fragmented) and reason.empty:
        return gettext(SMALLER)
    return gettext(ADVICE[reason.code])


def advices(reasons: Iterable[Reason], gettext: Gettext = _as_is, *, less_is_offered: bool = False) -> list[str]:
    """What can be done about all of them, each advice once."""
    found = dict.fromkeys(
        gettext(OR_ELSE[reason.code]) if less_is_offered and reason.code in OR_ELSE else advice(reason, gettext)
        for reason in reasons
        if not (less_is_offered and isinstance(reason, Fragmented) and reason.empty)
    )
    return list(found)


def parameters(reason: Reason, gettext: Gettext = _as_is, reader: Reader = PLAIN) -> dict[str, str]:
    """The reason's values, written for the reader, under the names its sentence uses."""
    names = [f.name for f in fields(reason) if f.name not in {"moves", "machine", "empty"}]
    names = [name for name in names if getattr(reason, name) is not None]
    return {name: _write(name, getattr(reason, name), gettext, reader) for name in names}


def _write(name: str, value: object, gettext: Gettext, reader: Reader) -> str:
    if isinstance(value, tuple):
        return gettext(AND).join(reader.claim(claim) for claim in value)
    if isinstance(value, int):
        return reader.time(value) if name in _TIMES else str(value) if name in _COUNTS else reader.units(value)
    names = {"pool": reader.pool, "department": reader.department, "claim": reader.claim}
    return names[name](str(value))


def decision_sentence(decision: Decision, gettext: Gettext = _as_is, reader: Reader = PLAIN) -> str:
    """The decision in one sentence; its reasons have their own."""
    comma = gettext(AND)
    lenders = [gettext(UNPROMISED_REST) if d == UNPROMISED else reader.department(d) for d in sorted(decision.from_)]
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
    """What a change does, one sentence for each claim and department that it concerns."""

    def told(wording: str, **values: str) -> str:
        return gettext(DIFFERENCES[wording]) % values

    def answer(decision: Decision) -> str:
        parts = [decision_sentence(decision, gettext, reader)]
        return " ".join([*parts, *(sentence(reason, gettext, reader) for reason in decision.reasons)])

    found = []
    for change in difference.changes:
        wording = "new" if change.before is None else "gone" if change.after is None else "changed"
        texts = {"before": change.before and answer(change.before), "after": change.after and answer(change.after)}
        found.append(told(wording, claim=reader.claim(change.claim), **{n: text or "" for n, text in texts.items()}))
    found += [told("told", claim=reader.claim(claim)) for claim in difference.told]
    found += [told("spared", claim=reader.claim(claim)) for claim in difference.spared]
    for (department, pool), units in difference.recallable.items():
        names = {
            "department": reader.department(department),
            "pool": reader.pool(pool),
            "units": reader.units(abs(units)),
        }
        found.append(told("borrows_more" if units > 0 else "borrows_less", **names))
    return found or [told("nothing")]
