"""The only way to a department's objects: who may do what, and who sees what.

An Actor is a person, who may act through a token that restricts their rights. Every view starts here: `department_for` returns
a department or refuses, `visible` restricts a queryset to what the actor may see.
What one may not see does not exist (404); what one may see but not do is forbidden, naming the missing role or scope (403).
"""

from __future__ import annotations

import enum
from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

from django.db.models import Model, QuerySet
from django.http import HttpRequest

from portal.errors import N_, Problem
from portal.models import ApiToken, Department, Membership, Role, User
from portal.prepared import Prepared

M = TypeVar("M", bound=Model)
MEMBERSHIPS = Prepared(lambda username: Membership.objects.filter(user__username=username))


class Right(enum.StrEnum):
    """The value of each right is the scope that a token needs for it."""

    SEE = "read"
    SUBMIT = "submit"
    STEER = "quota"  # members, user caps, lend limit, recall, stopping anyone
    MAKE_TOKENS = "tokens"  # creating and revoking one's own, and with STEER those of service accounts
    OPERATE = "admin"


RIGHTS_OF = {
    Role.VIEWER: {Right.SEE, Right.MAKE_TOKENS},
    Role.MEMBER: {Right.SEE, Right.MAKE_TOKENS, Right.SUBMIT},
    Role.OWNER: {Right.SEE, Right.MAKE_TOKENS, Right.SUBMIT, Right.STEER},
}
ROLE_FOR = {
    Right.SEE: "viewer", Right.MAKE_TOKENS: "viewer", Right.SUBMIT: "member", Right.STEER: "owner",
    Right.OPERATE: "operator",
}  # fmt: skip


class NotVisible(Problem):
    status = 404
    code = "not_found"
    message = N_("Not found, or you do not have access.")


class Forbidden(Problem):
    status = 403
    code = "forbidden"
    message = N_("This requires the role %(role)s.")


class ScopeMissing(Forbidden):
    code = "scope_missing"
    message = N_("This token does not have the scope %(scope)s.")


class TokenOfDepartment(Forbidden):
    code = "token_of_department"
    message = N_(
        "This token is valid in %(department)s only. Operations on the whole installation need a "
        "token for the whole installation."
    )


