"""Templates of requests: saved from the form, used in it, renamed and deleted, by whom they belong to."""

from __future__ import annotations

from typing import Any

import pytest
from django.urls import reverse

from portal.access import Actor
from portal.models import AuditEntry, Department, User
from tests.workloads.pages.test_clone import Fields
from tests.workloads.pages.test_workloads import World, as_, new
from workloads.models import RequestTemplate
from workloads.requests import request_templates

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def world() -> World:
    return World()


def page(name: str, department: Department, *more: str) -> str:
    return reverse(f"workloads:{name}", args=[department.slug, *more])


def save(who: User, world: World, title: str = "nightly", **changes: Any) -> Any:
    form = world.form(**changes) | {"template_title": title}
    return as_(who).post(page("templates", world.vision), form, headers={"HX-Request": "true"})


def kept(who: User, world: World, title: str = "nightly", **changes: Any) -> RequestTemplate:
    answer = save(who, world, title, **changes)
    assert answer.status_code == 200, answer.content.decode()
    return RequestTemplate.objects.get(name=title, department=world.vision)


ODD = {
    "command": "python train.py --name 'a  b'",
    "env": "A=1\nB=x y",
    "max_wait": "3h",
    "own_only": "on",
    "units_per_pod": "3",
}


def test_a_template_fills_the_form_with_what_was_saved_but_not_with_secret_values(world: World) -> None:
    row = kept(world.alice, world, secret_env="KEY=hush", **ODD)
    assert "hush" not in str(row.body)
    form = Fields(as_(world.alice).get(f"{new(world.vision)}?template={row.public_id}").content.decode()).sent
    assert form["command"] == ODD["command"]
    assert form["env"] == "A=1\r\nB=x y"
    assert (form["units_per_pod"], form["max_wait"], form["own_only"], form["name"]) == ("3", "3h", "on", "sweep")
    assert form["secret_env"] == "KEY="


def test_a_template_can_be_saved_before_its_workloads_have_a_name(world: World) -> None:
    assert kept(world.alice, world, name="").body["name"] == "nightly"


def test_what_is_wrong_with_the_form_is_said_and_nothing_is_kept(world: World) -> None:
    answer = save(world.alice, world, units_per_pod="many", command="")
    assert answer.status_code == 422
    assert "“many” is not a valid amount here" in answer.content.decode()
    assert not RequestTemplate.objects.exists()


def test_a_name_is_a_name_and_given_once(world: World) -> None:
    kept(world.alice, world)
    for title, told in (
        ("nightly", "There is already a template “nightly”"),
        ("", "required"),
        ("раураl", "look like"),
    ):
        answer = save(world.alice, world, title)
        assert answer.status_code == 422
        assert told in answer.content.decode()
    assert save(world.carol, world).status_code == 200  # hers is another one
    assert RequestTemplate.objects.count() == 2


def test_nobody_else_finds_a_personal_template(world: World) -> None:
    row = kept(world.alice, world, "my own")
    for who in (world.carol, world.owner):
        client = as_(who)
        assert "my own" not in client.get(new(world.vision)).content.decode()
        assert "my own" not in client.get(page("templates", world.vision)).content.decode()
        assert client.get(page("template", world.vision, row.public_id)).status_code == 404
        assert client.post(page("template_delete", world.vision, row.public_id)).status_code == 404
        assert "my own" not in client.get(f"{new(world.vision)}?template={row.public_id}").content.decode()
    assert RequestTemplate.objects.filter(pk=row.pk).exists()


