"""Group rules: managed by operators, applied at every sign-in through a provider and whenever a rule changes.

Rules are applied to the groups that each account had at its last sign-in, which are stored. Applying them locks the person
first, then reads: of two concurrent runs the second sees what the first has written.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import structlog
from allauth.socialaccount.models import SocialAccount
from django.conf import settings
from django.db import IntegrityError
from django.db.models import Q
from django.utils import timezone
from django.utils.module_loading import import_string
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from portal import audit
from portal.access import SYSTEM, Actor
from portal.accounts import sessions
from portal.accounts.tokens import end_unbacked_tokens
from portal.errors import N_, Invalid
from portal.infra.confirm import Break
from portal.infra.locks import durable
from portal.models import Department, GroupRule, Membership, MissingProvider, Role, SeenGroups, User
from portal.notify import notices
from portal.notify.events import emit
from portal.sign_in.entitlements import Changes, Entitled, Held, Rule, changes_to, entitled_to

LONGEST = 255
MOST_RULES = 1000
GRACE = dt.timedelta(days=1)  # how long a provider that is missing in the settings still counts
log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Effect:
    """What rules change for one person. `roles`: (department, role now or "", role then or "", given by hand); `operator`:
    (now, then)."""

    user: User
    groups: tuple[str, ...]
    roles: tuple[tuple[Department, str, str, bool], ...]
    operator: tuple[bool, bool]

    @property
    def changes(self) -> bool:
        return self.operator[0] != self.operator[1] or any(now != then for _where, now, then, _hand in self.roles)

    @property
    def loses(self) -> list[Department]:
        return [where for where, now, then, _hand in self.roles if now and not then]


# Keeping rules -----------------------------------------------------------------------------------------------------------


def checked(*, provider: str, pattern: str, department: Department | None, role: str) -> GroupRule:
    """The rule, not stored yet. `department` None: it makes operators. Raises Invalid (provider, pattern, role)."""
    known = [each.key for each in settings.IDENTITY_PROVIDERS]
    if provider not in known:
        raise Invalid(N_("Choose one of the providers %(known)s."), field="provider", known=", ".join(known) or "–")
    pattern = pattern.strip()
    if not pattern or len(pattern) > LONGEST or not pattern.isprintable():
        raise Invalid(N_("Enter the name of a group, or a pattern with *, of at most 255 characters."), field="pattern")
    if not pattern.strip("*"):
        raise Invalid(N_("This matches every group. Enter part of the group's name."), field="pattern")
    if department is not None and role not in Role.values:
        raise Invalid(N_("Choose one of the roles %(roles)s."), field="role", roles=", ".join(Role.values))
    return GroupRule(
        provider=provider, pattern=pattern, department=department, role=role if department is not None else ""
    )


def add_rule(*, actor: Actor, rule: GroupRule) -> GroupRule:
    """Stores a rule that was `checked` and applies it. Raises Invalid (pattern: there is such a rule), NotVisible."""
    store_rule(actor=actor, rule=rule)
    apply_to_all()
    return rule


def store_rule(*, actor: Actor, rule: GroupRule) -> None:
    """`add_rule` for a caller that applies all rules once at the end. Raises as `add_rule`."""
    actor.require_operator()
    try:
        with durable():
            if GroupRule.objects.count() >= MOST_RULES:
                raise Invalid(
                    N_("There are already %(most)s rules, the maximum. Remove one first."),
                    field="pattern",
                    most=MOST_RULES,
                )
            rule.save()
            audit.record(
                actor, "group_rule.added", f"group rule {rule.pk}", department=rule.department, after=facts_of(rule)
            )
    except IntegrityError:
        raise Invalid(N_("There is already a rule for this group and department."), field="pattern") from None


def remove_rule(*, actor: Actor, rule: GroupRule) -> None:
    """Removes a rule and what only it gave. Removing twice changes nothing. Raises NotVisible."""
    drop_rule(actor=actor, rule=rule)
    apply_to_all()


def drop_rule(*, actor: Actor, rule: GroupRule) -> None:
    """`remove_rule` for a caller that applies all rules once at the end. Raises NotVisible."""
    actor.require_operator()
    with durable():
        removed, _rows = GroupRule.objects.filter(pk=rule.pk).delete()
        if removed:
            audit.record(
                actor, "group_rule.removed", f"group rule {rule.pk}", department=rule.department, before=facts_of(rule)
            )


def facts_of(rule: GroupRule) -> dict[str, object]:
    where = rule.department.slug if rule.department else None
    return {"provider": rule.provider, "pattern": rule.pattern, "department": where, "role": rule.role or "operator"}


# Who gets what -----------------------------------------------------------------------------------------------------------


def effects(rows: Iterable[GroupRule]) -> list[Effect]:
    """What everybody who has signed in through a provider has now and gets by these rules, in the order of user names."""
    rules = pure(rows)
    departments = {row.pk: row for row in Department.objects.all()}
    held: dict[int, list[Membership]] = {}
    of_rules = Q(user__socialaccount__isnull=False) | Q(user__memberships__from_rules=True)
    for row in Membership.objects.filter(of_rules).distinct():
        held.setdefault(row.user_id, []).append(row)
    listed = []
    for user, groups in everybody():
        listed.append(_effect(user, groups, rules, held.get(user.pk, []), departments))
    return listed


def _effect(
    user: User,
    groups: dict[str, list[str]],
    rules: Sequence[Rule],
    held: Sequence[Membership],
    departments: dict[int, Department],
) -> Effect:
    entitled = entitled_to(rules, groups)
    changes = changes_to(entitled, [as_held(row) for row in held])
    now = {row.department_id: row.role for row in held}
    then = {
        pk: role for pk, role in (now | dict(changes.given) | dict(changes.changed)).items() if pk not in changes.lost
    }
    by_hand = {row.department_id for row in held if not row.from_rules}
    about = sorted(now.keys() | then.keys(), key=lambda pk: departments[pk].slug)
    roles = tuple((departments[pk], now.get(pk, ""), then.get(pk, ""), pk in by_hand) for pk in about)
    operator = entitled.operator or (user.is_operator and not user.operator_from_rules)
    names = tuple(sorted({name for each in groups.values() for name in each}))
    return Effect(user, names, roles, (user.is_operator, operator))


def everybody() -> list[tuple[User, dict[str, list[str]]]]:
    """Everybody with an account of a provider or with a role from a rule, and their groups (provider → names), in the order of
    user names. Groups of providers that have `ended` do not count."""
    people: dict[int, tuple[User, dict[str, list[str]]]] = {}
    silent = ended()
    rows = SeenGroups.objects.select_related("account__user").order_by("account__user__username")
    for row in rows:
        _user, groups = people.setdefault(row.account.user_id, (row.account.user, {}))
        if row.account.provider not in silent:
            groups.setdefault(row.account.provider, []).extend(row.groups)
    given = Q(memberships__from_rules=True) | Q(operator_from_rules=True)
    for user in User.objects.filter(given).exclude(pk__in=people).distinct():
        people[user.pk] = (user, {})
    return sorted(people.values(), key=lambda each: each[0].username)


def groups_of(user: User) -> dict[str, list[str]]:
    groups: dict[str, list[str]] = {}
    reported = SeenGroups.objects.filter(account__user=user).exclude(account__provider__in=ended())
    for row in reported.select_related("account"):
        groups.setdefault(row.account.provider, []).extend(row.groups)
    return groups


def configured() -> set[str]:
    return {each.key for each in settings.IDENTITY_PROVIDERS}


def note_missing(now: dt.datetime) -> None:
    """Stores since when providers that have reported groups are not configured, and notifies operators of new ones."""
    reported = set(SeenGroups.objects.values_list("account__provider", flat=True).distinct())
    MissingProvider.objects.filter(Q(provider__in=configured()) | ~Q(provider__in=reported)).delete()
    for provider in sorted(reported - configured()):
        with durable():
            _row, new = MissingProvider.objects.get_or_create(provider=provider, defaults={"since": now})
            if new:
                ends = (now + GRACE).isoformat()
                notices.send("provider.missing", to=User.operators(), provider=provider, ends_at=ends)


def ended() -> set[str]:
    """Providers that have been missing for longer than GRACE: what they gave ends."""
    return set(MissingProvider.objects.filter(since__lte=timezone.now() - GRACE).values_list("provider", flat=True))


def pure(rows: Iterable[GroupRule]) -> list[Rule]:
    return [Rule(row.provider, row.pattern, row.department_id, row.role or "member") for row in rows]


def as_held(row: Membership) -> Held:
    return Held(row.department_id, row.role, row.from_rules)


def breaks_of_removal(rule: GroupRule) -> list[Break]:
    """Who loses what with this rule."""
    return breaks_of(effects(GroupRule.objects.exclude(pk=rule.pk)))


def breaks_of(effects: Iterable[Effect]) -> list[Break]:
    """Who loses what."""
    breaks = []
    for effect in effects:
        name = {"name": effect.user.label}
        for department in effect.loses:
            work = len(work_of(effect.user, department))
            text = ngettext(
                "%(name)s is no longer a member of %(department)s; %(n)s workload there goes on.",
                "%(name)s is no longer a member of %(department)s; %(n)s workloads there go on.", work,
            )  # fmt: skip
            sentence = text % {**name, "department": department.name, "n": work}
            breaks.append(Break("membership", sentence, (effect.user.pk, department.pk, work)))
        if effect.operator == (True, False):
            sentence = _("%(name)s is no longer an operator.") % name
            breaks.append(Break("operator", sentence, (effect.user.pk,)))
    return breaks


# Applying ----------------------------------------------------------------------------------------------------------------


def signed_in(account: SocialAccount, groups: list[str] | None, said_at: dt.datetime) -> Changes | None:
    """Stores the groups that a provider has just reported and applies the rules. `groups` None: it has left them out; nothing
    changes.

    Of two concurrent sign-ins the provider's later answer counts, whichever is written last.
    """
    if groups is None:
        log.warning("groups.unknown", provider=account.provider, account=account.pk)
        return None
    with durable():
        user = User.objects.select_for_update(no_key=True).get(pk=account.user_id)
        row, made = SeenGroups.objects.get_or_create(account=account, defaults={"groups": groups, "said_at": said_at})
        if not made:
            SeenGroups.objects.filter(pk=row.pk, said_at__lte=said_at).update(groups=groups, said_at=said_at)
        return apply_to(user)


def apply_to_all() -> int:
    """Applies the rules to everybody for whom they change something, each in a separate transaction. Returns the number of
    people."""
    todo = [effect.user.pk for effect in effects(GroupRule.objects.all()) if effect.changes]
    for pk in todo:
        with durable():
            apply_to(User.objects.select_for_update(no_key=True).get(pk=pk))
    return len(todo)


def apply_to(user: User) -> Changes:
    """Changes the person's memberships from rules to what the rules give. The caller holds the person's lock.

    Losing a membership or the operator role ends all of the person's sessions, and every token that depended on it.
    """
    entitled = entitled_to(pure(GroupRule.objects.all()), groups_of(user))
    about = Q(pk__in=entitled.roles) | Q(memberships__user=user, memberships__from_rules=True)
    ids = set(Department.objects.filter(about).values_list("pk", flat=True))
    departments = {
        row.pk: row for row in Department.objects.select_for_update(no_key=True).filter(pk__in=ids).order_by("pk")
    }
    held = list(Membership.objects.filter(user=user))
    changes = changes_to(entitled, [as_held(row) for row in held])
    for pk in changes.lost:
        _lose(user, departments[pk])
    for pk, role in changes.given.items():
        _give(user, departments[pk], role)
    for pk, role in changes.changed.items():
        before = next(row.role for row in held if row.department_id == pk)
        _change(user, departments[pk], before, role)
    fewer = _set_operator(user, entitled)
    if changes.lost or changes.changed or fewer:
        end_unbacked_tokens(user)
    if changes.lost or fewer:
        sessions.end_all(user)
    return changes


def _give(user: User, department: Department, role: str) -> None:
    given = {"role": role, "from_rules": True}
    _membership, made = Membership.objects.get_or_create(user=user, department=department, defaults=given)
    if not made:  # added by hand in the meantime
        return
    audit.record(
        SYSTEM, "member.added", f"user {user.username}", department=department, after={"role": role, "by": "group"}
    )
    emit("member.added", department=department, user=user.username, role=role)
    notices.send("member.invited", to=[user], department=department, role=role)


def _change(user: User, department: Department, before: str, role: str) -> None:
    Membership.objects.filter(user=user, department=department, from_rules=True).update(role=role)
    audit.record(
        SYSTEM, "member.role_changed", f"user {user.username}", department=department, before={"role": before},
        after={"role": role, "by": "group"},
    )  # fmt: skip
    emit("member.changed", department=department, user=user.username, role=role)


def work_of(user: User, department: Department) -> list[str]:
    """Names of the person's queued and running workloads in the department, by quotas (settings.WORK_OF)."""
    names: list[str] = import_string(settings.WORK_OF)(user, department)
    return names


