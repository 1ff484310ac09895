"""Every URL of the project, filled with the ids of one world's objects, for the tests of access in test_doors.py."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from allauth.socialaccount.models import SocialAccount
from django.http import HttpResponseBase
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver
from django.utils import timezone

from portal.accounts.bearer_tokens import digest_of
from portal.models import AuditEntry, Department, GroupRule, InboxItem, Invitation, Role, SavedFilter, User, Webhook
from quotas.models import Budget, ClaimState, Decision, PlanPass, Pool, Quarantine, QuotaRequest
from tests import builders as make
from tests.clients import token_of
from workloads import actions
from workloads.models import Attempt, Backtest, IdleExemption, Image, ModeChange, Preset, RequestTemplate, Workload
from workloads.replay.accounting import Outcome
from workloads.replay.figures import figures_of
from workloads.requests import as_api_call

UNSAFE = ("POST", "PUT", "PATCH", "DELETE")
SECRET = "an-invitation-that-nobody-knows"
SIGN_IN = {
    "uidb36": "1", "key": "made-up", "provider": "corp", "provider_id": "keycloak", "organization_slug": "saml", "pk": "1",
    "username": "robot",
}  # fmt: skip


PLACES = {"path": "result.json", "page": "quota-rules", "tag": "workloads"}


@dataclass(frozen=True)
class Door:
    """A URL; `parts` are the names of its variables."""

    path: str
    name: str
    parts: frozenset[str]

    @property
    def is_api(self) -> bool:
        return self.path.startswith("/api/")

    def __str__(self) -> str:
        return self.name or self.path


@dataclass
class World:
    """Department vision with people of every role and one object of every kind, and a person without access to it, who owns
    biology."""

    vision: Department
    people: dict[str, User]
    values: dict[str, str]

    def client(self, name: str) -> Client:
        client = Client(raise_request_exception=False)
        if name != "anonymous":
            client.force_login(self.people[name], backend="django.contrib.auth.backends.ModelBackend")
        return client


def _people(vision: Department, biology: Department) -> dict[str, User]:
    return {
        "viewer": make.member(vision, Role.VIEWER, "viewer"),
        "member": make.member(vision, Role.MEMBER, "member"),
        "owner": make.member(vision, Role.OWNER, "owner"),
        "stranger": make.member(biology, Role.OWNER, "stranger"),
        "operator": make.user("operator", is_operator=True),
        "robot": make.user("robot", service_of=vision),
    }


def build() -> World:
    vision, biology = make.department("vision"), make.department("biology")
    pool = make.pool("a100", cards=4)
    make.quota(vision, pool, 4)
    people = _people(vision, biology)
    workload = workload_of(vision, pool, people["owner"])
    recall = make.claim(vision, pool, 1, ClaimState.HOLDING, pods=0, user=people["owner"])
    decision = decision_of(workload)
    invitation = Invitation.objects.create(
        department=vision, digest=digest_of(SECRET), created_by=people["owner"],
        expires_at=timezone.now() + dt.timedelta(days=1),
    )  # fmt: skip
    node = pool.group.cluster.nodes.get()
    change = ModeChange.objects.create(
        node=node, target={"mode": "whole"}, labels={}, stage="done", finished_at=timezone.now(),
        before={"labels": {}, "drained": False, "sharing": "whole", "instances": {}, "held_back": ""},
    )  # fmt: skip
    preset = Preset.objects.create(slug="small", title="Small", kind="job", pool=pool, image=workload.image)
    item = InboxItem.objects.create(user=people["owner"], kind="workload.finished", department=vision)
    quota_request = QuotaRequest.objects.create(
        department=vision, pool=pool, author=people["owner"], units=4, before=4, why="?"
    )
    token, _secret = token_of(people["owner"], vision)
    linked = SocialAccount.objects.create(user=people["owner"], provider="keycloak", uid="0123")
    rule = GroupRule.objects.create(provider="keycloak", pattern="/gpu/vision", department=vision, role="member")
    values = {
        "department": "vision",
        "pool": "a100",
        "workload": workload.public_id,
        "recall": recall.public_id,
        "decision": decision.public_id,
        "invitation": str(invitation.pk),
        "webhook": str(Webhook.objects.create(department=vision, name="ci", url="https://qyapi.weixin.qq.com/").pk),
        "token": SECRET,
        "secret": SECRET,
        "prefix": token.prefix,
        **SIGN_IN | PLACES,
        "account": str(linked.pk),
        "rule": str(rule.pk),
        "cluster": pool.group.cluster.name,
        "node": str(pool.group.cluster.nodes.get().pk),
        "kind": "jobset",
        "change": change.public_id,
        "quarantine": Quarantine.objects.create(node=node, why="fan", began_by=people["operator"]).public_id,
        "image": str(workload.image_id),
        "preset": str(preset.pk),
        "item": str(item.pk),
        "quota_request": quota_request.public_id,
        "exemption": IdleExemption.objects.create(
            department=vision, workload=workload, why="?", until=timezone.now() + dt.timedelta(days=1)
        ).public_id,
        "saved": saved_of(people["owner"]),
        "template": template_of(workload).public_id,
        "backtest": backtest_of(pool, people["operator"]),
        "budget": Budget.objects.create(department=vision, hours=100).public_id,
    }
    return World(vision, people, values)


def decision_of(workload: Workload) -> Decision:
    """A decision that starts the workload."""
    return Decision.objects.create(
        plan_pass=PlanPass.objects.create(group=workload.pool.group, snapshot=b""),
        kind="admit", claim=workload.attempts.get().claim, department=workload.department, pool=workload.pool, data={},
    )  # fmt: skip


def backtest_of(pool: Pool, author: User) -> str:
    """A finished backtest in which nothing happened."""
    figures = figures_of(Outcome(0, 86_400, 4, [], []))
    return Backtest.objects.create(
        group=pool.group, author=author, begin=timezone.now() - dt.timedelta(days=1), end=timezone.now(), draft="",
        state="done", ended_at=timezone.now(), result={"now": figures, "draft": figures, "unknown": 0},
    ).public_id  # fmt: skip


def saved_of(user: User) -> str:
    return str(SavedFilter.objects.create(user=user, path="/d/vision/workloads/", name="failed").pk)


def template_of(workload: Workload) -> RequestTemplate:
    """A template of the department with the workload's request."""
    body = as_api_call.body_of(actions.request_of(workload))
    return RequestTemplate.objects.create(department=workload.department, name="nightly", body=body)


