"""Webhooks over the API, against a real HTTP server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
import standardwebhooks
from django.utils import timezone

from portal.infra.crypt import decrypt
from portal.models import AuditEntry, Department, Role, User, Webhook, WebhookDelivery
from portal.notify import notices, outbox
from tests import builders as make
from tests.clients import person, program
from tests.portal.notify.receiver import Receiver, listening

pytestmark = pytest.mark.django_db(transaction=True)
URL = "/api/v1/departments/vision/webhooks/"


@pytest.fixture
def receiver(settings: Any) -> Iterator[Receiver]:
    with listening() as receiver:
        settings.WEBHOOK_HOSTS = [receiver.rule, "other.example.org", "qyapi.weixin.qq.com"]
        yield receiver


@pytest.fixture
def vision() -> Department:
    return make.department("vision")


@pytest.fixture
def owner(vision: Department) -> User:
    return make.member(vision, Role.OWNER, "olga")


@pytest.fixture
def client(owner: User) -> Any:
    return person(owner)


def add(client: Any, receiver: Receiver, **more: Any) -> Any:
    return client.post(URL, {"name": "ci", "url": f"{receiver.rule}/hook?key=k3y", **more}, format="json")


def tag(answer: Any) -> dict[str, str]:
    return {"If-Match": answer.headers["ETag"]}


def attrs(answer: Any) -> list[str]:
    return [each["attr"] for each in answer.json()["errors"]]


def test_new_webhook_shows_its_secret_once_and_signs_deliveries_with_it(
    client: Any, vision: Department, receiver: Receiver
) -> None:
    created = add(client, receiver, kinds=["workload.failed"])
    assert created.status_code == 201, created.content
    secret = created.json()["secret"]
    whole = client.get(URL).content + client.get(created.headers["Location"]).content
    [listed] = client.get(URL).json()["results"]
    assert listed == {name: value for name, value in created.json().items() if name != "secret"}
    assert (listed["host"], listed["signed"], listed["version"]) == ("127.0.0.1", True, 1)
    assert not any(text in whole for text in (secret.encode(), b"k3y"))
    notices.send("workload.failed", to=[], department=vision, workload="w1", name="train", reason="Error")
    assert outbox.send_due() == 1
    _path, headers, body = receiver.received[-1]
    assert standardwebhooks.Webhook(secret).verify(body, headers)["kind"] == "workload.failed"


def test_same_idempotency_key_adds_one_webhook_and_returns_the_same_secret(
    client: Any, vision: Department, receiver: Receiver
) -> None:
    client.credentials(HTTP_IDEMPOTENCY_KEY="k1")
    first, second = add(client, receiver), add(client, receiver)
    assert (second.status_code, second.json()) == (201, first.json())
    assert second.headers["ETag"] == first.headers["ETag"]
    assert Webhook.objects.count() == 1


def test_patch_changes_only_the_given_fields_and_needs_the_current_version(
    client: Any, vision: Department, receiver: Receiver
) -> None:
    created = add(client, receiver, kinds=["workload.failed"], language="zh-hans")
    path, etag = created.headers["Location"], tag(created)
    assert client.patch(path, {"name": "x"}, format="json").status_code == 428
    changed = client.patch(path, {"name": "nightly", "active": False}, format="json", headers=etag)
    assert changed.status_code == 200, changed.content
    kept = {
        name: value for name, value in created.json().items() if name not in ("name", "active", "version", "secret")
    }
    assert changed.json() == kept | {"name": "nightly", "active": False, "version": 2}
    row = Webhook.objects.get()
    assert (row.url, decrypt(row.secret)) == (f"{receiver.rule}/hook?key=k3y", created.json()["secret"])
    late = client.patch(path, {"active": True}, format="json", headers=etag)
    assert (late.status_code, late.json()["code"]) == (412, "stale")
    assert client.delete(path, headers=etag).status_code == 412
    assert not Webhook.objects.get().active
    assert client.delete(path, headers=tag(changed)).status_code == 204
    assert client.delete(path, headers=tag(changed)).status_code == 404
    assert [row.action for row in AuditEntry.objects.order_by("pk")] == [
        "webhook.added", "webhook.changed", "webhook.removed"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"name": " "}, "name"), ({"shape": "fax"}, "shape"), ({"kinds": ["nope"]}, "kinds"), ({"url": "x"}, "url"),
        ({"url": "https://elsewhere.example.org/"}, "url"), ({"secret": "whsec_short"}, "secret"),
        ({"url": "https://other.example.org/"}, "secret"), ({"language": "fr"}, "language"), ({"hook": 1}, "hook"),
        ({"name": None}, "name"), ({"active": "perhaps"}, "active"),
    ],
)  # fmt: skip
def test_invalid_field_is_named_and_nothing_is_changed(
    client: Any, vision: Department, receiver: Receiver, change: dict[str, Any], field: str
) -> None:
    created = add(client, receiver)
    answer = client.patch(
        created.headers["Location"], {"language": "zh-hans", **change}, format="json", headers=tag(created)
    )
    assert (answer.status_code, answer["Content-Type"]) == (422, "application/problem+json")
    assert attrs(answer) == [field]
    row = Webhook.objects.get()
    assert (row.language, row.version) == ("en", 1)


def test_replaced_secret_signs_from_then_on_and_is_not_in_the_audit_log(
    client: Any, vision: Department, receiver: Receiver
) -> None:
    created = add(client, receiver)
    path, old = created.headers["Location"], created.json()["secret"]
    rotated = client.post(f"{path}secret/", {}, format="json")
    assert rotated.status_code == 200, rotated.content
    new = rotated.json()["secret"]
    assert new.startswith("whsec_")
    assert new != old
    assert client.get(path).json()["version"] == 2
    client.post(f"{path}test/", {}, format="json")
    outbox.send_due()
    _path, headers, body = receiver.received[-1]
    standardwebhooks.Webhook(new).verify(body, headers)
    with pytest.raises(standardwebhooks.WebhookVerificationError):
        standardwebhooks.Webhook(old).verify(body, headers)
    own = client.post(f"{path}secret/", {"secret": "our-own-words"}, format="json")
    assert own.json() == {"secret": "our-own-words"}
    bad = client.post(f"{path}secret/", {"secret": "whsec_x"}, format="json")
    assert (bad.status_code, attrs(bad)) == (422, ["secret"])
    assert decrypt(Webhook.objects.get().secret) == "our-own-words"
    texts = json.dumps(list(AuditEntry.objects.values("before", "after")))
    assert not any(secret in texts for secret in (old, new, "our-own-words", "k3y"))


def test_message_refused_before_the_secret_was_replaced_is_sent_again_with_the_new_one(
    client: Any, owner: User, vision: Department, receiver: Receiver
) -> None:
    created = add(client, receiver)
    path, old = created.headers["Location"], created.json()["secret"]
    receiver.status = 401
    notices.send("workload.failed", to=[], department=vision, workload="w1", name="train", reason="Error")
    outbox.send_due()
    assert WebhookDelivery.objects.get().sent_at is None
    new = client.post(f"{path}secret/", {}, format="json").json()["secret"]
    receiver.status = 200
    WebhookDelivery.objects.update(due_at=timezone.now())
    outbox.send_due()
    assert WebhookDelivery.objects.get().sent_at is not None
    (_path, *refused), (_path, *accepted) = receiver.received
    assert refused[1] == accepted[1], "the same message"
    for secret, (headers, body) in ((old, refused), (new, accepted)):
        standardwebhooks.Webhook(secret).verify(body, headers)


@pytest.mark.parametrize(
    ("shape", "reason"), [("slack", "no secret"), ("wecom", "no secret"), ("feishu", "Enter the secret")]
)
def test_secret_of_a_chat_service_cannot_be_generated(
    client: Any, vision: Department, receiver: Receiver, shape: str, reason: str
) -> None:
    created = add(client, receiver, shape=shape)
    assert created.json()["secret"] == ""
    answer = client.post(f"{created.headers['Location']}secret/", {}, format="json")
    assert (answer.status_code, attrs(answer)) == (422, ["secret"])
    assert reason in answer.json()["errors"][0]["detail"]


def test_deliveries_list_the_outcome_of_tests_and_notices(client: Any, vision: Department, receiver: Receiver) -> None:
    path = add(client, receiver).headers["Location"]
    queued = client.post(f"{path}test/", {}, format="json")
    assert (queued.status_code, queued.json()["state"]) == (202, "waiting")
    assert client.post(f"{path}test/", {}, format="json").json()["id"] == queued.json()["id"]  # one at a time
    outbox.send_due()
    receiver.status = 500
    client.post(f"{path}test/", {}, format="json")
    notices.send("workload.failed", to=[], department=vision, workload="w1", name="train", reason="Error")
    outbox.send_due()
    notice, failed, sent = client.get(f"{path}deliveries/").json()["results"]
    assert (sent["id"], sent["state"], sent["status"], sent["next_try_at"]) == (
        queued.json()["id"], "delivered", 200, None
    )  # fmt: skip
    assert (failed["state"], failed["error"], failed["next_try_at"]) == ("failed", "HTTP 500", None)
    assert (notice["kind"], notice["state"], notice["tries"]) == ("workload.failed", "waiting", 1)
    assert notice["next_try_at"] is not None


@pytest.mark.parametrize("role", [Role.VIEWER, Role.MEMBER])
def test_members_get_403_and_strangers_404(client: Any, vision: Department, receiver: Receiver, role: Role) -> None:
    path = add(client, receiver).headers["Location"]
    other = make.department("biology")
    member, stranger = make.member(vision, role, "max"), make.member(other, Role.OWNER, "sven")
    paths = [("get", URL), ("get", path), ("get", f"{path}deliveries/"), ("delete", path), ("patch", path),
             ("post", f"{path}secret/"), ("post", f"{path}test/"), ("post", URL)]  # fmt: skip
    for method, each in paths:
        for user, status in ((member, 403), (stranger, 404)):
            answer = getattr(person(user), method)(each, **({} if method in ("get", "delete") else {"format": "json"}))
            assert answer.status_code == status, (method, each, user)
    elsewhere = path.replace("/vision/", "/biology/")
    assert person(stranger).get(elsewhere).status_code == 404  # the number alone opens nothing


def test_token_needs_the_quota_scope(owner: User, vision: Department, receiver: Receiver) -> None:
    assert program(owner, vision, ["read", "submit"]).get(URL).status_code == 403
    assert program(owner, vision, ["read", "quota"]).get(URL).status_code == 200
