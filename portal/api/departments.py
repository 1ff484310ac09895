"""`departments/` and `departments/{d}/members/`: the tree of departments, and their members."""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet
from django.urls import reverse
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from portal.access import Actor, NotVisible, Right, department_for
from portal.accounts import departments as actions
from portal.accounts import members
from portal.api.base import ApiView, Strict
from portal.api.idempotency import idempotent
from portal.api.schema import CONFIRM, IDEMPOTENCY_KEY, IF_MATCH, page_of
from portal.errors import N_, Invalid
from portal.models import Department, Membership, Role


class Tree:
    """All departments, read once for a response."""

    def __init__(self) -> None:
        self.rows = {
            pk: (slug, parent) for pk, slug, parent in Department.objects.values_list("pk", "slug", "parent_id")
        }
        self.inner = {parent for _slug, parent in self.rows.values() if parent is not None}

    def path(self, pk: int | None) -> list[str]:
        slugs: list[str] = []
        while pk is not None:
            slug, pk = self.rows[pk]
            slugs.insert(0, slug)
        return slugs


class DepartmentOut(serializers.ModelSerializer[Department]):
    id = serializers.CharField(source="slug")
    parent = serializers.SlugRelatedField[Any](  # type: ignore[assignment]
        slug_field="slug", read_only=True, allow_null=True
    )
    path = serializers.SerializerMethodField(help_text="The departments it belongs to, from the top, itself last.")
    is_leaf = serializers.SerializerMethodField(help_text="Only departments without teams have workloads.")
    role = serializers.SerializerMethodField(help_text="Yours; empty for an operator without a membership.")
    rights = serializers.SerializerMethodField(help_text="What you may do here, as token scopes.")

    class Meta:
        model = Department
        fields = [
            "id",
            "name",
            "parent",
            "path",
            "is_leaf",
            "weight",
            "paused",
            "unrestricted",
            "version",
            "role",
            "rights",
        ]

    @property
    def actor(self) -> Actor:
        actor: Actor = self.context["actor"]
        return actor

    @property
    def tree(self) -> Tree:
        context: Any = self.context
        if "tree" not in context:
            context["tree"] = Tree()
        tree: Tree = context["tree"]
        return tree

    def get_path(self, department: Department) -> list[str]:
        return self.tree.path(department.pk)

    def get_is_leaf(self, department: Department) -> bool:
        return department.pk not in self.tree.inner

    def get_role(self, department: Department) -> str:
        return self.actor.roles.get(department.pk, "")

    def get_rights(self, department: Department) -> list[str]:
        return [right.value for right in Right if self.actor.may(right, department)]


class DepartmentIn(Strict):
    id = serializers.CharField(max_length=40)
    name = serializers.CharField(max_length=100)
    parent = serializers.CharField(allow_null=True, default=None)  # type: ignore[assignment]
    weight = serializers.IntegerField(min_value=1, max_value=1_000_000, default=1)


class DepartmentChange(Strict):
    name = serializers.CharField(max_length=100, required=False)
    parent = serializers.CharField(allow_null=True, required=False)  # type: ignore[assignment]
    weight = serializers.IntegerField(min_value=1, max_value=1_000_000, required=False)
    paused = serializers.BooleanField(required=False, help_text="Nothing new starts; send it alone.")
    unrestricted = serializers.BooleanField(
        required=False, help_text="Its work may lock memory (setup.ipc_lock), in a second namespace on Kubernetes."
    )


def parent_named(slug: str | None) -> Department | None:
    if slug is None:
        return None
    parent = Department.objects.filter(slug=slug).first()
    if parent is None:
        raise Invalid(N_("There is no department %(parent)s."), field="parent", parent=slug)
    return parent


class Departments(ApiView):
    ordering = "slug"

    @extend_schema(
        operation_id="departments_list",
        responses=page_of(DepartmentOut),
        parameters=[
            OpenApiParameter("parent", str, description="Only the teams directly below this department, by its `id`.")
        ],
    )
    def get(self, request: Request) -> Response:
        rows = self.actor.departments.select_related("parent")
        if self.text("parent"):
            rows = rows.filter(parent__slug=self.text("parent"))
        return self.page(rows, DepartmentOut)

    @extend_schema(
        operation_id="departments_create",
        request=DepartmentIn,
        responses={201: DepartmentOut},
        parameters=[IDEMPOTENCY_KEY],
    )
    @idempotent
    def post(self, request: Request) -> Response:
        self.actor.require_operator()
        values = self.read(DepartmentIn)
        parent = parent_named(values["parent"])
        try:
            made = actions.create_department(
                actor=self.actor, slug=values["id"], name=values["name"], parent=parent, weight=values["weight"]
            )
        except Invalid as error:
            error.field = "id" if error.field == "slug" else error.field  # the API's name of the field
            raise
        return Response(
            DepartmentOut(made, context={"actor": self.actor}).data,
            status=201,
            headers={"Location": reverse("api:department", args=[made.slug]), "ETag": f'"{made.version}"'},
        )


