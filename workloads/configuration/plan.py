"""Plans and applies the changes of a configuration file.

A dry run is the change, rolled back: the same actions, with the same checks, in one transaction. Entries that are refused are
tried again after the others, so their order does not matter: a guaranteed quota can be raised once another one is lowered.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction
from django.utils import timezone
from django.utils.translation import gettext as _

from portal import audit
from portal.access import Actor
from portal.errors import N_, Busy, Invalid, Problem, ngettext_noop
from portal.infra import confirm
from portal.infra.confirm import Break
from portal.infra.locks import durable, together
from portal.models import Department, GroupRule
from portal.names import printable
from portal.sign_in import group_rules
from quotas.models import Pool, PoolGroup, Quota
from quotas.planning.lock import locked_group
from quotas.previews import several
from quotas.previews.effects import Preview
from workloads.configuration import document
from workloads.configuration.document import Document, Path, path_text
from workloads.configuration.fields import plain_policy
from workloads.configuration.kinds import SECTIONS, Key, Section, UserCaps, Values, absent
from workloads.models import Image, Preset

API_VERSION = "gpu-quota-portal/v1"
REMOVABLE = ("departments", "images", "presets", "group_rules")
TOP = ("apiVersion", "complete", "departments", "pools", "images", "presets", "group_rules")
NESTED = ("quotas", "user_caps")
LONGEST_SOURCE = 200
MOST_FAULTS = 100
State = Mapping[str, Mapping[Key, Values]]
"""Section → key → values."""


class Fault(Invalid):
    """An error in the file. `line` is None if the path is not in the file."""

    def __init__(self, path: Path, line: int | None, detail: str, code: str = "invalid") -> None:
        super().__init__(detail.replace("%", "%%"), code=code, field=path_text(path))
        self.path, self.line = path, line


class Refused(Problem):
    """The file has errors, all of them in `errors`; nothing was changed."""

    status = 422
    code = "configuration_refused"
    message, plural = ngettext_noop(
        "Nothing was changed: the file has %(count)s error.", "Nothing was changed: the file has %(count)s errors."
    )

    def __init__(self, faults: Sequence[Fault]) -> None:
        super().__init__(count=len(faults))
        self.errors = sorted(faults, key=lambda each: (each.line or 0, each.path))

    def __str__(self) -> str:
        return "\n".join([super().__str__(), *(f"line {each.line}: {each.field}: {each}" for each in self.errors)])


class PlanChanged(confirm.Unconfirmed):
    """The confirmed plan differs from the present one."""

    code = "plan_changed"
    message = N_(
        "What this file would change is no longer what the preview showed. Nothing was changed. Preview it again."
    )


@dataclass(frozen=True, slots=True)
class Change:
    """A changed value, before and after, as the file writes it on one line; None: it does not exist."""

    path: Path
    before: str | None
    after: str | None

    @property
    def name(self) -> str:
        return path_text(self.path)


@dataclass(frozen=True, slots=True)
class Plan:
    """The changes of a file and their effects. `mark` confirms exactly this plan; `applied` is False for a dry run."""

    changes: tuple[Change, ...]
    preview: Preview
    mark: str
    applied: bool = False


@dataclass(slots=True)
class Wish:
    """The wanted values of one entry of the file; `values` None: the entry must not exist."""

    section: str
    key: Key
    path: Path
    values: Values | None

    @property
    def name(self) -> tuple[str, str]:
        return self.section, self.key[0]


@dataclass(slots=True)
class Faults:
    """The errors found so far, and the new entries that have some: an entry that refers to one of these gets no further error.
    After MOST_FAULTS errors the rest of the file is not validated."""

    of: Document
    each: list[Fault] = field(default_factory=list)
    entries: set[tuple[str, str]] = field(default_factory=set)

    def add(self, path: Path, detail: str, code: str = "invalid") -> None:
        """Raises Refused when there are too many."""
        self.each.append(Fault(path, self.of.line_of(path), detail, code))
        if len(self.each) == MOST_FAULTS:
            more = _("Only the first %(most)s errors are listed.") % {"most": MOST_FAULTS}
            raise Refused([*self.each, Fault((), None, more, "too_many_errors")])

    def add_details(self, path: Path, detail: Any) -> None:
        """Adds the errors of a serializer or a model, however deeply nested."""
        if isinstance(detail, dict):
            for name, inner in detail.items():
                self.add_details(path if name == "non_field_errors" else (*path, str(name)), inner)
        elif isinstance(detail, list):
            for index, inner in enumerate(detail):
                self.add_details((*path, str(index)) if isinstance(inner, dict | list) else path, inner)
        else:
            self.add(path, str(detail), getattr(detail, "code", "invalid"))


# Export and apply ----------------------------------------------------------------------------------------------------------


def export() -> str:
    """The present configuration as a file."""
    return document.write(as_file(stored()))


def apply(*, actor: Actor, text: str, source: str = "", dry_run: bool = False, confirmed: str = "") -> Plan:
    """Applies a file, completely or not at all. For operators.

    `source` names the file in the audit log. `confirmed` is the mark of the plan that the operator has seen; it is required if
    the change takes something from somebody. Raises Unreadable, Refused, Unconfirmed, PlanChanged, Busy, NotVisible.
    """
    actor.require_operator()
    file = document.read(text)
    with together(), audit.applied_from(printable(source)[:LONGEST_SOURCE]):
        plan = replace(_carried_out(actor, file), applied=not dry_run)
        if dry_run:
            transaction.set_rollback(True)
        elif plan.changes:
            _require_confirmed(plan, confirmed)
    if not dry_run and any(change.path[0] == "group_rules" for change in plan.changes):
        group_rules.apply_to_all()
    return plan


def proposed(text: str, parts: Mapping[str, frozenset[str]]) -> list[Wish]:
    """The wanted values of a file, without applying it. The file may only set the values in `parts` (section → stored names of
    values) of existing entries; entries of `quotas` and `user_caps` may be new. Raises Unreadable, Refused."""
    file = document.read(text)
    faults, before, wishes = Faults(file), stored(), list[Wish]()
    for wish in _wishes(_top(file, faults), before, faults):
        if wish.values == {}:
            continue
        wishes.append(wish)
        section = SECTIONS[wish.section]
        names = {str(each.source): name for name, each in section.shape().fields.items()}
        if wish.values is None or wish.section not in parts:
            faults.add(wish.path, _("This has no part in what is asked."), "no_part")
            continue
        for name in sorted(wish.values.keys() - parts[wish.section]):
            faults.add((*wish.path, names[name]), _("This has no part in what is asked."), "no_part")
        for kind, key in [(wish.section, wish.key[0]), *section.needs(wish.key, wish.values)]:
            if kind in ("departments", "pools") and (key,) not in before[kind]:
                faults.add(wish.path, absent(key, [each[0] for each in before[kind]]).detail, "does_not_exist")
    if faults.each:
        raise Refused(faults.each)
    return wishes


def differences(wishes: Iterable[Wish]) -> list[Change]:
    """The stored values that the wishes would change."""
    units = _units()
    changes: list[Change] = []
    for wish in wishes:
        section = SECTIONS[wish.section]
        now, values = section.merged(wish.key, wish.values or {})
        before = None if now is None else _written(section, wish.key, now, units)
        changes += _changed(section.place(wish.key), before, _written(section, wish.key, values, units))
    return changes


def _carried_out(actor: Actor, file: Document) -> Plan:
    """Makes the changes in the present transaction and returns them as a plan. Raises Refused."""
    faults = Faults(file)
    values = _top(file, faults)
    _lock(values)
    now, before = timezone.now(), stored()
    wishes = list(_wishes(values, before, faults))
    todo = [wish for wish in wishes if _differs(wish, before)]
    foresight = several.Foresight(actor, _groups(todo), now=now)
    _write(actor, todo, before, faults)
    after = stored()
    if not faults.each:
        _require_reached(wishes, after, faults)
    if faults.each:
        raise Refused(faults.each)
    changes = tuple(_changes(before, after))
    preview = _preview(actor, foresight, changes, before, after)
    facts = [(change.name, change.before, change.after) for change in changes]
    return Plan(changes, preview, confirm.mark_of(preview.breaks, facts))


def _require_confirmed(plan: Plan, given: str) -> None:
    """Raises PlanChanged if `given` is the mark of another plan, Unconfirmed if a mark is required and not given."""
    breaks = plan.preview.breaks
    if given and given != plan.mark:
        raise PlanChanged(breaks, mark=plan.mark, changed=True)
    if breaks and not given:
        raise confirm.Unconfirmed(breaks, mark=plan.mark, changed=False)


# The stored state ------------------------------------------------------------------------------------------------------------


def stored() -> State:
    return {name: section.stored() for name, section in SECTIONS.items()}


def as_file(state: State) -> dict[str, Any]:
    """The state as the values of a file, sorted."""
    units = _units()
    top: dict[str, Any] = {"apiVersion": API_VERSION} | {name: {} for name in TOP[2:-1]} | {"group_rules": []}
    for name, section in SECTIONS.items():
        for key, values in sorted(state[name].items()):
            entry = _written(section, key, values, units)
            if name == "group_rules":
                top[name].append(entry)
                continue
            *way, last = section.place(key)
            at = top
            for step in way:
                at = at.setdefault(step, {})
            at[last] = entry
    return top


def _units() -> Mapping[str, Pool]:
    return {pool.slug: pool for pool in Pool.objects.all()}


def _written(section: Section, key: Key, values: Values, units: Mapping[str, Pool]) -> Any:
    """The entry as the file writes it."""
    pool = units.get(section.pool_of(key, values, values))
    fields: dict[str, Any] = section.shape(context={"pool": pool}).to_representation(values)
    return fields["units"] if isinstance(section, UserCaps) else fields


# Parsing the file --------------------------------------------------------------------------------------------------------------


def _top(file: Document, faults: Faults) -> dict[str, Any]:
    """The file's sections."""
    values = _mapping(file.values, (), faults)
    if values.get("apiVersion") != API_VERSION:
        text = _("The file must say apiVersion: %(version)s.") % {"version": API_VERSION}
        faults.add(("apiVersion",), text, "version")
    for name in values.keys() - set(TOP):
        faults.add((name,), _unknown(TOP), "unknown_field")
    return values


