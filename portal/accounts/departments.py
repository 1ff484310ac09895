"""The tree of departments: creating, renaming, moving, pausing."""

from __future__ import annotations

import re
from typing import Any

from django.conf import settings
from django.db.models import F
from django.utils.module_loading import import_string
from django.utils.translation import gettext as _

from portal import audit, names
from portal.access import Actor, Right
from portal.errors import N_, Invalid, Problem, ngettext_noop
from portal.infra import confirm
from portal.infra.locks import durable
from portal.models import Department
from portal.notify.events import emit

SLUG = re.compile(r"[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?")  # used as a label of Kubernetes objects and in namespaces
RESERVED_END = "-unrestricted"  # of a department's second namespace (workloads.clusters.run_spec.namespace_of)
RESERVED = frozenset({"default", "kube-system", "kube-public", "kube-node-lease", "system", "unrestricted"})


class DepartmentStale(Problem):
    status = 412
    code = "stale"
    message = N_("%(department)s was changed by somebody else in the meantime. Review it, then save again.")


class DepartmentInUse(Problem):
    code = "in_use"
    message = N_("%(department)s has teams, quota or history and cannot be deleted. Pause it instead.")


class HasWork(Problem):
    code = "department_has_work"
    message, plural = ngettext_noop(
        "%(department)s has %(count)s queued or running workload. Only departments without teams can have workloads.",
        "%(department)s has %(count)s queued or running workloads. Only departments without teams can have workloads.",
    )


def create_department(
    *, actor: Actor, slug: str, name: str, parent: Department | None = None, weight: int = 1
) -> Department:
    """Creates a department below `parent` (None: at the top). For operators.

    Raises Invalid (slug, name, weight), HasWork (the parent has workloads of its own), NotVisible for anybody but operators.
    """
    actor.require_operator()
    name = _checked(name, weight)
    check_slug(slug)
    with durable():
        _lock_tree()
        if Department.objects.filter(slug=slug).exists():
            raise Invalid(N_("Department %(slug)s already exists."), field="slug", slug=slug)
        if parent is not None:
            _require_no_work(parent)
        _require_own_name(name)
        made = Department.objects.create(slug=slug, name=name, parent=parent, weight=weight)
        audit.record(actor, "department.created", f"department {slug}", department=made, after=_audit_values(made))
        emit("department.changed", department=made)
    return made


def change_department(
    *,
    actor: Actor,
    department: Department,
    name: str,
    weight: int,
    parent: Department | None,
    expected_version: int,
    unrestricted: bool | None = None,
) -> Department:
    """Changes name, weight, place in the tree and whether pods may lock memory (`unrestricted`, for RDMA; None:
    unchanged).

    Raises DepartmentStale, Invalid (name, weight, parent), HasWork, NotVisible for anybody but operators.
    """
    actor.require_operator()
    name = _checked(name, weight)
    with durable():
        if department.parent_id != (parent.pk if parent else None) or department.name != name:
            _lock_tree()
        now = Department.objects.select_for_update(no_key=True).get(pk=department.pk)
        check_move(now, parent)
        if name != now.name:
            _require_own_name(name, beside=now.pk)
        before = _audit_values(now)
        changed = Department.objects.filter(pk=now.pk, version=expected_version).update(
            name=name, weight=weight, parent=parent, version=F("version") + 1,
            unrestricted=now.unrestricted if unrestricted is None else unrestricted,
        )  # fmt: skip
        if not changed:
            raise DepartmentStale(department=now.name)
        now.refresh_from_db()
        _record(actor, "department.changed", now, before)
    return now


def require_confirmed(
    *, actor: Actor, department: Department, given: str, expected_version: int | None, **change: Any
) -> None:
    """Requires a confirmation if moving (`parent`, `weight`) or pausing the department takes something from somebody.

    Call it before `change_department` and `set_paused`. Raises Unconfirmed, and whatever the change itself would
    raise.
    """
    if expected_version is not None and department.version != expected_version:
        return  # the change itself refuses it
    breaks_of = import_string(settings.DEPARTMENT_BREAKS if change else settings.PAUSE_BREAKS)
    name = {"name": department.name}
    confirm.require(
        breaks_of(actor=actor, department=department, **change), given,
        asks=(_("Change %(name)s?") if change else _("Pause %(name)s?")) % name,
        action=_("Change anyway") if change else _("Pause anyway"),
    )  # fmt: skip


