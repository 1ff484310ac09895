"""Every list of the API is read to its end, two rows a page."""

from __future__ import annotations

import datetime as dt
import re
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone
from drf_spectacular.generators import SchemaGenerator

from portal.models import AuditEntry, Event, GroupRule, Role, Webhook, WebhookDelivery
from quotas.models import Budget, ClaimState, Decision, PlanPass, Quarantine, QuotaRequest, UserCap
from tests import builders as make
from tests.architecture.doors import World, backtest_of, build, workload_of
from tests.clients import person, token_of
from workloads.models import IdleExemption, Image, ModeChange, Preset, RequestTemplate

pytestmark = pytest.mark.django_db(transaction=True)  # events are listed once their transaction has ended
ROWS = 5


@pytest.fixture
def world(settings: Any, tmp_path: Path) -> World:
    settings.DATA_DIR, settings.API_RATE_PER_MINUTE = tmp_path, 10**6
    world = build()
    vision, owner = world.vision, world.people["owner"]
    first = workload_of(vision, make.pool("first", cards=4), owner)
    for n in range(ROWS):
        pool = make.pool(f"pool-{n}", cards=4)
        make.quota(vision, pool, 1)
        make.department(f"department-{n}")
        make.member(vision, Role.MEMBER, f"person-{n}")
        GroupRule.objects.create(provider="keycloak", pattern=f"group-{n}", department=vision, role=Role.MEMBER)
        Webhook.objects.create(department=vision, name=f"webhook-{n}", url="https://qyapi.weixin.qq.com/")
        WebhookDelivery.objects.create(webhook_id=world.values["webhook"], kind="webhook.test")
        make.user(f"robot-{n}", service_of=vision)
        UserCap.objects.create(department=vision, pool=pool, units=1)
        Budget.objects.create(department=vision, pool=pool, hours=1)
        QuotaRequest.objects.create(department=vision, pool=pool, author=owner, units=4, before=1, why="more")
        workload = workload_of(vision, pool, owner)
        until = timezone.now() + dt.timedelta(days=1)
        IdleExemption.objects.create(department=vision, workload=workload, why="licence", until=until)
        make.claim(vision, pool, 1, ClaimState.HOLDING, pods=0, user=owner)
        Decision.objects.create(
            plan_pass=PlanPass.objects.create(group=pool.group, snapshot=b""), kind="admit",
            claim=workload.attempts.get().claim, department=vision, pool=pool, data={},
        )  # fmt: skip
        Image.objects.create(name=f"image-{n}", title="The same title")
        RequestTemplate.objects.create(department=vision, name=f"template-{n}", body={"kind": "job", "pool": pool.slug})
        Preset.objects.create(slug=f"preset-{n}", title="The same", kind="job", pool=pool, image=workload.image)
        backtest_of(pool, owner)
        node = pool.group.cluster.nodes.get()
        Quarantine.objects.create(node=node, why="fan")
        ModeChange.objects.create(
            node=node, target={"mode": "whole"}, labels={}, stage="done", finished_at=timezone.now(),
            before={"labels": {}, "drained": False, "sharing": "whole", "instances": {}, "held_back": ""},
        )  # fmt: skip
        token_of(world.people["operator"], vision, name=f"token-{n}")
        Event.objects.create(kind="workload.running", department=vision, workload=first.public_id)
        make.holding(make.department(f"borrower-{n}"), pool, borrowed={vision: 1})
        AuditEntry.objects.create(actor_name="olivia", action="quota.changed", department=vision, target=pool.slug)
    day = timezone.localdate() + dt.timedelta(days=9)
    Budget.objects.update(starts_on=day, ends_on=day)  # not begun: the hours used do not change every second
    world.values["workload"] = first.public_id
    return world


def lists() -> list[str]:
    schema = SchemaGenerator().get_schema(request=None, public=True)
    return [
        path for path, each in schema["paths"].items() if each.get("get", {}).get("operationId", "")[-5:] == "_list"
    ]


def test_every_list_read_page_by_page_equals_the_whole_list(world: World) -> None:
    client, short = person(world.people["operator"]), []
    for template in lists():
        path = re.sub(r"\{(\w+)\}", lambda found: world.values[found[1]], template)
        whole = client.get(path, {"limit": 500}).json()["results"]
        if len(whole) < ROWS:
            short.append(f"{template}: {len(whole)} rows")
        found: list[Any] = []
        address = f"{path}?limit=2"
        while address:
            answer = client.get(address)
            assert answer.status_code == 200, (address, answer.content[:300])
            found += answer.json()["results"]
            address = answer.json()["next"]
        assert found == whole, template
    assert short == []