def _unknown(known: Iterable[str]) -> str:
    return _("Unknown name. There are: %(known)s.") % {"known": ", ".join(known)}


def _mapping(value: Any, path: Path, faults: Faults) -> dict[str, Any]:
    """The mapping `value`; empty if it is null, or if it is no mapping, which is an error."""
    if value is None or isinstance(value, dict):
        return value or {}
    faults.add(path, _("Must be a mapping."), "not_a_mapping")
    return {}


def _entries(values: Mapping[str, Any], faults: Faults) -> Iterator[tuple[str, Key, Path, Any]]:
    """(section, key, path, raw value) of all entries but the group rules."""
    for name in ("departments", "pools", "images", "presets"):
        for key, raw in _mapping(values.get(name), (name,), faults).items():
            path = (name, key)
            if raw is not None and not isinstance(raw, dict):
                _mapping(raw, path, faults)
                faults.entries.add(path)
                continue
            fields = dict(raw or {})
            for inner in NESTED if name == "departments" else ():
                for pool, each in _mapping(fields.pop(inner, None), (*path, inner), faults).items():
                    yield inner, (key, pool), (*path, inner, pool), each if inner == "quotas" else {"units": each}
            yield name, (key,), path, fields


def _wishes(values: Mapping[str, Any], before: State, faults: Faults) -> Iterator[Wish]:
    """Every entry of the file with valid fields; and, for sections in `complete`, those to remove because it leaves them out."""
    units, named = _units(), dict[str, set[Key]]()
    for name, key, path, raw in _entries(values, faults):
        named.setdefault(name, set()).add(key)
        wanted = _read(name, key, path, raw, before, units, faults)
        if wanted is not None:
            yield Wish(name, key, path, wanted)
    yield from _rules(values.get("group_rules"), named, units, faults)
    complete = values.get("complete") or []
    for index, name in enumerate(complete if isinstance(complete, list) else [complete]):
        if name not in REMOVABLE:
            faults.add(("complete", str(index)), _unknown(REMOVABLE), "unknown_section")
            continue
        for key in sorted(before[name].keys() - named.get(name, set())):
            yield Wish(name, key, SECTIONS[name].place(key), None)


