"""What each kind of webhook receiver expects: body, signature, and how it acknowledges a message. Pure.

| shape | body | signature | taken when |
|---|---|---|---|
| generic | JSON with kind, text, facts | `X-Portal-Signature: t=<s>,v1=<hex HMAC-SHA256 of "t.body">` | 2xx |
| WeCom group robot | msgtype text | none, the key is in the address | errcode 0 |
| Feishu custom bot | msg_type text | timestamp (s) and sign in the body; key "t\\nsecret", empty message | code 0 |
| DingTalk custom robot | msgtype text | timestamp (ms) and sign in the query; key secret, message "t\\nsecret" | errcode 0 |

Sources: developer.work.weixin.qq.com/document/path/91770, open.feishu.cn/document/client-docs/bot-v3/add-custom-bot,
open.dingtalk.com/document/robots/customize-robot-security-settings.
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


@dataclass(frozen=True, slots=True)
class Message:
    """One notice to be sent; `now` in seconds since 1970, `id` the same for every try."""

    id: str
    kind: str
    text: str
    facts: Mapping[str, Any]
    now: float


@dataclass(frozen=True, slots=True)
class Outgoing:
    url: str
    body: bytes
    headers: dict[str, str] = field(default_factory=dict)


def outgoing(shape: str, url: str, secret: str, message: Message) -> Outgoing:
    match shape:
        case WebhookShape.WECOM:
            return _json(url, {"msgtype": "text", "text": {"content": message.text}})
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
    data = {"id": message.id, "kind": message.kind, "text": message.text, "facts": dict(message.facts)}
    plain = _json(url, data, {"X-Portal-Event": message.kind, "X-Portal-Delivery": message.id})
    if not secret:
        return plain
    signed = signature(secret, plain.body, int(message.now))
    return Outgoing(url, plain.body, {**plain.headers, "X-Portal-Signature": signed})


def signature(secret: str, body: bytes, at: int) -> str:
    """The signature header. The time is part of what is signed, so that an old message cannot be replayed."""
    digest = hmac.new(secret.encode(), str(at).encode() + b"." + body, hashlib.sha256).hexdigest()
    return f"t={at},v1={digest}"


def _feishu(url: str, secret: str, message: Message) -> Outgoing:
    data: dict[str, Any] = {"msg_type": "text", "content": {"text": message.text}}
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
    return _json(url, {"msgtype": "text", "text": {"content": message.text}})


def refusal(shape: str, status: int, body: bytes) -> str:
    """Why the receiver refused the message; "" if it accepted it. The chat services answer 200 even when they refuse."""
    if not 200 <= status < 300:
        return f"HTTP {status}"
    if shape == WebhookShape.GENERIC:
        return ""
    try:
        answer = json.loads(body)
    except ValueError:
        return "the answer is not JSON"
    if not isinstance(answer, dict):
        return "the answer is not an object"
    code = answer.get("code" if shape == WebhookShape.FEISHU else "errcode", answer.get("StatusCode"))
    return "" if code == 0 else f"{code}: {answer.get('msg') or answer.get('errmsg') or ''}"[:300]