def _lose(user: User, department: Department) -> None:
    """Ends the membership. The owners are notified first, with the names of the person's workloads there."""
    work = work_of(user, department)
    owners = [each for each in notices.owners_of(department) if each.pk != user.pk] or list(User.operators())
    notices.send(
        "member.left_group", to=owners, department=department, person=user.label, count=len(work),
        work=", ".join(work)[:600],
    )  # fmt: skip
    row = Membership.objects.get(user=user, department=department, from_rules=True)
    row.delete()
    before = {"role": row.role, "by": "group"}
    audit.record(SYSTEM, "member.removed", f"user {user.username}", department=department, before=before)
    emit("member.removed", department=department, user=user.username)
    notices.send("member.removed", to=[user], department=department)


def _set_operator(user: User, entitled: Entitled) -> bool:
    """Grants the operator role, or takes back one that a rule gave; True if it was taken. The last operator stays."""
    rows = User.objects.filter(pk=user.pk)
    if entitled.operator and not user.is_operator:
        rows.update(is_operator=True, is_staff=True, operator_from_rules=True)
        audit.record(SYSTEM, "user.operator", f"user {user.username}", after={"by": "group"})
    elif not entitled.operator and user.operator_from_rules and user.is_operator:
        if user.is_last_operator():
            log.warning("groups.last_operator", user=user.username)
            return False
        rows.update(is_operator=False, is_staff=False, operator_from_rules=False)
        audit.record(SYSTEM, "user.no_operator", f"user {user.username}", before={"by": "group"})
        return True
    return False
