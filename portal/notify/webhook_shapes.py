"""What each kind of webhook receiver expects: body, signature, and how it acknowledges a message. Pure.

| shape | body | signature | accepted if |
|---|---|---|---|
| generic | JSON with id, kind, text, facts | Standard Webhooks; also `X-Portal-Signature`, as in 0.1.0 | 2xx |
| Slack incoming webhook | text with a link | none, the key is in the address | 2xx |
| Microsoft Teams, Workflows | message with an Adaptive Card | none, the key is in the address | 2xx |
| WeCom group robot | msgtype text | none, the key is in the address | errcode 0 |
| Feishu custom bot | msg_type text | timestamp (s) and sign in the body; key "t\\nsecret", empty message | code 0 |
| DingTalk custom robot | msgtype text | timestamp (ms) and sign in the query; key secret, message "t\\nsecret" | errcode 0 |

Sources: github.com/standard-webhooks/standard-webhooks (spec/standard-webhooks.md),
docs.slack.dev/messaging/sending-messages-using-incoming-webhooks,
learn.microsoft.com/microsoftteams/platform/webhooks-and-connectors/how-to/connectors-using,
developer.work.weixin.qq.com/document/path/91770,
open.feishu.cn/document/client-docs/bot-v3/add-custom-bot, open.dingtalk.com/document/robots/customize-robot-security-settings.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

from portal.models import WebhookShape

PREFIX = "whsec_"
"""Begins a secret of Standard Webhooks; base64 of the key follows."""
PLAIN = {WebhookShape.GENERIC, WebhookShape.SLACK, WebhookShape.TEAMS}
"""Shapes whose HTTP status alone shows whether the message was accepted."""
SIGNED = {WebhookShape.GENERIC, WebhookShape.FEISHU, WebhookShape.DINGTALK}
"""Shapes that have a secret."""
KEY_BYTES = range(24, 65)


@dataclass(frozen=True, slots=True)
class Message:
    """One notice to be sent; `now` in seconds since 1970, `id` the same for every try, `link` the page it is about."""

    id: str
    kind: str
    text: str
    facts: Mapping[str, Any]
    now: float
    link: str = ""
    open_page: str = ""  # text of the link

    @property
    def text_and_link(self) -> str:
        return f"{self.text}\n{self.link}" if self.link else self.text


@dataclass(frozen=True, slots=True)
class Outgoing:
    url: str
    body: bytes
    headers: dict[str, str] = field(default_factory=dict)


def outgoing(shape: str, url: str, secret: str, message: Message) -> Outgoing:
    match shape:
        case WebhookShape.SLACK:
            return _json(url, _slack(message))
        case WebhookShape.TEAMS:
            return _json(url, _teams(message))
        case WebhookShape.WECOM:
            return _json(url, {"msgtype": "text", "text": {"content": message.text_and_link}})
        case WebhookShape.FEISHU:
            return _feishu(url, secret, message)
        case WebhookShape.DINGTALK:
            return _dingtalk(url, secret, message)
        case _:
            return _generic(url, secret, message)


def _json(url: str, data: Mapping[str, Any], headers: Mapping[str, str] | None = None) -> Outgoing:
    body = json.dumps(data, ensure_ascii=False, separators=(",", ":")).encode()
    return Outgoing(url, body, {"Content-Type": "application/json; charset=utf-8", **(headers or {})})


def _generic(url: str, secret: str, message: Message) -> Outgoing:
    """Signs twice: as Standard Webhooks, and in the header of 0.1.0 for its receivers."""
    data = {"id": message.id, "kind": message.kind, "text": message.text, "facts": dict(message.facts)}
    at = int(message.now)
    headers = {
        "webhook-id": message.id, "webhook-timestamp": str(at),
        "X-Portal-Event": message.kind, "X-Portal-Delivery": message.id,
    }  # fmt: skip
    plain = _json(url, data, headers)
    if not secret:
        return plain
    signatures = {
        "webhook-signature": standard_signature(secret, message.id, at, plain.body),
        "X-Portal-Signature": signature(secret, plain.body, at),
    }
    return Outgoing(url, plain.body, {**plain.headers, **signatures})


def standard_key(secret: str) -> bytes | None:
    """The signing key: after `whsec_` it is base64, any other secret is used as it is. None: no valid key follows `whsec_`."""
    if not secret.startswith(PREFIX):
        return secret.encode()
    try:
        key = base64.b64decode(secret.removeprefix(PREFIX), validate=True)
    except ValueError:
        return None
    return key if len(key) in KEY_BYTES else None


def standard_signature(secret: str, identity: str, at: int, body: bytes) -> str:
    key = standard_key(secret) or secret.encode()  # stored before `whsec_` had a meaning
    digest = hmac.new(key, f"{identity}.{at}.".encode() + body, hashlib.sha256).digest()
    return f"v1,{base64.b64encode(digest).decode()}"


def signature(secret: str, body: bytes, at: int) -> str:
    """The signature header of 0.1.0. The time is part of what is signed, so that an old message cannot be replayed."""
    digest = hmac.new(secret.encode(), str(at).encode() + b"." + body, hashlib.sha256).hexdigest()
    return f"t={at},v1={digest}"


def _slack(message: Message) -> dict[str, Any]:
    """The only markup is our own link: a name cannot mention everybody, nor look like another link."""
    text = message.text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return {"text": f"{text}\n<{message.link}|{message.open_page}>" if message.link else text, "unfurl_links": False}


def _teams(message: Message) -> dict[str, Any]:
    """Uses a TextRun, because a TextBlock would interpret Markdown in the text."""
    text = {"type": "RichTextBlock", "inlines": [{"type": "TextRun", "text": message.text}]}
    card: dict[str, Any] = {
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json", "type": "AdaptiveCard", "version": "1.4",
        "body": [text],
    }  # fmt: skip
    if message.link:
        card["actions"] = [{"type": "Action.OpenUrl", "title": message.open_page, "url": message.link}]
    attachment = {"contentType": "application/vnd.microsoft.card.adaptive", "contentUrl": None, "content": card}
    return {"type": "message", "attachments": [attachment]}


def _feishu(url: str, secret: str, message: Message) -> Outgoing:
    data: dict[str, Any] = {"msg_type": "text", "content": {"text": message.text_and_link}}
    if secret:
        at = str(int(message.now))
        digest = hmac.new(f"{at}\n{secret}".encode(), b"", hashlib.sha256).digest()
        data |= {"timestamp": at, "sign": base64.b64encode(digest).decode()}
    return _json(url, data)


def _dingtalk(url: str, secret: str, message: Message) -> Outgoing:
    if secret:
        at = str(int(message.now * 1000))
        digest = hmac.new(secret.encode(), f"{at}\n{secret}".encode(), hashlib.sha256).digest()
        url += ("&" if "?" in url else "?") + urlencode({"timestamp": at, "sign": base64.b64encode(digest).decode()})
    return _json(url, {"msgtype": "text", "text": {"content": message.text_and_link}})


def refusal(shape: str, status: int, body: bytes) -> str:
    """Why the receiver refused the message; "" if it accepted it. The chat services answer 200 even when they refuse."""
    if not 200 <= status < 300:
        # For example no_service or invalid_payload.
        why = body.decode(errors="replace").strip() if shape == WebhookShape.SLACK else ""
        return f"HTTP {status}: {why[:80]}" if why else f"HTTP {status}"
    if shape in PLAIN:
        return ""
    try:
        answer = json.loads(body)
    except ValueError:
        return "the answer is not JSON"
    if not isinstance(answer, dict):
        return "the answer is not an object"
    code = answer.get("code" if shape == WebhookShape.FEISHU else "errcode", answer.get("StatusCode"))
    return "" if code == 0 else f"{code}: {answer.get('msg') or answer.get('errmsg') or ''}"[:300]