def test_owners_keep_templates_for_the_department_and_members_use_them(world: World) -> None:
    assert save(world.alice, world, template_shared="1").status_code == 403
    row = kept(world.owner, world, "for all", template_shared="1")
    client = as_(world.alice)
    assert "for all" in client.get(new(world.vision)).content.decode()
    assert client.get(page("template", world.vision, row.public_id)).status_code == 200
    assert client.post(page("template", world.vision, row.public_id), {"template_title": "mine"}).status_code == 403
    assert client.post(page("template_delete", world.vision, row.public_id)).status_code == 403
    assert as_(world.viewer).get(page("templates", world.vision)).status_code == 403
    assert as_(world.stranger).get(page("template", world.vision, row.public_id)).status_code == 404


def test_renaming_and_deleting_leave_a_line_in_the_audit_log(world: World) -> None:
    first, second = kept(world.alice, world), kept(world.alice, world, "weekly")
    client = as_(world.alice)
    old = {"template_title": "other", "seen": "0123456789abcdef"}
    assert client.post(page("template", world.vision, second.public_id), old).status_code == 409
    refused = client.post(page("template", world.vision, second.public_id), {"template_title": "nightly"})
    assert refused.status_code == 422
    assert "already a template" in refused.content.decode()
    assert (
        client.post(page("template", world.vision, second.public_id), {"template_title": "monthly"}).status_code == 302
    )
    assert client.post(page("template_delete", world.vision, first.public_id)).status_code == 302
    assert list(RequestTemplate.objects.values_list("name", flat=True)) == ["monthly"]
    told = AuditEntry.objects.filter(action__startswith="template.").order_by("pk").values_list("action", "target")
    assert [*told] == [
        ("template.saved", "nightly"),
        ("template.saved", "weekly"),
        ("template.renamed", "monthly"),
        ("template.deleted", "nightly"),
    ]


def test_a_template_of_what_is_gone_says_so_and_the_form_begins_with_something_else(world: World) -> None:
    row = kept(world.alice, world)
    RequestTemplate.objects.update(body=row.body | {"pool": "sold", "image": "removed:1", "preset": "none"})
    text = as_(world.alice).get(f"{new(world.vision)}?template={row.public_id}").content.decode()
    assert "Some of its values are no longer available here: Pool, Image." in text
    assert as_(world.alice).get(page("templates", world.vision)).status_code == 200


def test_there_is_a_most(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_templates, "MOST", 1)
    kept(world.alice, world)
    answer = save(world.alice, world, "one more")
    assert answer.status_code == 422
    assert "There are already 1 templates" in answer.content.decode()


def test_programs_keep_and_use_the_same_templates(world: World) -> None:
    client, where = as_(world.owner), reverse("api:request-templates", args=["vision"])
    body = {"kind": "job", "name": "sweep", "pool": "a100", "image": world.image.name, "command": ["true"], "units_per_pod": 2,
            "env": {"A": "1", "KEY": {"secret": "hush"}}}  # fmt: skip

    def send(method: str, path: str, data: Any) -> Any:
        return getattr(client, method)(path, data, content_type="application/json")

    made = send("post", where, {"name": "for all", "shared": True, "request": body})
    assert made.status_code == 201, made.content
    assert made.json()["request"]["env"] == {"A": "1", "KEY": {"secret": ""}}
    assert [row["name"] for row in as_(world.alice).get(where).json()["results"]] == ["for all"]
    sent = made.json()["request"] | {"env": {}}
    assert send("post", reverse("api:department-workloads", args=["vision"]), sent).status_code == 202
    one = made.headers["Location"]
    assert send("patch", one, {"name": "renamed"}).json()["name"] == "renamed"
    wrong = send("post", where, {"name": "x", "request": body | {"cpu": 2, "command": []}})
    assert wrong.status_code == 422
    assert wrong.json()["errors"][0]["attr"] == "request.command"
    assert as_(world.alice).delete(one).status_code == 403
    assert as_(world.stranger).get(one).status_code == 404
    assert client.delete(one).status_code == 204
    assert not RequestTemplate.objects.exists()


def test_the_system_itself_keeps_none_of_its_own(world: World) -> None:
    assert [*request_templates.templates_of(Actor(None), world.vision)] == []