def workload_of(department: Department, pool: Any, author: User) -> Workload:
    """A running workload with one attempt."""
    image, _new = Image.objects.get_or_create(name="python:3.11", title="Python", interpreter="python")
    workload = Workload.objects.create(
        department=department, author=author, kind="job", name="train", pool=pool, image=image, command=["python"],
        units_per_pod=1, state="running", attempts_made=1, max_runtime=3600,
    )  # fmt: skip
    claim = make.holding(department, pool, own=1, workload=workload.public_id, user=author)
    Attempt.objects.create(
        workload=workload, number=1, claim=claim, cluster=pool.group.cluster, run_name=f"w-{workload.public_id}-1",
        started_at=timezone.now(),
    )  # fmt: skip
    return workload


def all_doors(world: World) -> list[Door]:
    """All URLs of the project. Raises KeyError for a variable without a value in the world: add one."""
    return [door for door in _walk(get_resolver(), "/", "", world.values) if not door.path.startswith("/admin/")]


def _walk(resolver: URLResolver, prefix: str, namespace: str, values: dict[str, str]) -> Iterator[Door]:
    for pattern in resolver.url_patterns:
        if isinstance(pattern, URLResolver):
            below = f"{namespace}{pattern.namespace}:" if pattern.namespace else namespace
            yield from _walk(pattern, prefix + str(pattern.pattern), below, values)
        elif isinstance(pattern, URLPattern):
            path = prefix + str(pattern.pattern)
            if path.startswith("/admin/"):
                continue
            parts = frozenset(pattern.pattern.converters)
            for part in parts:
                path = path.replace(f"<{_converter(path, part)}>", values[part])
            yield Door(path, f"{namespace}{pattern.name}" if pattern.name else "", parts)


def _converter(path: str, part: str) -> str:
    return next(piece for piece in path.replace(">", "<").split("<") if piece.split(":")[-1] == part)


def send_empty(client: Client, door: Door, method: str) -> HttpResponseBase:
    """Sends an empty request. A response about its content shows that access was granted."""
    kind = {"content_type": "application/json", "data": "{}"} if door.is_api else {}
    if method in ("GET", "HEAD"):
        return client.get(door.path)
    if method != "POST" and not door.is_api:
        return client.generic(method, door.path)
    return getattr(client, method.lower())(door.path, **kind)  # type: ignore[no-any-return]


def writes() -> int:
    return AuditEntry.objects.count()
