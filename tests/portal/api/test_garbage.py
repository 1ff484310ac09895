"""No input to any operation of the schema causes a server error."""

from __future__ import annotations

import io
import json
import re
from typing import Any

import pytest
from django.utils.translation import override
from drf_spectacular.generators import SchemaGenerator
from rest_framework.exceptions import ParseError

from portal.api.base import BoundedJSON
from portal.models import AuditEntry, Role, Webhook
from quotas.models import ClaimState
from tests import builders as make
from tests.clients import person

pytestmark = [pytest.mark.django_db, pytest.mark.timeout(300)]
BODIES: list[Any] = [
    None, [], {}, "text", 5, [[]], {"": ""}, {"name": {"a": []}}, {"units": 2**80}, {"until": "9999-99-99"},
    {"command": {"a": 1}, "env": [1], "pool": 7, "image": [], "name": 1.5, "cpu": "1e999", "preset": {}},
    {"department": "vision", "pool": "a100", "units": 2**63, "until": "0001-01-01T00:00:00Z"},
    {"department": "vision", "name": "x" * 10_000, "scopes": [None], "expires_at": 1e300, "addresses": [{}]},
    {"guaranteed": 1.5, "borrow_limit": -1, "lend_limit": "∞"}, {"username": "\ud800", "role": None},
    {"name": "\ud800", "env": {"\ud800": "\ud800"}, "command": ["\ud800"]},
    {"units": 10**400}, {"name": 10**400, "cpu": 1e400}, json.loads("[" * 30 + "]" * 30),
    {"seconds": -1}, {"drained": "perhaps"}, {"options": []}, {"options": {"nodes": "x"}},
    {"options": {"nodes": [{"name": "a", "cards": -1}]}},
    {"options": {"namespace_prefix": [], "tolerations": [5], "image_pull_secrets": {"\0": "\0"}}},
    {"kubeconfig": "- [}"}, {"notice": None},
]  # fmt: skip
QUERIES = ["\0", "", "²", "-1", "9" * 40, "9" * 5000, "ü" * 300, "a,b,,", "[]", "NaN"]
HEADERS = [{"If-Match": '"9' + "9" * 30 + '"'}, {"If-None-Match": "*"}, {"If-Match": '"1"', "Idempotency-Key": "k"}]


def operations() -> list[tuple[str, str, list[str]]]:
    schema = SchemaGenerator().get_schema(request=None, public=True)
    return [
        (method, path, [p["name"] for p in operation.get("parameters", ()) if p["in"] == "query"])
        for path, each in schema["paths"].items()
        for method, operation in each.items()
    ]


def filled(path: str) -> str:
    values = {
        "department": "vision",
        "pool": "a100",
        "username": "alice",
        "node": "1",
        "image": "1",
        "path": "a/b",
        "cluster": "here",
        "webhook": str(Webhook.objects.get().pk),
    }
    return re.sub(r"\{(\w+)\}", lambda found: values.get(found[1], "x"), path)


@pytest.fixture
def client() -> Any:
    make.cluster("here")
    pool, vision = make.pool("a100", cards=2), make.department("vision")
    make.quota(vision, pool, 1)
    make.member(vision, Role.MEMBER, "alice")
    make.claim(vision, pool, 1, ClaimState.HOLDING)
    Webhook.objects.create(department=vision, name="ci", url="https://qyapi.weixin.qq.com/")
    client = person(make.user("root", is_operator=True))
    client.raise_request_exception = False
    return client


def test_unexpected_bodies_and_headers_never_cause_a_server_error(client: Any, settings: Any) -> None:
    settings.API_RATE_PER_MINUTE = 10**6
    tried = 0
    for method, path, _names in operations():
        if method in {"post", "put", "patch"}:
            for body, headers in [*((body, {}) for body in BODIES), *(({}, headers) for headers in HEADERS)]:
                answer = getattr(client, method)(
                    filled(path), json.dumps(body), content_type="application/json", headers=headers
                )  # fmt: skip
                assert answer.status_code < 500, (method, path, body, headers, answer.content[:500])
                tried += 1
    assert tried > 400


def test_dry_run_never_changes_anything(client: Any, settings: Any) -> None:
    """An operation without a dry run refuses the parameter before it reads the rest of the request."""
    settings.API_RATE_PER_MINUTE = 10**6
    without = [(method, path) for method, path, names in operations() if method != "get" and "dry_run" not in names]
    assert len(without) > 20
    before = AuditEntry.objects.count()
    for method, path in without:
        answer = getattr(client, method)(f"{filled(path)}?dry_run=1", "{}", content_type="application/json")
        refused = answer.status_code == 422 and [each["attr"] for each in answer.json()["errors"]] == ["dry_run"]
        assert refused, (method, path, answer.content)
    assert AuditEntry.objects.count() == before
    offered = [(method, path) for method, path, names in operations() if method != "get" and "dry_run" in names]
    for method, path in offered:
        answer = getattr(client, method)(f"{filled(path)}?dry_run=1", "{}", content_type="application/json")
        assert "has no dry run" not in answer.content.decode(), (method, path)
    assert AuditEntry.objects.count() == before


RAW = [
    b"[" * 100_000, b'{"a":' * 100_000, b"[" * 900 + b"]" * 900, b'{"units": ' + b"9" * 5000 + b"}", b'{"units": NaN}',
    b"\xff\xfe", b"{", b'{"a": 1, "a": 2}', b'"\\u0000"',
]  # fmt: skip


def test_malformed_json_never_causes_a_server_error(client: Any, settings: Any) -> None:
    settings.API_RATE_PER_MINUTE = 10**6
    for method, path, _names in operations():
        if method in {"post", "put", "patch"}:
            for body in RAW:
                answer = client.generic(method.upper(), filled(path), body, content_type="application/json")
                assert answer.status_code < 500, (method, path, body[:40], answer.content[:500])


def test_number_with_thousands_of_digits_is_refused_with_a_clear_message() -> None:
    with pytest.raises(ParseError, match="too many digits"):
        BoundedJSON().parse(io.BytesIO(b'{"units": ' + b"9" * 5000 + b"}"), parser_context={})


def test_position_of_a_json_error_is_given_in_the_readers_language() -> None:
    with pytest.raises(ParseError, match="line 2, column 4"):
        BoundedJSON().parse(io.BytesIO(b'{\n"a"}'))
    with override("zh-hans"), pytest.raises(ParseError, match="第 2 行第 4 列"):
        BoundedJSON().parse(io.BytesIO(b'{\n"a"}'))


def test_unexpected_query_parameters_never_cause_a_server_error(client: Any, settings: Any) -> None:
    settings.API_RATE_PER_MINUTE = 10**6
    tried = 0
    for method, path, names in operations():
        for name in names if method == "get" else ():
            for value in QUERIES:
                answer = client.get(filled(path), {name: value})
                assert answer.status_code < 500, (path, name, value, answer.content[:500])
                tried += 1
    assert tried > 300
