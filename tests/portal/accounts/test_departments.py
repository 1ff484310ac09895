"""Creating, moving and pausing departments."""

from __future__ import annotations

import threading

import pytest
from django.db import connection

from portal.access import Actor, Forbidden, NotVisible
from portal.accounts import departments
from portal.errors import Invalid
from portal.models import AuditEntry, Department, Event, Role
from tests import builders as make

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def operator():
    return Actor(make.user("root", is_operator=True))


def test_creating_a_department_writes_an_audit_entry(operator):
    vision = departments.create_department(actor=operator, slug="vision", name=" Vision ", weight=2)
    team = departments.create_department(actor=operator, slug="vision-seg", name="Segmentation", parent=vision)
    assert (vision.name, team.parent) == ("Vision", vision)
    entry = AuditEntry.objects.get(target="department vision-seg")
    assert entry.after == {
        "name": "Segmentation", "parent": "vision", "weight": 1, "paused": False, "unrestricted": False,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"slug": "Vision"}, "slug"),
        ({"slug": "-v"}, "slug"),
        ({"slug": "taken"}, "slug"),
        ({"name": "  "}, "name"),
        ({"weight": 0}, "weight"),
    ],
)
def test_invalid_department_is_refused_with_the_field_at_fault(operator, fields, field):
    make.department("taken")
    with pytest.raises(Invalid) as refused:
        departments.create_department(actor=operator, **{"slug": "new", "name": "New", **fields})
    assert refused.value.field == field
    assert Department.objects.count() == 1


@pytest.mark.parametrize(
    ("existing", "new"),
    [
        ("Vision", "Vision"), ("Vision", " vision "), ("Vision", "ＶISION"), ("Computer Vision", "computer  vision"),
        ("计算机视觉", "计算机视觉"), ("部门1", "部门１"), ("口", "ロ"), ("Straße", "STRASSE"), ("Café", "Cafe\u0301"),
    ],
)  # fmt: skip
def test_no_two_departments_have_names_that_look_the_same(operator, existing, new):
    top, other = make.department("top"), make.department("other")
    taken = departments.create_department(actor=operator, slug="taken", name=existing, parent=top)
    with pytest.raises(Invalid) as creation:
        departments.create_department(actor=operator, slug="new", name=new, parent=other)
    change = {"actor": operator, "department": other, "weight": 1, "parent": None, "expected_version": 1}
    with pytest.raises(Invalid) as renaming:
        departments.change_department(name=new, **change)
    assert {creation.value.field, renaming.value.field} == {"name"}
    again = {"actor": operator, "department": taken, "weight": 2, "parent": top, "expected_version": 1}
    assert departments.change_department(name=new, **again).weight == 2  # its own name in another spelling


def test_concurrent_creations_with_the_same_name_create_one_department(operator):
    make.department("there")
    answers: list[str] = []

    def create(slug: str) -> None:
        try:
            departments.create_department(actor=operator, slug=slug, name="Same")
            answers.append("created")
        except Invalid as refused:
            answers.append(refused.field)
        finally:
            connection.close()

    threads = [threading.Thread(target=create, args=(slug,)) for slug in ("one", "two")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert sorted(answers) == ["created", "name"]


def test_department_with_queued_or_running_workloads_cannot_get_teams(operator):
    vision = make.department("vision")
    make.claim(vision, make.pool(), workload="w1")
    with pytest.raises(departments.HasWork, match="Vision has 1 queued or running workload") as refused:
        departments.create_department(actor=operator, slug="team", name="Team", parent=vision)
    assert refused.value.detail == str(refused.value)
    assert "2 queued or running workloads" in departments.HasWork(department="x", count=2).detail


def test_department_tree_cannot_have_loops(operator):
    top = make.department("top")
    middle = make.department("middle", parent=top)
    leaf = make.department("leaf", parent=middle)
    for parent, message in (
        (leaf, "Leaf is part of Top and cannot be its parent"),
        (top, "Top cannot be its own parent"),
    ):
        with pytest.raises(Invalid) as refused:
            departments.change_department(
                actor=operator, department=top, name="Top", weight=1, parent=parent, expected_version=1
            )
        assert refused.value.field == "parent"
        assert refused.value.detail.startswith(message)


def test_second_edit_of_the_same_version_is_refused_as_stale(operator):
    vision = make.department("vision")
    change = {"actor": operator, "department": vision, "weight": 1, "parent": None, "expected_version": 1}
    assert departments.change_department(name="First", **change).version == 2
    with pytest.raises(departments.DepartmentStale):
        departments.change_department(name="Second", **change)
    assert Department.objects.get().name == "First"
    assert AuditEntry.objects.count() == 1


def test_owner_can_pause_and_resume_their_department(operator):
    vision = make.department("vision")
    owner, member = Actor(make.member(vision, Role.OWNER)), Actor(make.member(vision))
    with pytest.raises(Forbidden):
        departments.set_paused(actor=member, department=vision, paused=True)
    assert departments.set_paused(actor=owner, department=vision, paused=True).paused
    departments.set_paused(actor=owner, department=vision, paused=True)
    assert not departments.set_paused(actor=operator, department=vision, paused=False).paused
    assert list(AuditEntry.objects.order_by("id").values_list("action", flat=True)) == [
        "department.paused",
        "department.resumed",
    ]
    assert Event.objects.filter(kind="department.changed").count() == 2


def test_only_operators_can_create_departments():
    vision = make.department("vision")
    with pytest.raises(NotVisible):
        departments.create_department(actor=Actor(make.member(vision, Role.OWNER)), slug="x", name="X")
