"""Webhooks against a real HTTP server: shapes, signatures, retries, and addresses that are never requested."""

from __future__ import annotations

import base64
import datetime as dt
import hashlib
import hmac
import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
import standardwebhooks
from django.utils import timezone

from portal.access import Actor, Forbidden
from portal.errors import Invalid
from portal.infra.crypt import decrypt
from portal.models import AuditEntry, Department, Membership, Role, User, Webhook, WebhookDelivery
from portal.notify import notices, outbox, safe_http, webhooks
from portal.notify.webhook_shapes import Message, refusal
from portal.notify.webhook_shapes import outgoing as shaped
from tests.portal.notify.receiver import Receiver, listening

pytestmark = pytest.mark.django_db(transaction=True)
SECRET = "s3cret-of-the-hook"


@pytest.fixture
def receiver(settings: Any) -> Iterator[Receiver]:
    with listening() as receiver:
        settings.WEBHOOK_HOSTS = [receiver.rule]
        yield receiver


@pytest.fixture
def vision() -> Department:
    return Department.objects.create(slug="vision", name="Vision")


@pytest.fixture
def owner(vision: Department) -> Actor:
    user = User.objects.create_user("owner")
    Membership.objects.create(user=user, department=vision, role=Role.OWNER)
    return Actor(user)


def hook(
    owner: Actor, vision: Department, receiver: Receiver, shape: str = "generic", secret: str = SECRET,
    language: str = "en",
) -> Webhook:  # fmt: skip
    url = f"{receiver.rule}/hook?key=k"
    return webhooks.add_webhook(
        actor=owner, department=vision, name="ci", url=url, shape=shape, secret=secret, language=language
    )


def send_notice(vision: Department) -> WebhookDelivery:
    notices.send("workload.failed", to=[], department=vision, workload="w1", name="train", reason="Error")
    return WebhookDelivery.objects.latest("id")


def send_test(owner: Actor, webhook: Webhook) -> WebhookDelivery:
    row = webhooks.try_webhook(actor=owner, webhook=webhook)
    outbox.send_due()
    row.refresh_from_db()
    return row


def test_signed_notice_is_delivered_once(owner: Actor, vision: Department, receiver: Receiver) -> None:
    hook(owner, vision, receiver)
    row = send_notice(vision)
    assert outbox.send_due() == 1
    assert outbox.send_due() == 0
    [(path, headers, body)] = receiver.received
    assert path == "/hook?key=k"
    assert headers["Host"] == f"127.0.0.1:{receiver.port}"
    stamp, mac = (part.split("=")[1] for part in headers["X-Portal-Signature"].split(","))
    assert hmac.new(SECRET.encode(), f"{stamp}.".encode() + body, hashlib.sha256).hexdigest() == mac
    assert abs(int(stamp) - timezone.now().timestamp()) < 60
    sent = json.loads(body)
    assert (sent["id"], sent["kind"], sent["facts"]["workload"]) == (str(row.pk), "workload.failed", "w1")
    assert sent["text"] == "train failed: its command exited with an error."
    row.refresh_from_db()
    assert (row.status, row.error, row.tries) == (200, "", 1)


@pytest.mark.parametrize(
    "secret",
    [webhooks.new_secret(), "whsec_" + base64.b64encode(b"k" * 24).decode(), SECRET],
    ids=["generated", "key", "text"],
)
def test_standard_webhooks_library_verifies_deliveries(
    owner: Actor, vision: Department, receiver: Receiver, secret: str
) -> None:
    hook(owner, vision, receiver, secret=secret)
    row = send_notice(vision)
    receiver.status = 500
    outbox.send_due()
    receiver.status = 200
    assert outbox.send_due(now=timezone.now() + dt.timedelta(seconds=11)) == 1
    library = standardwebhooks.Webhook(secret if secret.startswith("whsec_") else secret.encode())
    first, again = [(headers, body) for _path, headers, body in receiver.received]
    for headers, body in (first, again):
        assert library.verify(body, headers)["text"] == "train failed: its command exited with an error."
        assert headers["webhook-id"] == str(row.pk)  # the same for every try
    with pytest.raises(standardwebhooks.WebhookVerificationError):
        library.verify(first[1].replace(b"train", b"drain"), first[0])
    with pytest.raises(standardwebhooks.WebhookVerificationError):
        library.verify(first[1], first[0] | {"webhook-timestamp": str(int(first[0]["webhook-timestamp"]) - 1)})


@pytest.mark.parametrize(
    "secret", ["whsec_", "whsec_short", "whsec_" + base64.b64encode(b"k" * 23).decode(), "whsec_ä"]
)
def test_whsec_secret_without_a_valid_key_is_refused(
    owner: Actor, vision: Department, receiver: Receiver, secret: str
) -> None:
    with pytest.raises(Invalid, match="24 to 64 bytes") as refused:
        hook(owner, vision, receiver, secret=secret)
    assert refused.value.field == "secret"


