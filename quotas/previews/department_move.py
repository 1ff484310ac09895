"""Preview of moving a department or changing its weight. Read only."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from django.utils import timezone
from django.utils.translation import gettext as _

from portal.access import Actor, Right
from portal.accounts.departments import check_move, check_weight
from portal.infra.confirm import Break
from portal.models import Department
from portal.text.words import amount
from quotas.engine import types as e
from quotas.engine.quota_tree import usage_of
from quotas.engine.what_if import what_if
from quotas.models import Budget, Pool, PoolGroup
from quotas.planning.snapshot import load_snapshot
from quotas.previews.budgets import with_budgets
from quotas.previews.effects import Preview, effect_of, preview_of


def preview_department(*, actor: Actor, department: Department, parent: Department | None, weight: int) -> Preview:
    """Who would be recalled, start or wait at once, and the department's new ceiling. For operators.

    Raises NotVisible; Invalid (a parent below the department, or the weight); HasWork (the new parent has workloads).
    """
    actor.require_operator()
    check_move(department, parent)
    check_weight(weight)
    now = timezone.now()
    budgets = list(Budget.objects.select_related("department", "pool", "person"))
    pairs = []
    for group in PoolGroup.objects.filter(pools__quotas__isnull=False).distinct().order_by("pk"):
        snapshot = load_snapshot(group, now=now)
        moved = with_place(snapshot, department, parent, weight)
        pairs.append((snapshot, with_budgets(moved, budgets, _moved(department, parent), now=now)))
    ceilings = [sentence for pair in pairs for sentence in limits(*pair, department)]
    lines = [*_owners(department, parent), *(line for line, _breaks in ceilings)]
    breaks = [each for _line, each in ceilings if each is not None]
    return preview_of(effect_of(actor, *(what_if(before, after) for before, after in pairs)), lines, breaks)


def preview_pause(*, actor: Actor, department: Department) -> Preview:
    """Which claims would wait although they are about to start or have a promised time. Raises Forbidden."""
    actor.require(Right.STEER, department)
    now = timezone.now()
    inside = set(Department.objects.filter(pk__in=department.with_teams()).values_list("slug", flat=True))
    pairs = []
    for group in PoolGroup.objects.filter(pools__claims__department__slug__in=inside).distinct().order_by("pk"):
        snapshot = load_snapshot(group, now=now)
        others = (replace(row, paused=True) if row.id in inside else row for row in snapshot.departments)
        pairs.append((snapshot, replace(snapshot, departments=tuple(others))))
    return preview_of(effect_of(actor, *(what_if(before, after) for before, after in pairs)))


def breaks_of_change(
    *, actor: Actor, department: Department, parent: Department | None, weight: int
) -> Sequence[Break]:
    """What a new parent or weight breaks (settings.DEPARTMENT_BREAKS)."""
    if (parent.pk if parent else None, weight) == (department.parent_id, department.weight):
        return ()
    return preview_department(actor=actor, department=department, parent=parent, weight=weight).breaks


def breaks_of_pause(*, actor: Actor, department: Department) -> Sequence[Break]:
    """What a pause breaks (settings.PAUSE_BREAKS)."""
    return () if department.paused else preview_pause(actor=actor, department=department).breaks


def with_place(snapshot: e.Snapshot, department: Department, parent: Department | None, weight: int) -> e.Snapshot:
    """The snapshot with the department and its subtree under another parent (None: at the top)."""
    above = e.DepartmentId(parent.slug) if parent else None
    rows = (
        replace(row, parent=above, weight=weight) if row.id == department.slug else row for row in snapshot.departments
    )
    return replace(snapshot, departments=tuple(rows))


def _moved(department: Department, parent: Department | None) -> list[Department]:
    """All departments after the move: budgets restrict and count the departments below theirs."""
    rows = list(Department.objects.all())
    for row in rows:
        if row.pk == department.pk:
            row.parent = parent
    return rows


def _owners(department: Department, parent: Department | None) -> Iterator[str]:
    """Sentences about the departments whose owners would begin or cease to manage this one."""
    if parent is not None and parent.pk != department.parent_id:
        yield _("The quota owners of %(parent)s would also manage it.") % {"parent": parent.name}
    if department.parent is not None and (parent is None or parent.pk != department.parent_id):
        yield _("The quota owners of %(parent)s would no longer manage it.") % {"parent": department.parent.name}


def limits(before: e.Snapshot, after: e.Snapshot, department: Department) -> Iterator[tuple[str, Break | None]]:
    """Sentences about changed ceilings, with a break where the department already uses more than its new one."""
    id = e.DepartmentId(department.slug)
    for pool in Pool.objects.filter(slug__in=[pool.id for pool in before.pools]):
        old, new = usage_of(before, e.PoolId(pool.slug)), usage_of(after, e.PoolId(pool.slug))
        if old[id].ceiling != new[id].ceiling:
            text = _("It could use at most %(then)s of %(pool)s; now it is %(now)s.")
            most = {"now": amount(old[id].ceiling, pool), "then": amount(new[id].ceiling, pool)}
            yield text % (most | {"pool": pool.name}), None
        over = min(-new.available(id), new[id].usage - new[id].guaranteed)
        if over > 0 and old.available(id) >= 0:
            text = _(
                "It uses %(over)s more of %(pool)s than its new position allows: no workload is stopped, but "
                "no new one starts."
            )
            sentence = text % {"pool": pool.name, "over": amount(over, pool)}
            yield sentence, Break("over", sentence, (pool.slug, over))