class DepartmentView(ApiView):
    def answer(self, department: Department) -> Response:
        data = DepartmentOut(department, context={"actor": self.actor}).data
        return Response(data, headers={"ETag": f'"{department.version}"'})

    @extend_schema(operation_id="departments_read", responses=DepartmentOut)
    def get(self, request: Request, department: str) -> Response:
        return self.answer(department_for(self.actor, department))

    @extend_schema(
        operation_id="departments_change",
        request=DepartmentChange,
        responses=DepartmentOut,
        parameters=[IF_MATCH, CONFIRM],
    )
    def patch(self, request: Request, department: str) -> Response:
        where = department_for(self.actor, department, Right.STEER)
        values = self.read(DepartmentChange)
        version = self.version() or 0
        if "paused" in values:
            if len(values) > 1:
                raise Invalid(N_("Send paused on its own: it is a separate change."), field="paused")
            if values["paused"]:
                actions.require_confirmed(
                    actor=self.actor, department=where, given=self.confirmed, expected_version=version
                )
            changed = actions.set_paused(
                actor=self.actor, department=where, paused=values["paused"], expected_version=version
            )
            return self.answer(changed)
        self.actor.require(Right.OPERATE, where)
        parent = parent_named(values["parent"]) if "parent" in values else where.parent
        weight = values.get("weight", where.weight)
        actions.require_confirmed(
            actor=self.actor, department=where, given=self.confirmed, expected_version=version, parent=parent, weight=weight
        )  # fmt: skip
        changed = actions.change_department(
            actor=self.actor,
            department=where,
            name=values.get("name", where.name),
            weight=weight,
            parent=parent,
            unrestricted=values.get("unrestricted"),
            expected_version=version,
        )
        return self.answer(changed)

    @extend_schema(operation_id="departments_remove", responses={204: None})
    def delete(self, request: Request, department: str) -> Response:
        where = department_for(self.actor, department, Right.OPERATE)
        actions.remove_department(actor=self.actor, department=where)
        return Response(status=204)


class MemberOut(serializers.ModelSerializer[Membership]):
    username = serializers.CharField(source="user.username")
    name = serializers.CharField(source="user.label")
    since = serializers.DateTimeField(source="created_at")
    role = serializers.ChoiceField(Role.values)

    class Meta:
        model = Membership
        fields = ["username", "name", "role", "since"]


class MemberIn(Strict):
    username = serializers.CharField(max_length=150)
    role = serializers.ChoiceField(Role.values, default=Role.MEMBER.value)


class MemberChange(Strict):
    role = serializers.ChoiceField(Role.values)


def people_of(department: Department) -> QuerySet[Membership]:
    """The members who are people; service accounts have their own list."""
    rows = Membership.objects.filter(department=department, user__service_of=None)
    return rows.select_related("user", "department")


class Members(ApiView):
    ordering = "user__username"

    @extend_schema(operation_id="members_list", responses=page_of(MemberOut))
    def get(self, request: Request, department: str) -> Response:
        return self.page(people_of(department_for(self.actor, department)), MemberOut)

    @extend_schema(
        operation_id="members_add", request=MemberIn, responses={201: MemberOut}, parameters=[IDEMPOTENCY_KEY]
    )
    @idempotent
    def post(self, request: Request, department: str) -> Response:
        where = department_for(self.actor, department, Right.STEER)
        added = members.add_member(actor=self.actor, department=where, **self.read(MemberIn))
        location = reverse("api:member", args=[where.slug, added.user.username])
        return Response(MemberOut(added).data, status=201, headers={"Location": location})


class MemberView(ApiView):
    def member(self, department: str, username: str, right: Right = Right.SEE) -> Membership:
        rows = people_of(department_for(self.actor, department, right))
        membership = rows.filter(user__username=username).first()
        if membership is None:
            raise NotVisible
        return membership

    @extend_schema(operation_id="members_read", responses=MemberOut)
    def get(self, request: Request, department: str, username: str) -> Response:
        return Response(MemberOut(self.member(department, username)).data)

    @extend_schema(operation_id="members_change", request=MemberChange, responses=MemberOut)
    def patch(self, request: Request, department: str, username: str) -> Response:
        member = self.member(department, username, Right.STEER)
        changed = members.change_role(actor=self.actor, membership=member, **self.read(MemberChange))
        return Response(MemberOut(changed).data)

    @extend_schema(operation_id="members_remove", responses={204: None})
    def delete(self, request: Request, department: str, username: str) -> Response:
        members.remove_member(actor=self.actor, membership=self.member(department, username, Right.STEER))
        return Response(status=204)