def test_slack_text_is_escaped_except_for_the_portals_link(
    owner: Actor, vision: Department, receiver: Receiver, settings: Any
) -> None:
    hook(owner, vision, receiver, "slack", language="zh-hans")
    notices.send("workload.failed", to=[], department=vision, workload="w1", name="<!channel> & co", reason="Error")
    assert outbox.send_due() == 1
    sent = receiver.last
    text, link = sent["text"].split("\n")
    assert text.startswith("&lt;!channel&gt; &amp; co")
    assert "失败" in text
    assert link == f"<{settings.BASE_URL}/d/vision/workloads/w1/|在平台中打开>"
    assert "webhook-signature" not in receiver.received[-1][1]


def test_teams_gets_a_card_with_a_button(owner: Actor, vision: Department, receiver: Receiver, settings: Any) -> None:
    hook(owner, vision, receiver, "teams")
    receiver.status, receiver.answer = 202, b""
    notices.send("budget.near", to=[], department=vision, name="[here](https://evil.example)")
    assert outbox.send_due() == 1
    [attachment] = receiver.last["attachments"]
    card = attachment["content"]
    assert receiver.last["type"] == "message"
    assert attachment["contentType"] == "application/vnd.microsoft.card.adaptive"
    assert card["body"][0]["type"] == "RichTextBlock"  # plain text: a name cannot add markup
    assert card["actions"] == [
        {"type": "Action.OpenUrl", "title": "Open in the portal", "url": f"{settings.BASE_URL}/d/vision/budgets/"}
    ]


def test_every_message_is_in_the_webhooks_language_and_links_to_its_page(
    owner: Actor, vision: Department, receiver: Receiver, settings: Any
) -> None:
    hook(owner, vision, receiver, "feishu")
    kinds = sorted(kind for kind, known in notices.KINDS.items() if known.for_webhooks)
    for kind in kinds:
        workload = "w1" if kind.startswith("workload.") else ""
        notices.send(kind, to=[], department=vision, workload=workload, name="train", month="2026-02", request="r1")
    assert outbox.send_due() == len(kinds)
    for kind, (_path, _headers, body) in zip(kinds, receiver.received, strict=True):
        text, address = json.loads(body)["content"]["text"].split("\n")
        assert not any("一" <= letter <= "鿿" for letter in text), kind
        assert address.startswith(f"{settings.BASE_URL}/"), kind
        assert kind == "member.removed" or not address.endswith("/inbox/"), kind


def test_feishu_signs_with_time_and_secret_as_the_key(owner: Actor, vision: Department, receiver: Receiver) -> None:
    hook(owner, vision, receiver, "feishu")
    send_notice(vision)
    assert outbox.send_due() == 1
    sent = receiver.last
    key = f"{sent['timestamp']}\n{SECRET}".encode()
    assert sent["sign"] == base64.b64encode(hmac.new(key, b"", hashlib.sha256).digest()).decode()
    assert sent["msg_type"] == "text"
    assert "train" in sent["content"]["text"]


def test_dingtalk_signs_in_the_query(owner: Actor, vision: Department, receiver: Receiver) -> None:
    hook(owner, vision, receiver, "dingtalk")
    send_notice(vision)
    assert outbox.send_due() == 1
    query = parse_qs(urlsplit(receiver.received[-1][0]).query)
    [stamp], [sign] = query["timestamp"], query["sign"]
    text = f"{stamp}\n{SECRET}".encode()
    assert sign == base64.b64encode(hmac.new(SECRET.encode(), text, hashlib.sha256).digest()).decode()
    assert query["key"] == ["k"]
    assert receiver.last["msgtype"] == "text"


def test_wecom_gets_plain_text(owner: Actor, vision: Department, receiver: Receiver) -> None:
    hook(owner, vision, receiver, "wecom")
    send_notice(vision)
    assert outbox.send_due() == 1
    assert receiver.last["msgtype"] == "text"
    assert "train" in receiver.last["text"]["content"]


def test_signatures_agree_with_independently_computed_values() -> None:
    """Feishu: openssl dgst -sha256 -hmac $'1599360473\\nabc' of nothing; DingTalk: of '1599360473000\\nabc' with the key abc."""
    message = Message("1", "workload.failed", "x", {}, 1599360473.0)
    feishu = json.loads(shaped("feishu", "https://f/", "abc", message).body)
    assert feishu["sign"] == "cgtpJzI2j6bUDggbdGYjskCK3FPgKpTkwosfWsMzKqM="
    dingtalk = shaped("dingtalk", "https://d/?access_token=t", "abc", message).url
    assert parse_qs(urlsplit(dingtalk).query)["sign"] == ["Y8nO3D/aULDXOeq2JDUacH5B+YsYPRT1cHbBIEqM8WY="]