def _rules(raw: Any, named: dict[str, set[Key]], units: Mapping[str, Pool], faults: Faults) -> Iterator[Wish]:
    if raw is not None and not isinstance(raw, list):
        faults.add(("group_rules",), _("Must be a list."), "not_a_list")
        return
    known = named.setdefault("group_rules", set())
    for index, each in enumerate(raw or []):
        path = ("group_rules", str(index))
        wanted = _read("group_rules", ("", str(index)), path, each, {}, units, faults)
        if wanted is None:
            continue
        key = SECTIONS["group_rules"].key_of(wanted)  # type: ignore[attr-defined]
        if key in known:
            faults.add(path, _("There is already a rule for this group and department."), "twice")
        known.add(key)
        yield Wish("group_rules", key, path, wanted)


def _read(
    name: str, key: Key, path: Path, raw: Any, before: State, units: Mapping[str, Pool], faults: Faults
) -> Values | None:
    """The entry's values by their stored names; None, with the errors in `faults`, if one is invalid."""
    section = SECTIONS[name]
    fields = raw if isinstance(raw, dict) else {}
    if raw is not None and not isinstance(raw, dict):
        faults.add(path, _("Must be a mapping."), "not_a_mapping")
        return None
    slug = section.pool_of(key, fields, before.get(name, {}).get(key))
    if slug and slug not in units and name != "presets":
        faults.add(path, absent(slug, units).detail, "does_not_exist")
        faults.entries.add((name, key[0]))
        return None
    shape = section.shape(data=fields, context={"pool": units.get(slug)})
    if shape.is_valid():
        wanted = dict(shape.validated_data)
        if "policy" in wanted:
            wanted["policy"] = plain_policy(wanted["policy"])
        return section.settled(wanted)
    faults.add_details(path[:-1] if name == "user_caps" else path, _at_pool(name, path, shape.errors))
    faults.entries.add((name, key[0]))
    return None


