"""Two tabs edit the same record: every form sends the version it was opened with, and the second edit gets a conflict."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from hypothesis import given
from hypothesis import strategies as st

from portal.access import Actor
from portal.api.base import Moment
from portal.infra import versions
from portal.models import Department, Membership, NoticePreference, Role, User, Webhook
from portal.web import spreadsheets
from quotas.models import Cluster, ClusterKind, Node, Pool, Quota, UserCap
from tests import builders as make
from tests.architecture.doors import World, all_doors, build
from tests.clients import confirmed, person
from tests.portal.web.forms import Forms, forms_of
from workloads.actions import set_shared, sharing_values
from workloads.models import Image, Kind, Preset, Workload
from workloads.nodes import cluster_registry as registry

pytestmark = pytest.mark.django_db


@pytest.fixture
def world(settings: object, tmp_path: Path) -> World:
    settings.DATA_DIR, settings.DEBUG = tmp_path, True  # type: ignore[attr-defined]
    return build()


ADDS_OR_ACTS = (
    # end of the address: what it does instead of editing
    ("/preferences/", "the reader's own switches"),
    ("/tour/", "the reader's own tour"), ("/logout/", "ends"), ("/login/", "begins"), ("/forgotten/", "mails"),
    ("/invite/", "adds"), ("/backtest/", "adds"), ("/calendar/", "adds"),
    ("/members/add/", "adds"), ("/members/service/", "adds"), ("/tokens/", "adds"), ("/webhooks/", "adds"),
    ("/try/", "sends a test"), ("-cluster/", "tests the connection; to switch it is a form of its own"),
    ("/withdraw/", "withdraws"), ("/unlink/", "ends"), ("/accounts/", "links"), ("/second-factor/app/", "sets up"),
    ("/remove/", "removes, after a page that says what is lost"),
    ("/recall/", "adds"), ("/comment/", "adds"), ("/exempt/", "adds"), ("/keep/", "puts a stop off, once"), ("/renew/", "adds"),
    ("/workloads/new/", "adds"), ("/stop/", "stops"), ("/rerun/", "adds"), ("/extend/", "adds time"),
    ("/several/", "stops, or adds time"), ("/templates/", "adds"), ("/delete/", "deletes for good"), ("/filters/", "adds"),
    ("/inbox/read/", "marks"), ("/revoke/", "ends"), ("/end/", "ends"),
    ("/operator/users/", "adds"), ("/operator/departments/", "adds"), ("/operator/clusters/", "adds"), ("/new/", "adds"),
    ("/mode/", "begins a change, after a page that says what"), ("/unpooled/", "adds"),
    ("/files/", "adds"), ("/an-invitation-that-nobody-knows/", "joins"), ("/upload/", "adds"),
    ("/operator/configuration/", "the mark of its plan says it"),
)  # fmt: skip


@pytest.mark.parametrize("role", ["owner", "operator"])
def test_every_edit_form_sends_its_version_and_gets_409_if_it_is_stale(world: World, role: str) -> None:
    client, without, wrong, tried = world.client(role), set(), set(), set()
    for page, action, fields in forms_of(world, role):
        marks = [name for name in fields if name.split("-")[-1] in ("seen", "version")]
        if not marks:
            known = action.endswith(tuple(end for end, _why in ADDS_OR_ACTS))
            if not known and "password" not in str(fields.get("form", "")):
                without.add(f"{page} → {action} {sorted(fields)}")
            continue
        old = {name: "0123456789abcdef" if name.endswith("seen") else "99999" for name in marks if fields[name]}
        if not old:
            continue  # about a record that does not exist yet
        answer = client.post(action, fields | old)
        tried.add(action)
        if answer.status_code != 409 or ("data-conflict" not in answer.content.decode() and "version" not in marks):
            wrong.add(f"{page} → {action}: {answer.status_code}")
    assert without == set()
    assert wrong == set()
    assert len(tried) > (4 if role == "owner" else 12), tried


def sent(client: Client, path: str, action: str = "") -> dict[str, str]:
    """The fields that the form on the page would send unchanged."""
    for to, fields in Forms(client.get(path).content.decode(), path).found:
        if to == (action or path) and any(name.split("-")[-1] in ("seen", "version") for name in fields):
            return fields
    raise AssertionError(f"no form on {path} leads to {action}")


def stored_value(kind: str, world: World) -> Any:
    """The stored value that the form edits."""
    return {
        "image": lambda: Image.objects.get().title, "preset": lambda: Preset.objects.get().title,
        "cluster": lambda: Cluster.objects.get().active, "webhook": lambda: Webhook.objects.get().active,
        "member": lambda: Membership.objects.get(user__username="member").role,
        "cap": lambda: UserCap.objects.values_list("units", flat=True).first(),
        "quota": lambda: Quota.objects.get().lend_limit,
    }[kind]()  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "first", "second"),
    [
        ("image", {"title": "Python A"}, {"title": "Python B"}),
        ("preset", {"title": "Small A"}, {"title": "Small B"}),
        ("cluster", {"active": ""}, {"active": ""}),
        ("webhook", {"active": ""}, {"active": ""}),
        ("member", {"role": "viewer"}, {"role": "owner"}),
        ("cap", {"a100-units": "2"}, {"a100-units": "3"}),
        ("quota", {"lend_limit": "1"}, {"lend_limit": "2"}),
    ],
)
def test_second_tab_sees_both_values_and_can_then_overwrite(
    world: World, kind: str, first: dict[str, str], second: dict[str, str]
) -> None:
    values, client = world.values, world.client("operator")
    page, action = {
        "image": (f"/operator/images/{values['image']}/",) * 2,
        "preset": (f"/operator/presets/{values['preset']}/",) * 2,
        "cluster": ("/operator/clusters/", f"/operator/clusters/{values['cluster']}/"),
        "webhook": ("/d/vision/webhooks/", f"/d/vision/webhooks/{values['webhook']}/switch/"),
        "member": ("/d/vision/members/", "/d/vision/members/member/role/"),
        "cap": ("/d/vision/caps/", "/d/vision/caps/a100/"),
        "quota": ("/d/vision/quotas/a100/",) * 2,
    }[kind]  # fmt: skip
    one, two = sent(client, page, action), sent(client, page, action)
    assert confirmed(client, action, one | first).status_code in (200, 302)
    kept = stored_value(kind, world)
    answer = client.post(action, two | second)
    text = answer.content.decode()
    assert answer.status_code == 409
    assert "data-conflict" in text
    assert stored_value(kind, world) == kept
    if kind in ("image", "preset", "cap", "quota"):  # the form is shown again with its input
        again = next(fields for to, fields in Forms(text, page).found if to == action and set(second) <= set(fields))
        assert [again[name] for name in second] == list(second.values())
        assert all(value in text for value in first.values())
        assert client.post(action, again).status_code in (200, 302)
        assert stored_value(kind, world) != kept


def test_notice_preferences_are_not_overwritten_by_an_older_tab(world: World) -> None:
    client, path = world.client("owner"), "/inbox/settings/"
    one, two = sent(client, path), sent(client, path)
    mail = next(name for name in one if name.startswith("mail:"))
    assert client.post(path, {name: value for name, value in one.items() if name != mail}).status_code == 302
    kept = list(NoticePreference.objects.order_by("kind").values("kind", "inbox", "mail"))
    answer = client.post(path, two)
    text = answer.content.decode()
    assert (answer.status_code, "stored: off; yours: on" in text) == (409, True)
    assert list(NoticePreference.objects.order_by("kind").values("kind", "inbox", "mail")) == kept
    again = next(fields for to, fields in Forms(text, path).found if to == path)
    assert mail in again
    assert client.post(path, again).status_code == 302
    assert NoticePreference.objects.get(kind=mail.removeprefix("mail:")).mail


def test_a_member_whose_role_changed_meanwhile_is_not_removed(world: World) -> None:
    client, path = world.client("operator"), "/d/vision/members/member/remove/"
    fields = sent(client, path)
    Membership.objects.filter(user__username="member").update(role=Role.OWNER)
    answer = client.post(path, fields)
    assert (answer.status_code, "data-conflict" in answer.content.decode()) == (409, True)
    assert Membership.objects.filter(user__username="member").exists()
    assert client.post(path, sent(client, path)).status_code == 302


def test_sharing_of_a_notebook_cannot_be_changed_with_a_stale_version(world: World) -> None:
    author, vision, pool = (
        User.objects.get(username="member"),
        Department.objects.get(slug="vision"),
        Pool.objects.get(),
    )
    book = Workload.objects.create(
        kind=Kind.NOTEBOOK, name="book", author=author, department=vision, pool=pool, image=Image.objects.get(), units_per_pod=1,
    )  # fmt: skip
    actor = Actor(author)
    seen = versions.mark(sharing_values(book))
    set_shared(actor=actor, workload=book, shared=True, seen=seen)
    with pytest.raises(versions.Conflict):
        set_shared(actor=actor, workload=book, shared=True, seen=seen)
    book.refresh_from_db()
    assert book.shared


def test_product_pin_set_meanwhile_is_not_overwritten(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "refresh", lambda cluster: None)
    Cluster.objects.update(kind=ClusterKind.KUBERNETES)
    client, node = world.client("operator"), Node.objects.first()
    assert node is not None
    path, action = f"/operator/nodes/{node.pk}/mode/", f"/operator/nodes/{node.pk}/pin/"
    one, two = sent(client, path, action), sent(client, path, action)
    assert client.post(action, one | {"product": "NVIDIA-L20"}).status_code == 302
    answer = client.post(action, two | {"product": "NVIDIA-L40"})
    assert (answer.status_code, "NVIDIA-L20" in answer.content.decode()) == (409, True)
    assert Cluster.objects.get().options["products"] == {node.name: "NVIDIA-L20"}


def test_marks_differ_when_anything_differs() -> None:
    assert versions.mark({"a": 1, "b": [1]}) == versions.mark({"b": [1], "a": 1})
    assert len({versions.mark({"a": value}) for value in (None, 0, "", "0", False, [], {})}) == 7
    versions.check({"a": 1}, "")
    with pytest.raises(versions.Conflict):
        versions.check({"a": 2}, versions.mark({"a": 1}))


# Times ---------------------------------------------------------------------------------------------------------------


def test_time_without_a_zone_is_422_everywhere_in_the_api() -> None:
    from rest_framework import serializers

    from portal.api.base import Strict
    from tests.portal.test_names import ours

    naive = [
        f"{shape.__qualname__}.{name}"
        for shape in ours(Strict)
        for name, field in shape().fields.items()
        if isinstance(field, serializers.DateTimeField) and not isinstance(field, Moment)
    ]
    assert naive == []
    vision = make.department("vision")
    olga = make.member(vision, Role.OWNER, "olga")
    pool = make.pool("a100", cards=4)
    make.quota(vision, pool, 4)
    for text in ("2999-01-31T18:00:00", "2999-01-31T18:00", "2999-01-31 18:00"):
        body = {"department": "vision", "pool": "a100", "units": 1, "until": text}
        answer = person(olga).post("/api/v1/recalls/", body)
        assert (answer.status_code, answer.json()["errors"][0]["attr"]) == (422, "until"), text
        body = {"department": "vision", "name": "ci", "scopes": ["read"], "expires_at": text}
        answer = person(olga).post("/api/v1/tokens/", body)
        assert (answer.status_code, answer.json()["errors"][0]["attr"]) == (422, "expires_at"), text
    for text in ("2999-01-31T18:00:00Z", "2999-01-31T18:00:00+08:00"):
        assert person(olga).post("/api/v1/recalls/?dry_run=1", body | {"until": text}).status_code != 400


# CSV -----------------------------------------------------------------------------------------------------------------

FORMULAS = ["=1+1", "+1", "-1", "@x", "\t=1", "\r=1", "\n=1", "  =1", "＝1+1", "＋1", "－1", "＠x",
            "\u3000=1", "\u00a0+1"]  # fmt: skip


@pytest.mark.parametrize("text", FORMULAS, ids=ascii)
def test_cell_that_looks_like_a_formula_is_quoted(text: str) -> None:
    assert spreadsheets.cell(text) == f"'{text}"


@given(st.text(max_size=20))
def test_a_cell_is_the_text_or_the_text_after_a_quote(text: str) -> None:
    assert spreadsheets.cell(text) in (text, f"'{text}")
    assert not spreadsheets.cell(text).lstrip().startswith(("=", "+", "-", "@", "＝", "＋", "－", "＠"))


@pytest.mark.timeout(600)
def test_every_csv_file_has_a_byte_order_mark_and_no_formula(world: World) -> None:
    """Every address whose response is CSV, and every page that links to itself as CSV."""
    User.objects.filter(username="owner").update(first_name="=cmd", last_name="＝x")
    client, found = world.client("operator"), []
    client.post("/operator/departments/", {"slug": "nlp", "name": "＝HYPERLINK(1)", "parent": "", "weight": 1})
    for door in all_doors(world):
        if door.is_api or door.path.startswith(("/help/", "/operator/design/")):
            continue  # no CSV there but an example of a list
        client = world.client("operator")  # some addresses end a session
        answer = client.get(door.path)
        if not answer.streaming and b'href="?format=csv"' in answer.content:
            answer = client.get(door.path, {"format": "csv"})
            assert answer.headers["Content-Type"].startswith("text/csv"), door
        if answer.headers.get("Content-Type", "").startswith("text/csv"):
            found.append(str(door))
            whole = b"".join(answer.streaming_content) if answer.streaming else answer.content
            assert whole.startswith(b"\xef\xbb\xbf"), door
            for row in csv.reader(io.StringIO(whole.decode("utf-8-sig"))):
                assert [text for text in row if text.lstrip().startswith(spreadsheets.FORMULA)] == []
    assert {"portal:operator_audit", "portal:operator_users", "quotas:usage_export", "workloads:everywhere"} <= set(
        found
    )


def test_only_the_spreadsheets_module_writes_csv() -> None:
    from tests.architecture.sources import files, imports, name

    assert [name(path) for path in files("portal", "quotas", "workloads") if "csv" in set(imports(path))] == [
        "portal/web/spreadsheets.py"
    ]
