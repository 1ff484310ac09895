"""Images, presets and the capacity of pools, managed by operators through the API."""

from __future__ import annotations

from typing import Any

import pytest

from portal.api.base import ApiView
from portal.models import AuditEntry, Department, Role
from quotas.models import Pool
from tests import builders as make
from tests.clients import person, program
from workloads.api import catalogue
from workloads.models import Image, Preset

pytestmark = pytest.mark.django_db
API = "/api/v1/"
IMAGE = {"name": "registry.example:5000/torch:2", "title": "Torch", "kinds": ["job"], "min_driver": 535}
PRESET = {
    "id": "quick", "title": "Quick", "kind": "service", "pool": "l4", "image": IMAGE["name"], "amount": "6 GiB", "cpu": 0.5,
    "memory_mib": 4096, "command": ["python", ""], "setup": {"port": 8000},
}  # fmt: skip


@pytest.fixture
def vision() -> Department:
    make.pool("l4", cards=2, units_per_card=24_576, unit="MiB", sharing="hami")
    return make.department("vision")


@pytest.fixture
def root(vision: Department) -> Any:
    return person(make.user("root", is_operator=True))


def test_images_and_presets_can_be_created_changed_and_deactivated(root: Any, vision: Department) -> None:
    created = root.post(API + "images/", IMAGE, headers={"Idempotency-Key": "1"})
    assert (created.status_code, created["Location"]) == (201, f"{API}images/{created.json()['id']}/")
    again = root.post(API + "images/", IMAGE, headers={"Idempotency-Key": "1"})
    assert (again.json(), again["Content-Type"]) == (created.json(), "application/json")
    preset = root.post(API + "presets/", PRESET)
    assert (preset.status_code, preset["Location"]) == (201, f"{API}presets/quick/")
    row = Preset.objects.get()
    assert (row.units_per_pod, row.cpu_milli, row.command, row.setup) == (6144, 500, ["python", ""], {"port": 8000})
    assert root.patch(API + "presets/quick/", {"amount": "12 GiB", "active": False}).json()["units_per_pod"] == 12_288
    assert root.patch(created["Location"], {"title": "Torch 2"}).json()["title"] == "Torch 2"
    member = person(make.member(vision))
    assert member.get(API + "presets/quick/").status_code == 404
    assert member.get(created["Location"]).json()["title"] == "Torch 2"
    assert root.get(API + "presets/quick/").json()["active"] is False
    assert list(AuditEntry.objects.order_by("pk").values_list("action", flat=True)) == [
        "image.added", "preset.added", "preset.changed", "image.changed",
    ]  # fmt: skip


def test_invalid_image_or_preset_is_rejected_with_its_field(root: Any) -> None:
    root.post(API + "images/", IMAGE)
    root.post(API + "presets/", PRESET)
    for path, body, field in (
        ("images/", IMAGE, "name"), ("presets/", PRESET, "id"), ("presets/", PRESET | {"id": "p", "pool": "x"}, "pool"),
        ("presets/", PRESET | {"id": "p", "image": "x"}, "image"), ("presets/", PRESET | {"id": "p", "amount": "x"}, "amount"),
        ("presets/", PRESET | {"id": "p", "amount": "6 MiB"}, "units_per_pod"), ("presets/", PRESET | {"id": "A b"}, "id"),
        ("presets/", PRESET | {"id": "p", "setup": {"port": 0}}, "setup.port"), ("images/", {"name": "n"}, "title"),
        ("images/", IMAGE | {"name": "n", "title": "раураl"}, "title"), ("images/", IMAGE | {"name": "n", "x": 1}, "x"),
    ):  # fmt: skip
        answer = root.post(API + path, body)
        assert (answer.status_code, answer.json()["errors"][0]["attr"]) == (422, field), answer.json()
    assert (Image.objects.count(), Preset.objects.count()) == (1, 1)


def test_image_known_only_from_external_workloads_can_be_added_as_new(root: Any) -> None:
    hidden = Image.objects.create(name=IMAGE["name"], title="?", kinds=["external"], active=False)
    assert root.get(f"{API}images/{hidden.pk}/").status_code == 404
    assert root.patch(f"{API}images/{hidden.pk}/", {"title": "x"}).status_code == 404
    refused = root.post(API + "images/", IMAGE | {"kinds": ["external"]})
    assert (refused.status_code, refused.json()["errors"][0]["attr"]) == (422, "kinds.0")
    created = root.post(API + "images/", IMAGE)
    assert (created.status_code, created.json()["id"]) == (201, str(hidden.pk))
    row = Image.objects.get()
    assert (row.title, row.kinds, row.min_driver, row.active) == ("Torch", ["job"], 535, True)
    assert AuditEntry.objects.get().action == "image.added"
    assert root.post(API + "images/", IMAGE).status_code == 422
    refused = root.post(API + "presets/", PRESET | {"kind": "external"})
    assert (refused.status_code, refused.json()["errors"][0]["attr"]) == (422, "kind")


@pytest.mark.parametrize(
    ("view", "path"), [(catalogue.ImageView, "images/{id}/"), (catalogue.PresetView, "presets/quick/")]
)
def test_change_is_rejected_if_another_change_was_saved_meanwhile(
    root: Any, monkeypatch: pytest.MonkeyPatch, view: type[ApiView], path: str
) -> None:
    image = root.post(API + "images/", IMAGE).json()["id"]
    root.post(API + "presets/", PRESET)
    url, read, meanwhile = API + path.format(id=image), view.read, [{"active": False}]

    def overtaken(*args: Any) -> Any:
        """Lets a second request change the row after the first one has loaded it."""
        if meanwhile:
            assert root.patch(url, meanwhile.pop()).status_code == 200
        return read(*args)

    monkeypatch.setattr(view, "read", overtaken)
    refused = root.patch(url, {"title": "First"})
    assert (refused.status_code, refused.json()["code"]) == (409, "changed_meanwhile")
    assert root.get(url).json()["active"] is False
    done = root.patch(url, {"title": "First"}).json()
    assert (done["title"], done["active"]) == ("First", False)


def test_capacity_can_be_previewed_and_set_but_not_below_the_guarantees(root: Any, vision: Department) -> None:
    pool = Pool.objects.get()
    make.quota(vision, pool, 24_576)
    url = API + "pools/l4/capacity/"
    assert root.put(url + "?dry_run=1", {"nominal": 30_000}).json()["sentence"] == "No workload is affected now."
    assert Pool.objects.get().nominal == 49_152
    assert root.put(url, {"nominal": 30_000}).json()["nominal"] == 30_000
    refused = root.put(url, {"nominal": 1024})
    assert (refused.status_code, refused.json()["code"]) == (409, "over_promised")


def test_only_operators_can_change_images_presets_and_capacity(root: Any, vision: Department) -> None:
    root.post(API + "images/", IMAGE)
    root.post(API + "presets/", PRESET)
    owner = make.member(vision, Role.OWNER)
    for client in (person(owner), program(owner, vision)):
        codes = [
            client.post(API + "images/", IMAGE).status_code, client.post(API + "presets/", PRESET).status_code,
            client.patch(f"{API}images/{Image.objects.get().pk}/", {"title": "x"}).status_code,
            client.patch(API + "presets/quick/", {"title": "x"}).status_code,
            client.put(API + "pools/l4/capacity/", {"nominal": 1}).status_code,
        ]  # fmt: skip
        assert codes == [404] * 5