@dataclass(frozen=True)
class Actor:
    """The person or service account on whose behalf something is done. `user` None is the system itself (scheduled
    jobs): it may do everything."""

    user: User | None
    token: ApiToken | None = None
    session: str = ""  # key of the session that the person uses, if any

    @property
    def name(self) -> str:
        return self.user.username if self.user else "system"

    @property
    def label(self) -> str:
        """The person's full name, for display."""
        return self.user.label if self.user else "system"

    @property
    def is_operator(self) -> bool:
        return self.user is None or (self.user.is_active and self.user.is_operator)

    @property
    def bound(self) -> int | None:
        """Id of the only department that the token acts in; None: no token, or one for the whole installation."""
        return self.token.department_id if self.token else None

    @property
    def sees_all(self) -> bool:
        """Whether rows need no filtering by department: for operators, unless a token restricts them."""
        return self.is_operator and self.bound is None and Right.SEE in self.scopes

    @cached_property
    def roles_given(self) -> dict[int, Role]:
        """Department id → role of the person's memberships."""
        if self.user is None:
            return {}
        return {row.department_id: Role(row.role) for row in MEMBERSHIPS.all(self.user.username)}

    @cached_property
    def roles(self) -> dict[int, Role]:
        """Department id → role; an owner is also owner of all departments below."""
        roles = dict(self.roles_given)
        if Role.OWNER in roles.values():
            children = defaultdict(list)
            for pk, parent in Department.objects.values_list("pk", "parent_id"):
                children[parent].append(pk)
            below = [pk for pk, role in roles.items() if role is Role.OWNER]
            while below:
                pk = below.pop()
                roles[pk] = Role.OWNER
                below += children[pk]
        if self.bound is not None:
            roles = {pk: role for pk, role in roles.items() if pk == self.bound}
        return roles

    def rights_in(self, department: Department | int | None) -> set[Right]:
        """The rights the actor has in a department (row or id; None: the whole installation), cut down to the token's
        scopes."""
        pk = department.pk if isinstance(department, Department) else department
        if self.user is not None and not self.user.is_active:
            return set()
        rights = set(RIGHTS_OF[self.roles[pk]]) if pk in self.roles else set()
        if self.is_operator and self.bound in {None, pk}:
            rights = set(Right)
        return rights & self.scopes

    @property
    def scopes(self) -> set[Right]:
        return set(Right) if self.token is None else {Right(scope) for scope in self.token.scopes}

    def may(self, right: Right, department: Department | int | None) -> bool:
        return right in self.rights_in(department)

    def require(self, right: Right, department: Department) -> None:
        """Requires a right in the department. Raises NotVisible, ScopeMissing or Forbidden."""
        rights = self.rights_in(department)
        if right in rights:
            return
        member = self.is_operator or department.pk in self.roles
        if not member or self.bound not in {None, department.pk}:
            raise NotVisible
        if right not in self.scopes:
            raise ScopeMissing(scope=right.value)
        raise Forbidden(role=ROLE_FOR[right])

    def require_operator(self) -> None:
        """Requires the operator's right over the whole installation. Raises NotVisible, TokenOfDepartment, ScopeMissing."""
        if not self.is_operator:
            raise NotVisible
        if self.token is not None and self.token.department is not None:
            raise TokenOfDepartment(department=self.token.department.name)
        if Right.OPERATE not in self.scopes:
            raise ScopeMissing(scope=Right.OPERATE.value)

    def right_over(self, author: User | None) -> Right:
        """The right needed to stop or keep a workload: `submit` for the actor's own, `quota` for anybody else's."""
        own = author is not None and self.user is not None and author.pk == self.user.pk
        return Right.SUBMIT if own else Right.STEER

    def require_own_or_steer(self, department: Department, author: User | None) -> None:
        """Requires the right over a workload of this author. Raises as `require`."""
        self.require(self.right_over(author), department)

    @cached_property
    def seen(self) -> frozenset[int]:
        """Ids of the departments whose boards, workloads, people and logs the actor sees."""
        if self.sees_all:
            return frozenset(Department.objects.values_list("pk", flat=True))
        if Right.SEE not in self.scopes:
            return frozenset()
        if self.is_operator and self.bound is not None:
            return frozenset({self.bound})
        return frozenset(self.roles)

    @property
    def departments(self) -> QuerySet[Department]:
        """The departments of `seen`."""
        return Department.objects.all() if self.sees_all else Department.objects.filter(pk__in=self.seen)

    @cached_property
    def departments_seen(self) -> tuple[Department, ...]:
        """The rows of `departments`, read once."""
        return tuple(self.departments)

    @property
    def owned(self) -> QuerySet[Department]:
        """The departments whose usage by person the actor may see: for owners their own and all below, for operators all."""
        rows = self.departments
        if self.is_operator:
            return rows
        return rows.filter(pk__in=[pk for pk, role in self.roles.items() if role is Role.OWNER])

    @cached_property
    def submits_in(self) -> tuple[Department, ...]:
        """Leaves in which the actor may submit."""
        able = [each for each in self.departments_seen if self.may(Right.SUBMIT, each)]
        parents = set(Department.objects.exclude(parent=None).values_list("parent", flat=True)) if able else set()
        return tuple(each for each in able if each.pk not in parents)


SYSTEM = Actor(None)


def actor_of(request: HttpRequest) -> Actor:
    """The actor of a page or API request; computed once for each request. Raises NotVisible without a login."""
    actor: Actor | None = getattr(request, "_actor", None)
    if actor is None:
        user: Any = request.user
        token = getattr(request, "auth", None)
        token = token if isinstance(token, ApiToken) else None
        session = getattr(request, "session", None)
        key = (session.session_key or "") if session is not None and token is None else ""
        actor = Actor(user if user.is_authenticated else None, token, key)
        if actor.user is None:  # a missing login must not act as the system
            raise NotVisible
        request._actor = actor  # type: ignore[attr-defined]
    return actor


def operator_of(request: HttpRequest) -> Actor:
    """The actor of a page for operators only. Raises NotVisible for everybody else."""
    actor = actor_of(request)
    actor.require_operator()
    return actor


def department_for(actor: Actor, slug: str, right: Right = Right.SEE) -> Department:
    """The department, if the actor has this right in it. Raises NotVisible, ScopeMissing, Forbidden."""
    own = actor.token.department if actor.token else None  # already read with the token
    try:
        department = own if own and own.slug == slug else Department.objects.select_related("parent").get(slug=slug)
    except Department.DoesNotExist:
        raise NotVisible from None
    actor.require(right, department)
    return department


def visible(actor: Actor, queryset: QuerySet[M], path: str = "department") -> QuerySet[M]:
    """The rows of departments the actor sees; `path` is the lookup from the row to its department."""
    if actor.sees_all:
        return queryset
    return queryset.filter(**{f"{path}__in": actor.seen})
