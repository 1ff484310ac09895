"""Request templates: saved from the form, used in it, renamed and deleted by those to whom they belong."""

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


def save(user: User, world: World, title: str = "nightly", **changes: Any) -> Any:
    form = world.form(**changes) | {"template_title": title}
    return as_(user).post(page("templates", world.vision), form, headers={"HX-Request": "true"})


def saved_template(user: User, world: World, title: str = "nightly", **changes: Any) -> RequestTemplate:
    response = save(user, world, title, **changes)
    assert response.status_code == 200, response.content.decode()
    return RequestTemplate.objects.get(name=title, department=world.vision)


ODD = {
    "command": "python train.py --name 'a  b'",
    "env": "A=1\nB=x y",
    "max_wait": "3h",
    "own_only": "on",
    "units_per_pod": "3",
}


def test_template_fills_the_form_without_secret_values(world: World) -> None:
    row = saved_template(world.alice, world, secret_env="KEY=hush", **ODD)
    assert "hush" not in str(row.body)
    form = Fields(as_(world.alice).get(f"{new(world.vision)}?template={row.public_id}").content.decode()).sent
    assert form["command"] == ODD["command"]
    assert form["env"] == "A=1\r\nB=x y"
    assert (form["units_per_pod"], form["max_wait"], form["own_only"], form["name"]) == ("3", "3h", "on", "sweep")
    assert form["secret_env"] == "KEY="


def test_template_without_a_workload_name_uses_its_title(world: World) -> None:
    assert saved_template(world.alice, world, name="").body["name"] == "nightly"


def test_invalid_form_is_refused_and_no_template_is_saved(world: World) -> None:
    response = save(world.alice, world, units_per_pod="many", command="")
    assert response.status_code == 422
    assert "“many” is not a valid amount here" in response.content.decode()
    assert not RequestTemplate.objects.exists()


def test_template_name_must_be_valid_and_unique_for_its_owner(world: World) -> None:
    saved_template(world.alice, world)
    for title, problem in (
        ("nightly", "There is already a template “nightly”"),
        ("", "required"),
        ("раураl", "look like"),
    ):
        response = save(world.alice, world, title)
        assert response.status_code == 422
        assert problem in response.content.decode()
    assert save(world.carol, world).status_code == 200  # carol's template is a different one
    assert RequestTemplate.objects.count() == 2


def test_personal_template_is_visible_only_to_its_owner(world: World) -> None:
    row = saved_template(world.alice, world, "my own")
    for user in (world.carol, world.owner):
        client = as_(user)
        assert "my own" not in client.get(new(world.vision)).content.decode()
        assert "my own" not in client.get(page("templates", world.vision)).content.decode()
        assert client.get(page("template", world.vision, row.public_id)).status_code == 404
        assert client.post(page("template_delete", world.vision, row.public_id)).status_code == 404
        assert "my own" not in client.get(f"{new(world.vision)}?template={row.public_id}").content.decode()
    assert RequestTemplate.objects.filter(pk=row.pk).exists()


def test_quota_owners_manage_department_templates_and_members_use_them(world: World) -> None:
    assert save(world.alice, world, template_shared="1").status_code == 403
    row = saved_template(world.owner, world, "for all", template_shared="1")
    client = as_(world.alice)
    assert "for all" in client.get(new(world.vision)).content.decode()
    assert client.get(page("template", world.vision, row.public_id)).status_code == 200
    assert client.post(page("template", world.vision, row.public_id), {"template_title": "mine"}).status_code == 403
    assert client.post(page("template_delete", world.vision, row.public_id)).status_code == 403
    assert as_(world.viewer).get(page("templates", world.vision)).status_code == 403
    assert as_(world.stranger).get(page("template", world.vision, row.public_id)).status_code == 404


def test_saving_renaming_and_deleting_are_audited(world: World) -> None:
    first, second = saved_template(world.alice, world), saved_template(world.alice, world, "weekly")
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
    audited = AuditEntry.objects.filter(action__startswith="template.").order_by("pk").values_list("action", "target")
    assert [*audited] == [
        ("template.saved", "nightly"),
        ("template.saved", "weekly"),
        ("template.renamed", "monthly"),
        ("template.deleted", "nightly"),
    ]


def test_template_with_unavailable_values_names_them_on_the_form(world: World) -> None:
    row = saved_template(world.alice, world)
    RequestTemplate.objects.update(body=row.body | {"pool": "sold", "image": "removed:1", "preset": "none"})
    text = as_(world.alice).get(f"{new(world.vision)}?template={row.public_id}").content.decode()
    assert "Some of its values are no longer available here: Pool, Image." in text
    assert as_(world.alice).get(page("templates", world.vision)).status_code == 200


def test_number_of_templates_is_limited(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_templates, "MOST", 1)
    saved_template(world.alice, world)
    response = save(world.alice, world, "one more")
    assert response.status_code == 422
    assert "There are already 1 templates" in response.content.decode()


def test_templates_can_be_managed_and_used_by_api(world: World) -> None:
    client, url = as_(world.owner), reverse("api:request-templates", args=["vision"])
    body = {"kind": "job", "name": "sweep", "pool": "a100", "image": world.image.name, "command": ["true"], "units_per_pod": 2,
            "env": {"A": "1", "KEY": {"secret": "hush"}}}  # fmt: skip

    def send(method: str, path: str, data: Any) -> Any:
        return getattr(client, method)(path, data, content_type="application/json")

    created = send("post", url, {"name": "for all", "shared": True, "request": body})
    assert created.status_code == 201, created.content
    assert created.json()["request"]["env"] == {"A": "1", "KEY": {"secret": ""}}
    assert [row["name"] for row in as_(world.alice).get(url).json()["results"]] == ["for all"]
    request = created.json()["request"] | {"env": {}}
    assert send("post", reverse("api:department-workloads", args=["vision"]), request).status_code == 202
    template_url = created.headers["Location"]
    assert send("patch", template_url, {"name": "renamed"}).json()["name"] == "renamed"
    refused = send("post", url, {"name": "x", "request": body | {"cpu": 2, "command": []}})
    assert refused.status_code == 422
    assert refused.json()["errors"][0]["attr"] == "request.command"
    assert as_(world.alice).delete(template_url).status_code == 403
    assert as_(world.stranger).get(template_url).status_code == 404
    assert client.delete(template_url).status_code == 204
    assert not RequestTemplate.objects.exists()


def test_system_actor_has_no_templates(world: World) -> None:
    assert [*request_templates.templates_of(Actor(None), world.vision)] == []
