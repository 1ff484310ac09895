"""The tree of departments."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from portal.models import Department


def with_above(department: Department) -> list[int]:
    """Ids of the department and of all above it; one query."""
    parents = dict(Department.objects.values_list("pk", "parent_id"))
    ids = [department.pk]
    while above := parents[ids[-1]]:
        ids.append(above)
    return ids


def upwards(tree: Mapping[int, Department], pk: int | None) -> Iterator[Department]:
    """The department and those above it, itself first. `tree`: all departments by id."""
    while pk is not None:
        yield tree[pk]
        pk = tree[pk].parent_id