def set_paused(
    *, actor: Actor, department: Department, paused: bool, expected_version: int | None = None
) -> Department:
    """Pauses or resumes a department: while paused nothing new starts, and what runs goes on.

    Raises DepartmentStale, Forbidden, NotVisible.
    """
    actor.require(Right.STEER, department)
    with durable():
        now = Department.objects.select_for_update(no_key=True).get(pk=department.pk)
        if expected_version is not None and now.version != expected_version:
            raise DepartmentStale(department=now.name)
        if now.paused == paused:
            return now
        before = _audit_values(now)
        Department.objects.filter(pk=now.pk).update(paused=paused, version=F("version") + 1)
        now.refresh_from_db()
        _record(actor, "department.paused" if paused else "department.resumed", now, before)
    return now


def remove_department(*, actor: Actor, department: Department) -> None:
    """Deletes a department that has never been used; any other can only be paused. Raises DepartmentInUse,
    NotVisible."""
    actor.require_operator()
    with durable():
        if department.children.exists() or department.quotas.exists() or department.claims.exists():
            raise DepartmentInUse(department=department.name)
        audit.record(actor, "department.removed", f"department {department.slug}", before=_audit_values(department))
        department.delete()


def _record(actor: Actor, action: str, department: Department, before: dict[str, Any]) -> None:
    target = f"department {department.slug}"
    audit.record(actor, action, target, department=department, before=before, after=_audit_values(department))
    emit("department.changed", department=department, version=department.version)


def _audit_values(department: Department) -> dict[str, Any]:
    return {
        "name": department.name,
        "parent": department.parent.slug if department.parent else None,
        "weight": department.weight,
        "paused": department.paused,
        "unrestricted": department.unrestricted,
    }


def _checked(name: str, weight: int) -> str:
    """The name, tidied. Raises Invalid (name, weight)."""
    name = names.checked(name)
    if not name:
        raise Invalid(N_("Enter a name for the department."), field="name")
    check_weight(weight)
    return name


def check_slug(slug: str) -> None:
    """Raises Invalid for a slug that cannot be part of an address and a namespace, or clashes with another
    department's namespace."""
    if not SLUG.fullmatch(slug):
        raise Invalid(N_("Use 1 to 40 lowercase letters, digits and hyphens."), field="slug")
    if slug.endswith(RESERVED_END) or slug in RESERVED:
        raise Invalid(
            N_("%(slug)s is reserved: %(reserved)s and names that end in %(end)s have a special meaning in "
                "the cluster."),
            field="slug", slug=slug, reserved=", ".join(sorted(RESERVED)), end=RESERVED_END,
        )  # fmt: skip


def _require_own_name(name: str, beside: int = 0) -> None:
    """Raises Invalid for a name that another department has, or that looks like it: pages, mails and ledgers show names.

    The caller has locked the tree.
    """
    alike = names.same_looking(name, Department.objects.exclude(pk=beside).values_list("name", flat=True))
    if alike == name:
        raise Invalid(
            N_("Another department is already named %(other)s. Add something that distinguishes them."),
            field="name",
            other=alike,
        )
    if alike:
        raise Invalid(N_("This looks the same as the department %(other)s."), field="name", other=alike)


def check_weight(weight: int) -> None:
    """Raises Invalid."""
    if weight < 1:
        raise Invalid(N_("The weight must be at least 1."), field="weight")


def check_move(department: Department, parent: Department | None) -> None:
    """Raises Invalid if the department would be below itself, HasWork if the new parent has workloads of its own."""
    if parent is not None and department.parent_id != parent.pk:
        _require_no_loop(department, parent)
        _require_no_work(parent)


def _lock_tree() -> None:
    """Locks all departments: two concurrent moves could otherwise form a loop that neither of them sees, and two renames could
    take the same name."""
    list(Department.objects.select_for_update(no_key=True).order_by("pk").values_list("pk", flat=True))


def _require_no_loop(department: Department, parent: Department) -> None:
    if department.pk == parent.pk:
        message = N_("%(department)s cannot be its own parent. Choose another department, or none.")
        raise Invalid(message, field="parent", department=department.name)
    above: Department | None = Department.objects.get(pk=parent.pk)  # the current row, not the caller's copy
    while above is not None:
        if above.pk == department.pk:
            raise Invalid(
                N_(
                    "%(parent)s is part of %(department)s and cannot be its parent. Choose another department, or none."
                ),
                field="parent",
                parent=parent.name,
                department=department.name,
            )
        above = above.parent


def _require_no_work(parent: Department) -> None:
    """Raises HasWork if the department has live workloads: only leaves of the tree may have any."""
    count = parent.claims.exclude(state="released").exclude(workload="").count()
    if count:
        raise HasWork(field="parent", department=parent.name, count=count)
