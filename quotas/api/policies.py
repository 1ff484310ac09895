"""`…/policy/`: which work may be preempted for which, set for a pool, a department, or a department in one pool."""

from __future__ import annotations

from typing import Any, get_args

from drf_spectacular.utils import extend_schema, extend_schema_view
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from portal.access import department_for
from portal.api.base import ApiView, Strict
from portal.api.schema import CONFIRM, DRY_RUN, IF_MATCH, either
from portal.infra import confirm
from portal.infra.versions import check_fresh
from quotas.api.quotas import PreviewOut, pool_for, preview_answer
from quotas.engine import types as e
from quotas.engine.snapshot_json import policy_from_json
from quotas.previews.policy import preview_policy
from quotas.rules.policies import Scope, policy_json, set_policy

PRIORITY = 2**31 - 1


class BorrowPreemptShape(Strict):
    max_priority = serializers.IntegerField(
        min_value=-PRIORITY, max_value=PRIORITY, allow_null=True, help_text="null: any lower priority"
    )


class PolicyShape(Strict):
    within = serializers.ChoiceField(get_args(e.Within), help_text="Work of its own department.")
    reclaim = serializers.ChoiceField(get_args(e.Reclaim), help_text="Borrowers' work, inside the guarantee.")
    borrow_preempt = BorrowPreemptShape(
        allow_null=True, help_text="Other borrowers' work, while it borrows; null: none."
    )


class PolicyOut(serializers.Serializer[Any]):
    policy = PolicyShape(allow_null=True, help_text="What is set here; null: nothing, the next wider one counts.")
    effective = PolicyShape()
    set_at = serializers.ChoiceField(
        ["quota", "department", "pool", "default"], help_text="Where the effective one is set."
    )
    version = serializers.IntegerField(help_text="Of the pool, department or quota: the ETag.")


class PolicyView(ApiView):
    """Members can read the policies of their departments, and everybody those of pools. Operators set them."""

    dry_runs = frozenset({"put", "delete"})

    def scope(self, department: str, pool: str) -> Scope:
        where = department_for(self.actor, department) if department else None
        return Scope(where, pool_for(pool) if pool else None)

    def answer(self, scope: Scope) -> Response:
        row = scope.carrier()
        effective, source = scope.effective()
        data = {
            "policy": policy_json(policy_from_json(row.policy)) if row.policy else None,
            "effective": policy_json(effective),
            "set_at": source,
            "version": row.version,
        }
        return Response(PolicyOut(data).data, headers={"ETag": f'"{row.version}"'})

    def change(self, scope: Scope, policy: e.Policy | None) -> Response:
        self.actor.require_operator()
        version = self.version() or 0
        check_fresh(scope.carrier().version, version)
        foreseen = preview_policy(actor=self.actor, scope=scope, policy=policy)
        if self.flag("dry_run"):
            return preview_answer(foreseen, scope.pool)
        confirm.require(foreseen.breaks, self.confirmed)
        set_policy(actor=self.actor, scope=scope, policy=policy, expected_version=version)
        return self.answer(scope)

    @extend_schema(responses=PolicyOut)
    def get(self, request: Request, department: str = "", pool: str = "") -> Response:
        return self.answer(self.scope(department, pool))

    @extend_schema(
        request=PolicyShape,
        responses=either(PolicyOut, PreviewOut),
        parameters=[IF_MATCH, DRY_RUN, CONFIRM],
    )
    def put(self, request: Request, department: str = "", pool: str = "") -> Response:
        scope = self.scope(department, pool)
        self.actor.require_operator()
        return self.change(scope, policy_from_json(_present(self.read(PolicyShape))))

    @extend_schema(
        responses=either(PolicyOut, PreviewOut),
        parameters=[IF_MATCH, DRY_RUN, CONFIRM],
    )
    def delete(self, request: Request, department: str = "", pool: str = "") -> Response:
        """Removes the policy set here; that of the next wider scope applies, as `set_at` in the answer says."""
        return self.change(self.scope(department, pool), None)


def _named(name: str) -> Any:
    operations = {"get": "read", "put": "set", "delete": "unset"}
    return extend_schema_view(
        **{m: extend_schema(operation_id=f"{name}_policy_{verb}") for m, verb in operations.items()}
    )


@_named("pool")
class PoolPolicy(PolicyView):
    pass


@_named("department")
class DepartmentPolicy(PolicyView):
    pass


@_named("quota")
class QuotaPolicy(PolicyView):
    pass


def _present(values: dict[str, Any]) -> dict[str, Any]:
    return {name: dict(value) if isinstance(value, dict) else value for name, value in values.items()}
