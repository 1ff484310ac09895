"""The tree of departments."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from portal.models import Department


def with_above(department: Department) -> list[int]:
    """Ids of the department and of all above it; one query."""
    return [row.pk for row in upwards(Department.objects.only("parent_id").in_bulk(), department.pk)]


def upwards(tree: Mapping[int, Department], pk: int | None) -> Iterator[Department]:
    """The department and those above it, itself first. `tree`: all departments by id."""
    while pk is not None:
        yield tree[pk]
        pk = tree[pk].parent_id