def _at_pool(name: str, path: Path, errors: Any) -> Any:
    """Moves the errors of a cap to its pool, where the file writes its only value."""
    return {path[-1]: errors["units"]} if name == "user_caps" and "units" in errors else errors


def _differs(wish: Wish, before: State) -> bool:
    now = before[wish.section].get(wish.key, SECTIONS[wish.section].absent)
    if wish.values is None:
        return now is not None and now.get("active") is not False
    return now is None or any(now[name] != value for name, value in wish.values.items())


# Writing -----------------------------------------------------------------------------------------------------------------------


def _lock(values: Mapping[str, Any]) -> None:
    """Locks all rows that the file may write, in the order of docs/concurrency.md, before anything is read."""
    rows = Department.objects.select_for_update(no_key=True).order_by("pk")
    departments = values.get("departments")
    if departments is not None or values.get("complete"):
        list(rows.values_list("pk", flat=True))
    slugs = set(values["pools"]) if isinstance(values.get("pools"), dict) else set()
    for each in departments.values() if isinstance(departments, dict) else ():
        for inner in NESTED if isinstance(each, dict) else ():
            slugs |= set(each[inner]) if isinstance(each.get(inner), dict) else set()
    for pk in PoolGroup.objects.filter(pools__slug__in=slugs).distinct().order_by("pk").values_list("pk", flat=True):
        locked_group(pk)
    # Policies are in these rows.
    for model, pools in (
        (Pool, {"slug__in": slugs}),
        (Quota, {"pool__slug__in": slugs}),
    ):
        list(
            model._default_manager.select_for_update(no_key=True, of=("self",))
            .filter(**pools)
            .order_by("pk")
            .values_list("pk")
        )
    for name, catalogue in (("images", Image), ("presets", Preset)):
        if values.get(name) is not None or name in (values.get("complete") or ()):
            list(
                catalogue._default_manager.select_for_update(no_key=True, of=("self",)).order_by("pk").values_list("pk")
            )


def _write(actor: Actor, todo: Sequence[Wish], before: State, faults: Faults) -> None:
    """Writes the entries that differ. Refused ones are tried again after the others, until none of them can be written."""
    order = list(SECTIONS)
    wishes = sorted(todo, key=lambda wish: (wish.values is None, order.index(wish.section)))
    while True:
        refused = [(wish, error) for wish in wishes if (error := _refusal(actor, wish)) is not None]
        if len(refused) in (0, len(wishes)):
            break
        wishes = [wish for wish, _error in refused]
    faults.entries |= {wish.name for wish, _error in refused}
    for wish, error in refused:
        needs = [(name, key) for name, key in SECTIONS[wish.section].needs(wish.key, wish.values or {})
                 if (key,) not in before[name] and (name, key) != wish.name]  # fmt: skip
        if not any(each in faults.entries for each in needs):
            _add_refusal(wish, error, faults)


