"""`group_rules/`: which group of an identity provider gives which role. For operators."""

from __future__ import annotations

from typing import Any

from django.urls import reverse
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from portal.access import NotVisible
from portal.api.base import ApiView, Strict
from portal.api.departments import parent_named
from portal.api.idempotency import idempotent
from portal.api.schema import CONFIRM, DRY_RUN, IDEMPOTENCY_KEY, page_of
from portal.errors import N_, Invalid
from portal.infra import confirm
from portal.models import GroupRule, Role
from portal.sign_in import group_rules
from portal.text.numbers import natural

ROLES = [(name, name) for name in [*Role.values, "operator"]]


class GroupRuleOut(serializers.ModelSerializer[GroupRule]):
    id = serializers.IntegerField(source="pk")
    department = serializers.SlugRelatedField[Any](slug_field="slug", read_only=True, allow_null=True)
    role = serializers.SerializerMethodField()

    class Meta:
        model = GroupRule
        fields = ["id", "provider", "pattern", "department", "role"]

    def get_role(self, rule: GroupRule) -> str:
        return rule.role if rule.department_id is not None else "operator"


class GroupRuleIn(Strict):
    provider = serializers.CharField(max_length=30)
    pattern = serializers.CharField(max_length=255, help_text="The group's exact name, or with * for any characters.")
    role = serializers.ChoiceField(ROLES)
    department = serializers.CharField(max_length=40, allow_null=True, default=None, help_text="Not for operators.")


class RoleEffectOut(serializers.Serializer[Any]):
    department = serializers.CharField()
    now = serializers.CharField(help_text="The role now; empty: none.")
    then = serializers.CharField(help_text="The role with the rules; empty: none.")
    by_hand = serializers.BooleanField(help_text="Given by hand: no rule changes it.")


class GroupEffectOut(serializers.Serializer[Any]):
    username = serializers.CharField()
    groups = serializers.ListField(child=serializers.CharField())
    roles = RoleEffectOut(many=True)
    operator_now = serializers.BooleanField()
    operator_then = serializers.BooleanField()


class GroupEffectsOut(serializers.Serializer[Any]):
    effects = GroupEffectOut(many=True)


def effects_json(effects: list[group_rules.Effect]) -> dict[str, Any]:
    """The people for whom the rules would change something, and what."""
    return {
        "effects": [
            {
                "username": each.user.username,
                "groups": list(each.groups),
                "roles": [
                    {"department": where.slug, "now": now, "then": then, "by_hand": by_hand}
                    for where, now, then, by_hand in each.roles
                ],
                "operator_now": each.operator[0],
                "operator_then": each.operator[1],
            }
            for each in effects
            if each.changes
        ]
    }


class GroupRules(ApiView):
    ordering = "pk"
    dry_runs = frozenset({"post"})

    @extend_schema(operation_id="group_rules_list", responses=page_of(GroupRuleOut))
    def get(self, request: Request) -> Response:
        self.actor.require_operator()
        return self.page(GroupRule.objects.select_related("department"), GroupRuleOut)

    @extend_schema(
        operation_id="group_rules_create",
        request=GroupRuleIn,
        responses={201: GroupRuleOut, 200: GroupEffectsOut},
        parameters=[DRY_RUN, IDEMPOTENCY_KEY],
    )
    @idempotent
    def post(self, request: Request) -> Response:
        self.actor.require_operator()
        values = self.read(GroupRuleIn)
        slug, role = values["department"], values["role"]
        if (role == "operator") != (slug is None):
            raise Invalid(N_("A role needs a department; operators have none."), field="department")
        rule = group_rules.checked(
            provider=values["provider"], pattern=values["pattern"], department=parent_named(slug), role=role
        )
        if self.flag("dry_run"):
            return Response(effects_json(group_rules.effects([*GroupRule.objects.all(), rule])))
        group_rules.add_rule(actor=self.actor, rule=rule)
        location = reverse("api:group-rule", args=[rule.pk])
        return Response(GroupRuleOut(rule).data, status=201, headers={"Location": location})


class GroupRuleView(ApiView):
    dry_runs = frozenset({"delete"})

    def rule(self, text: str) -> GroupRule:
        self.actor.require_operator()
        rule = GroupRule.objects.select_related("department").filter(pk=natural(text) or 0).first()
        if rule is None:
            raise NotVisible
        return rule

    @extend_schema(operation_id="group_rules_read", responses=GroupRuleOut)
    def get(self, request: Request, rule: str) -> Response:
        return Response(GroupRuleOut(self.rule(rule)).data)

    @extend_schema(
        operation_id="group_rules_remove",
        responses={204: None, 200: GroupEffectsOut},
        parameters=[DRY_RUN, CONFIRM],
    )
    def delete(self, request: Request, rule: str) -> Response:
        row = self.rule(rule)
        if self.flag("dry_run"):
            return Response(effects_json(group_rules.effects(GroupRule.objects.exclude(pk=row.pk))))
        confirm.require(group_rules.breaks_of_removal(row), self.confirmed)
        group_rules.remove_rule(actor=self.actor, rule=row)
        return Response(status=204)