@pytest.mark.parametrize(
    ("shape", "status", "body", "message"),
    [
        ("generic", 204, b"", ""),
        ("generic", 500, b"", "HTTP 500"),
        ("slack", 200, b"ok", ""),
        ("slack", 404, b"no_service", "HTTP 404: no_service"),
        ("teams", 202, b"", ""),
        ("teams", 400, b"{}", "HTTP 400"),
        ("wecom", 200, b'{"errcode":93000,"errmsg":"invalid webhook url"}', "93000: invalid webhook url"),
        ("feishu", 200, b'{"code":19021,"msg":"sign match fail"}', "19021: sign match fail"),
        ("dingtalk", 200, b'{"errcode":310000,"errmsg":"sign not match"}', "310000: sign not match"),
        ("dingtalk", 200, b"<html>", "the answer is not JSON"),
        ("wecom", 200, b"[]", "the answer is not an object"),
    ],
)
def test_refusal_is_recognised_even_with_status_200(shape: str, status: int, body: bytes, message: str) -> None:
    assert refusal(shape, status, body) == message


def test_failed_delivery_records_the_error_and_is_retried_with_growing_pauses(
    owner: Actor, vision: Department, receiver: Receiver
) -> None:
    hook(owner, vision, receiver)
    receiver.status = 503
    row = send_notice(vision)
    now = timezone.now()
    for tries, pause in enumerate(outbox.PAUSES, start=1):
        assert outbox.send_due(now=now) == 0
        row.refresh_from_db()
        assert (row.tries, row.status, row.error, row.due_at) == (
            tries, 503, "HTTP 503", now + dt.timedelta(seconds=pause),
        )  # fmt: skip
        now += dt.timedelta(seconds=pause)
    receiver.status = 200
    assert outbox.send_due(now=now) == 1


def test_two_workers_do_not_send_the_same_delivery(owner: Actor, vision: Department, receiver: Receiver) -> None:
    hook(owner, vision, receiver)
    delivery = WebhookDelivery.objects.select_related("webhook__department").get(pk=send_notice(vision).pk)
    now = timezone.now()
    assert [outbox.deliver(delivery, now=now), outbox.deliver(delivery, now=now)] == [True, False]
    assert len(receiver.received) == 1


def test_redirects_are_not_followed(owner: Actor, vision: Department, receiver: Receiver) -> None:
    hook(owner, vision, receiver)
    receiver.status, receiver.location = 302, f"{receiver.rule}/elsewhere"
    send_notice(vision)
    assert outbox.send_due() == 0
    assert [path for path, *_ in receiver.received] == ["/hook?key=k"]


@pytest.mark.parametrize(
    "url",
    [
        "https://elsewhere.example.org/",
        "https://169.254.169.254/latest/meta-data/",
        "https://127.0.0.1/",
        "https://evil-qyapi.weixin.qq.com.example.org/",
        "https://qyapi.weixin.qq.com:8443/",
        "http://qyapi.weixin.qq.com/",
        "https://user:secret@qyapi.weixin.qq.com/",
        "ftp://qyapi.weixin.qq.com/",
        "https://[::1/",
        "https://",
        "",
    ],
)
def test_request_to_an_address_the_operator_did_not_allow_is_refused(settings: Any, url: str) -> None:
    settings.WEBHOOK_HOSTS = ["qyapi.weixin.qq.com", ".hooks.example.org"]
    with pytest.raises(Invalid) as refused:
        safe_http.post(url, b"", {})
    assert refused.value.field == "url"


