"""A form that is sent twice, by a double click or a reload, is carried out once, also without scripts."""

from __future__ import annotations

import datetime as dt
import re
import threading
from pathlib import Path
from typing import Any

import pytest
from django.apps import apps
from django.db import connections
from django.test import Client
from django.utils import timezone

from portal.models import IdempotencyKey, Role, Webhook
from portal.views import webhooks
from portal.web import once
from quotas.models import Pool, Quota, QuotaRequest
from tests import builders as make
from tests.architecture.doors import World, build
from tests.portal.web.forms import Forms, forms_of
from tests.portal.web.test_versions import ADDS_OR_ACTS
from workloads.models import Attempt

FILLED = {
    # values for the fields that a form leaves empty, by the end of their names
    "add-username": "stranger", "name": "second",
    "title": "Second", "slug": "second", "username": "second", "display_name": "Second", "email": "",
    "password": "correct horse battery", "url": "https://qyapi.weixin.qq.com/cgi-bin/webhook/send?key=abc",
    "why": "a fan is broken", "units": "1", "amount": "1", "text": "May I?", "by": "1h", "scopes": "read", "days": "90",
    "command": "true", "reference": "second:1", "interpreter": "python", "units_per_pod": "1", "max_runtime": "60s",
    "hours": "100", "patience": "1h", "kubeconfig": "", "description": "", "role": "member", "pods": "1",
    "template_title": "second",
}  # fmt: skip
WEBHOOKS = "/d/vision/webhooks/"
# written by the request itself; audit entries only record what was done
NOT_COUNTED = {"Session", "IdempotencyKey", "AuditEntry"}


@pytest.fixture
def world(settings: Any, tmp_path: Path) -> World:
    settings.DATA_DIR, settings.DEBUG = tmp_path, True
    return build()


def errors_of(answer: Any) -> list[str]:
    found = re.findall(r'id="id_([\w-]+)_error" role="alert"><div>([^<]+)', answer.content.decode())
    return [": ".join(pair) for pair in found]


def rows() -> dict[str, int]:
    return {
        model.__name__: model._default_manager.count()
        for model in apps.get_models()
        if model.__name__ not in NOT_COUNTED
    }


@pytest.mark.django_db
@pytest.mark.parametrize("role", ["owner", "operator"])
def test_every_form_that_adds_a_record_adds_it_once(world: World, role: str) -> None:
    Quota.objects.update(guaranteed=2)
    earlier = timezone.now() - dt.timedelta(hours=1)
    Attempt.objects.update(queued_at=earlier, started_at=earlier)  # so that a backtest has something to replay
    client, without, repeated, added = world.client(role), set(), set(), dict[str, str]()
    adds = tuple(
        end for end, effect in ADDS_OR_ACTS if effect.startswith("adds") and end not in ("/files/", "/upload/")
    )
    forms = list(forms_of(world, role))
    request = next(dict(fields) for page, action, fields in forms if page == action == "/d/vision/workloads/new/")
    for page, action, fields in forms:
        if action == "/d/vision/templates/":  # also sends the fields of the form beside it
            fields = request | fields
        if any(name.split("-")[-1] in ("seen", "version") and value for name, value in fields.items()):
            continue  # edits: the second finds the stored version changed (test_versions)
        if once.FIELD not in fields:
            if action.endswith(adds) and action != "/operator/clusters/":
                without.add(f"{page} → {action} {sorted(fields)}")
            continue
        fields.pop("check", None)  # the button for readers without scripts, which only checks
        for name, value in fields.items():
            fields[name] = value or FILLED.get(name) or FILLED.get(name.split("-")[-1], "")
        if action == "/d/vision/requests/new/":
            fields["units"] = "4"
            QuotaRequest.objects.update(state="withdrawn")  # one at a time
        if action == "/d/vision/budgets/new/":
            fields["person"] = "member"  # the department has one
        if action.endswith("/idle/exempt/"):
            fields["exempt-what"] = world.values["workload"] if action.startswith("/d/") else "vision"
        if action.endswith("/backtest/"):
            fields["vision.guaranteed"] = "3"  # a draft must differ from the current quota
        if action == "/operator/presets/new/":
            fields |= {"kind": "job", "pool": str(Pool.objects.get().pk), "image": world.values["image"]}
        before = rows()
        first = client.post(action, fields)
        after = rows()
        second = client.post(action, fields)
        if action == "/operator/clusters/":
            continue  # only a cluster that answers is added
        if first.status_code != 302:
            added.setdefault(action, f"{first.status_code} {errors_of(first)}")
            continue
        added[action] = ""
        grown = {name: count - after[name] for name, count in rows().items() if count != after[name]}
        if grown or (second.status_code, second.headers["Location"]) != (302, first.headers["Location"]):
            repeated.add(f"{page} → {action}: {second.status_code} {grown}")
        assert before != after, (page, action, fields)
    assert without == set()
    assert repeated == set()
    assert {action: why for action, why in added.items() if why} == {}
    assert len(added) > 6, added