def _refusal(actor: Actor, wish: Wish) -> Exception | None:
    """Writes one entry and returns None; or the error that refused it, with its partial changes rolled back."""
    section = SECTIONS[wish.section]
    try:
        with durable():
            if wish.values is None:
                section.remove(actor, wish.key)
            else:
                section.write(actor, wish.key, wish.values)
    except Busy:
        raise
    except (Problem, ValidationError, IntegrityError) as error:
        return error
    return None


def _add_refusal(wish: Wish, error: Exception, faults: Faults) -> None:
    section = SECTIONS[wish.section]
    names = {str(each.source): name for name, each in section.shape().fields.items()}
    match error:
        case Problem():
            own = names.get(error.field) if wish.section != "user_caps" else None
            faults.add((*wish.path, own) if own else wish.path, error.detail, error.code)
        case ValidationError():
            for name, messages in getattr(error, "message_dict", {"": error.messages}).items():
                own = names.get(name)
                for message in messages:
                    faults.add((*wish.path, own) if own else wish.path, message)
        case _:
            faults.add(wish.path, _("A record with these values already exists."), "already_exists")


def _require_reached(wishes: Iterable[Wish], after: State, faults: Faults) -> None:
    """Adds an error for each wanted value that another entry has overwritten: pools that share nodes share some rules."""
    units = _units()
    for wish in wishes:
        now = after[wish.section].get(wish.key, SECTIONS[wish.section].absent) or {}
        wrong = {name: now.get(name) for name, value in (wish.values or {}).items() if now.get(name) != value}
        if not wrong:
            continue
        entry = _written(SECTIONS[wish.section], wish.key, now, units)
        names = {str(each.source): name for name, each in SECTIONS[wish.section].shape().fields.items()}
        for name in wrong:
            value = document.in_line(entry[names[name]] if isinstance(entry, dict) else entry)
            text = _("Another entry of the file sets this to %(value)s.") % {"value": value}
            faults.add((*wish.path, names[name]), text, "contradiction")


# Differences -------------------------------------------------------------------------------------------------------------------


def _changes(before: State, after: State) -> Iterator[Change]:
    """The changed values, in the order of the file."""
    units = _units()
    for name, section in SECTIONS.items():
        for key in sorted(before[name].keys() | after[name].keys()):
            old, new = before[name].get(key), after[name].get(key)
            if old != new:
                was, now = (None if each is None else _written(section, key, each, units) for each in (old, new))
                yield from _changed(section.place(key), was, now)


def _changed(path: Path, old: Any, new: Any) -> Iterator[Change]:
    if not isinstance(old, dict) and not isinstance(new, dict):
        yield Change(path, *(None if each is None else document.in_line(each) for each in (old, new)))
        return
    if new is None:
        yield Change(path, document.in_line(old), None)
        return
    for name, value in new.items():
        is_said = value not in (None, "", [], {}) if old is None else old[name] != value
        if is_said:
            yield Change((*path, name), None if old is None else document.in_line(old[name]), document.in_line(value))


def _groups(todo: Iterable[Wish]) -> list[PoolGroup]:
    """The pool groups whose plan may change: all if a department changes, else those of the pools concerned."""
    slugs = set()
    for wish in todo:
        if wish.section == "departments":
            return list(PoolGroup.objects.filter(pools__isnull=False).distinct().order_by("pk"))
        slugs |= {wish.key[-1]} if wish.section in ("pools", "quotas", "user_caps") else set()
    return list(PoolGroup.objects.filter(pools__slug__in=slugs).distinct().order_by("pk"))


def _preview(
    actor: Actor, foresight: several.Foresight, changes: Iterable[Change], before: State, after: State
) -> Preview:
    old, new = before["departments"], after["departments"]
    moved = [key[0] for key in old.keys() & new.keys()
             if any(old[key][name] != new[key][name] for name in ("parent", "weight"))]  # fmt: skip
    lending = [key for key, values in after["quotas"].items()
               if (was := before["quotas"].get(key)) is not None
               and any(was[name] != values[name] for name in ("lend_limit", "windows", "zone"))]  # fmt: skip
    breaks: list[Break] = []
    if before["group_rules"] != after["group_rules"]:
        breaks += group_rules.breaks_of(group_rules.effects(GroupRule.objects.all()))
    return foresight.preview(moved=sorted(moved), lending=sorted(lending), breaks=breaks)