@pytest.mark.parametrize("address", ["127.0.0.1", "10.0.0.8", "169.254.169.254", "::1", "fd00::1", "0.0.0.0"])
def test_subdomain_of_an_allowed_domain_cannot_resolve_to_an_internal_address(
    settings: Any, monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    settings.WEBHOOK_HOSTS = [".hooks.example.org"]
    monkeypatch.setattr("portal.notify.safe_http.socket.getaddrinfo", lambda *_, **__: [(2, 1, 6, "", (address, 443))])
    with pytest.raises(safe_http.NotAllowed):
        safe_http.post("https://a.hooks.example.org/", b"", {})


def test_allowing_subdomains_does_not_allow_the_domain_itself_or_similar_names(settings: Any) -> None:
    settings.WEBHOOK_HOSTS = [".example.org"]
    assert safe_http.check("https://a.example.org/").below
    for url in ("https://example.org/", "https://badexample.org/"):
        with pytest.raises(safe_http.NotAllowed):
            safe_http.check(url)


def test_test_delivery_records_the_response_and_is_not_repeated(
    owner: Actor, vision: Department, receiver: Receiver
) -> None:
    webhook = hook(owner, vision, receiver)
    row = send_test(owner, webhook)
    assert (row.status, row.error) == (200, "")
    receiver.status = 404
    row = send_test(owner, webhook)
    assert (row.status, row.error, row.sent_at) == (404, "HTTP 404", None)
    assert outbox.send_due(now=timezone.now() + dt.timedelta(days=400)) == 0  # a test is not repeated


def test_unreachable_receiver_is_recorded_as_an_error(owner: Actor, vision: Department, receiver: Receiver) -> None:
    webhook = hook(owner, vision, receiver)
    receiver.server.shutdown()
    receiver.server.server_close()
    assert "ConnectError" in send_test(owner, webhook).error


def test_members_cannot_test_or_remove_webhooks(owner: Actor, vision: Department, receiver: Receiver) -> None:
    webhook = hook(owner, vision, receiver)
    member = User.objects.create_user("member")
    Membership.objects.create(user=member, department=vision, role=Role.MEMBER)
    with pytest.raises(Forbidden):
        webhooks.try_webhook(actor=Actor(member), webhook=webhook)
    with pytest.raises(Forbidden):
        webhooks.remove_webhook(actor=Actor(member), webhook=webhook)
    assert receiver.received == []


def test_audit_log_contains_neither_secret_nor_address(owner: Actor, vision: Department, receiver: Receiver) -> None:
    webhook = hook(owner, vision, receiver)
    webhooks.change_webhook(
        actor=owner, webhook=webhook, name="new", url=webhook.url, shape="generic", secret=None, kinds=[], active=True
    )
    webhook.refresh_from_db()
    assert decrypt(webhook.secret) == SECRET
    assert SECRET not in webhook.secret
    webhooks.remove_webhook(actor=owner, webhook=webhook)
    rows = [json.dumps([row.before, row.after]) for row in AuditEntry.objects.all()]
    assert len(rows) == 3
    assert not any(SECRET in row or "key=k" in row for row in rows)


def test_secret_must_be_entered_again_for_another_host(
    owner: Actor, vision: Department, receiver: Receiver, settings: Any
) -> None:
    webhook = hook(owner, vision, receiver)
    settings.WEBHOOK_HOSTS = [receiver.rule, "other.example.org"]
    with pytest.raises(Invalid) as refused:
        webhooks.change_webhook(
            actor=owner, webhook=webhook, name="x", url="https://other.example.org/", shape="generic", secret=None,
            kinds=[], active=True,
        )  # fmt: skip
    assert refused.value.field == "secret"


def test_repeated_kinds_are_stored_once(owner: Actor, vision: Department, receiver: Receiver) -> None:
    url = f"{receiver.rule}/x"
    kinds = ["quota.changed", "workload.failed"] * 1000
    webhook = webhooks.add_webhook(actor=owner, department=vision, name="ci", url=url, shape="generic", kinds=kinds)
    assert webhook.kinds == list(dict.fromkeys(kinds))
    webhooks.change_webhook(
        actor=owner, webhook=webhook, name="ci", url=url, shape="generic", secret=None, kinds=kinds, active=True
    )
    assert len(Webhook.objects.get().kinds) == len(set(kinds)) > 0


@pytest.mark.parametrize(
    ("change", "field"),
    [({"name": " "}, "name"), ({"shape": "fax"}, "shape"), ({"kinds": ["nope"]}, "kinds"), ({"url": "x"}, "url")],
)
def test_invalid_field_is_named(
    owner: Actor, vision: Department, receiver: Receiver, change: dict[str, object], field: str
) -> None:
    given = {"name": "ci", "url": f"{receiver.rule}/", "shape": "generic", "kinds": [], **change}
    with pytest.raises(Invalid) as refused:
        webhooks.add_webhook(actor=owner, department=vision, **given)  # type: ignore[arg-type]
    assert refused.value.field == field


@pytest.mark.parametrize("host", ["a" * 64 + ".example.org", "hooks..example.org", "é" * 60 + ".example.org"])
def test_invalid_host_name_is_refused_before_it_is_resolved(host: str) -> None:
    """Resolving it would fail, too, but with the message of Python's codec."""
    with pytest.raises(Invalid, match="not a valid address"):
        safe_http.checked_parts(f"https://{host}/")


def test_error_for_an_unknown_scheme_names_the_allowed_ones() -> None:
    with pytest.raises(Invalid, match="https:// or http://"):
        safe_http.checked_parts("ftp://example.org/")