class TestTwoAtOnce:
    """A double click: the browser drops the first answer and shows the second."""

    @pytest.mark.django_db(transaction=True)
    @pytest.mark.parametrize("with_key", [True, False])
    def test_second_request_waits_for_the_first_and_gets_the_same_redirect(
        self, with_key: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Without the key (the negative control) the same two requests add two."""
        owner = make.member(make.department("vision"), Role.OWNER, "olga")
        inside, go_on = threading.Event(), threading.Event()

        real_redirect = webhooks.redirect

        def held(*args: Any, **kwargs: Any) -> Any:
            inside.set()
            assert go_on.wait(20)
            return real_redirect(*args, **kwargs)

        monkeypatch.setattr(webhooks, "redirect", held)
        clients = [Client(), Client()]
        for client in clients:
            client.force_login(owner, backend="django.contrib.auth.backends.ModelBackend")
        forms = Forms(clients[0].get(WEBHOOKS).content.decode(), "").found
        fields = next(fields for _to, fields in forms if "url" in fields)
        fields |= {"name": "ci", "url": FILLED["url"], "secret": "x"}  # without a secret, one is generated and shown
        if not with_key:
            del fields[once.FIELD]
        answers: list[Any] = []

        def send(client: Client) -> None:
            answers.append(client.post(WEBHOOKS, fields))
            connections.close_all()

        threads = [threading.Thread(target=send, args=(client,)) for client in clients]
        threads[0].start()
        assert inside.wait(20)
        threads[1].start()
        go_on.set()
        for thread in threads:
            thread.join(20)
        assert [answer.status_code for answer in answers] == [302, 302]
        assert {answer.headers["Location"] for answer in answers} == {WEBHOOKS}
        assert Webhook.objects.count() == (1 if with_key else 2)

    @pytest.mark.django_db
    def test_request_that_waits_too_long_gets_409_and_is_not_carried_out(
        self, world: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(once, "PATIENCE", 0)
        client, fields = (
            world.client("owner"),
            {once.FIELD: "k", "shape": "generic", "name": "ci", "url": FILLED["url"]},
        )
        client.post(WEBHOOKS, fields)
        IdempotencyKey.objects.update(status=None, created_at=timezone.now())
        answer = client.post(WEBHOOKS, fields)
        assert answer.status_code == 409
        assert "sent this form twice" in answer.content.decode()
        IdempotencyKey.objects.update(created_at=timezone.now() - once.LEASE - dt.timedelta(seconds=1))
        assert client.post(WEBHOOKS, fields).status_code == 302  # the first process has died


@pytest.mark.django_db
class TestSentAgain:
    def test_refused_form_can_be_sent_again_with_the_same_key(self, world: World) -> None:
        client, fields = world.client("owner"), {once.FIELD: "k", "shape": "generic", "name": "", "url": FILLED["url"]}
        before = Webhook.objects.count()
        assert client.post(WEBHOOKS, fields).status_code == 422
        assert client.post(WEBHOOKS, fields).status_code == 422
        assert client.post(WEBHOOKS, fields | {"name": "a"}).status_code == 302
        assert client.post(WEBHOOKS, fields | {"name": "b"}).status_code == 302  # gone back and changed the form
        assert Webhook.objects.count() == before + 2

    def test_key_counts_only_for_its_holder(self, world: World) -> None:
        fields = {once.FIELD: "k\0" * 90, "shape": "generic", "name": "a", "url": FILLED["url"]}
        assert world.client("owner").post(WEBHOOKS, fields).status_code in (302, 422)
        assert world.client("stranger").post(WEBHOOKS, fields).status_code == 404
        assert world.client("viewer").post(WEBHOOKS, fields).status_code in (403, 404)
