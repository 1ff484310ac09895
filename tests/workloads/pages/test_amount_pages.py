"""Requesting GPU amounts on the page and by the API: only what exists here, in plain words, with what it gives and costs."""

from __future__ import annotations

import html
import re
from typing import Any

import pytest
from django.test import Client

from portal.models import Department, Role, User
from quotas.models import Card, Node, Pool
from tests import builders as make
from tests.clients import person
from workloads.models import Image, Preset, Workload

pytestmark = pytest.mark.django_db


@pytest.fixture
def vision() -> Department:
    return make.department("vision")


@pytest.fixture
def alice(vision: Department) -> User:
    Image.objects.create(name="python:3", title="Python")
    return make.member(vision, Role.MEMBER, "alice")


def shared_pool(vision: Department, sharing: str = "memory", **fields: Any) -> Pool:
    options = {"unit": "MiB", "units_per_card": 15360, "product": "Tesla-T4", "card_mib": 15360}
    pool = make.pool("t4", cards=2, sharing=sharing, **(options | fields))
    make.quota(vision, pool, pool.nominal)
    return pool


def mig_pool(vision: Department) -> Pool:
    pool = make.pool(
        "mig", cards=2, sharing="mig", unit="slice", units_per_card=8, mig="A100-80GB", product="NVIDIA-A100-SXM4-80GB"
    )
    Node.objects.filter(cards__pool=pool).update(instances={"1g.10gb": 4, "3g.40gb": 2})
    make.quota(vision, pool, 16)
    return pool


def page(user: User) -> Client:
    client = Client()
    client.force_login(user, backend="django.contrib.auth.backends.ModelBackend")
    return client


def body(pool: Pool, **fields: Any) -> dict[str, Any]:
    defaults = {"kind": "job", "name": "x", "pool": pool.slug, "image": "python:3", "command": "python", "cpu": "1",
             "memory_mib": "1 GiB", "units_per_pod": "half", "priority": "0"}  # fmt: skip
    return defaults | fields


def test_form_shows_only_fields_that_the_pools_support(vision: Department, alice: User) -> None:
    shared_pool(vision)
    text = page(alice).get("/d/vision/workloads/new/").content.decode()
    assert 'name="profile"' not in text
    assert 'name="cores_per_pod"' not in text
    assert "Shares are not enforced" in text, "the risk is shown where the pool is chosen"


def test_compute_can_be_requested_where_the_system_limits_it(vision: Department, alice: User) -> None:
    pool = shared_pool(vision, "hami")
    Card.objects.update(cores=100)
    client = page(alice)
    assert 'name="cores_per_pod"' in client.get("/d/vision/workloads/new/").content.decode()
    panel = client.post("/d/vision/workloads/new/verdict/", body(pool, units_per_pod="1 GiB", cores_per_pod="90"))
    text = panel.content.decode()
    assert "7% of a T4, 1 GiB, 90 % of its compute, memory limited by software" in text
    assert "Charged to quota: 13.5 GiB, because 90 % of the compute is the larger share." in text


def test_half_a_card_is_recognised_charged_and_submitted(vision: Department, alice: User) -> None:
    pool = shared_pool(vision)
    client = page(alice)
    text = client.post("/d/vision/workloads/new/verdict/", body(pool)).content.decode()
    assert "half a T4, 7.5 GiB, not isolated" in text
    assert "Starts now, from your own quota." in text
    assert client.post("/d/vision/workloads/new/", body(pool)).status_code == 302
    assert Workload.objects.get().units_per_pod == 7680


def test_check_button_shows_the_verdict_without_submitting(vision: Department, alice: User) -> None:
    pool = shared_pool(vision)
    response = page(alice).post("/d/vision/workloads/new/", body(pool, check="1"))
    assert response.status_code == 200
    assert "half a T4, 7.5 GiB, not isolated" in response.content.decode()
    assert not Workload.objects.exists()


def test_only_existing_mig_profiles_are_offered_and_memory_selects_one(vision: Department, alice: User) -> None:
    pool = mig_pool(vision)
    client = page(alice)
    text = client.get("/d/vision/workloads/new/").content.decode()
    assert "3g.40gb · 39.2 GiB" in text
    assert "2g.20gb" not in text
    refused = client.post("/d/vision/workloads/new/", body(pool, units_per_pod="30 GiB"))
    assert refused.status_code == 422
    assert "“30 GiB” is interpreted as 3g.40gb: half an A100 80GB, about 39.2 GiB here." in refused.content.decode()
    became = re.search('name="became" value="([^"]*)"', refused.content.decode())
    assert became is not None
    response = client.post(
        "/d/vision/workloads/new/", body(pool, units_per_pod="30 GiB", became=html.unescape(became[1]))
    )
    assert response.status_code == 302
    assert (Workload.objects.get().profile, Workload.objects.get().units_per_pod) == ("3g.40gb", 4)


@pytest.mark.parametrize("text", ["many", "0", "5 bananas", ""])
def test_invalid_amount_is_refused_at_its_field(vision: Department, alice: User, text: str) -> None:
    response = page(alice).post("/d/vision/workloads/new/", body(shared_pool(vision), units_per_pod=text))
    assert response.status_code == 422
    assert 'id="id_units_per_pod_error"' in response.content.decode()


def test_amount_between_two_steps_is_refused_with_the_number_and_the_step(vision: Department, alice: User) -> None:
    pool = shared_pool(vision, "qgpu", units_per_card=14336)
    Card.objects.update(cores=100)
    response = page(alice).post("/d/vision/workloads/new/", body(pool, units_per_pod="4 GiB", cores_per_pod="7"))
    assert response.status_code == 422
    assert "in steps of 5; 7 is not valid" in response.content.decode()


def test_rounded_amount_is_submitted_only_after_the_user_has_seen_it(vision: Department, alice: User) -> None:
    pool = make.pool("a100", cards=4)
    make.quota(vision, pool, 4)
    client, new = page(alice), "/d/vision/workloads/new/"
    fields = body(pool, units_per_pod="1.5")
    assert client.post(new, fields).status_code == 422
    assert not Workload.objects.exists()
    panel = client.post(f"{new}verdict/", fields).content.decode()
    assert "“1.5” is interpreted as 2 cards here." in panel
    became = html.unescape(re.findall('name="became" value="([^"]*)"', panel)[0])
    other = client.post(new, fields | {"units_per_pod": "2.5", "became": became})  # confirmed for another amount
    assert (other.status_code, "3 cards" in other.content.decode()) == (422, True)
    assert client.post(new, fields | {"became": became}).status_code == 302
    assert Workload.objects.get().units_per_pod == 2


def test_memory_without_a_unit_means_gib_in_form_and_api(vision: Department, alice: User) -> None:
    pool = shared_pool(vision, "hami")
    Card.objects.update(cores=100)
    client, new = page(alice), "/d/vision/workloads/new/"
    text = client.get(new).content.decode()
    assert 'data-label="GPU memory (GiB)"' in text
    assert 'data-unit="GiB" data-first="15 GiB"' in text
    assert client.post(new, body(pool, units_per_pod="6", memory_mib="2")).status_code == 302
    created = Workload.objects.get()
    assert (created.asked_per_pod, created.memory_mib) == (6144, 2048)
    again = client.get(f"{new}?from={created.public_id}").content.decode()
    assert 'value="6 GiB"' in again
    assert person(alice).post(API, job(pool, amount="6")).json()["asked_per_pod"] == 6144
    for too_little in ({"amount": "1 MiB"}, {"units_per_pod": 1}):
        refused = person(alice).post(API, job(pool, **too_little))
        assert refused.status_code == 422
        assert "did you mean 1 GiB?" in refused.json()["detail"]
    assert "did you mean 1 GiB?" in client.post(new, body(pool, units_per_pod="1 MiB")).content.decode()
    assert client.post(new, body(pool, memory_mib="16384")).status_code == 422
    assert Workload.objects.count() == 2


def test_preset_accepts_amounts_as_people_write_them(vision: Department) -> None:
    pool, oscar = shared_pool(vision, "hami"), make.user("oscar", is_operator=True)
    image = Image.objects.create(name="python:3", title="Python")
    values = {
        "slug": "small",
        "title": "Small",
        "kind": "job",
        "pool": pool.pk,
        "pods": "1",
        "units_per_pod": "6",
        "image": image.pk,
        "command": "python",
        "cpu_milli": "1000",
        "memory_mib": "8",
        "order": "0",
        "active": "on",
        "setup": "{}",
    }
    client = page(oscar)
    assert client.post("/operator/presets/new/", values).status_code == 302
    preset = Preset.objects.get()
    assert (preset.units_per_pod, preset.memory_mib) == (6144, 8192)
    shown = client.get(f"/operator/presets/{preset.pk}/").content.decode()
    assert [f'value="{text}"' in shown for text in ("6 GiB", "8 GiB")] == [True, True]
    too_little = client.post("/operator/presets/new/", values | {"slug": "tiny", "units_per_pod": "1 MiB"})
    assert (too_little.status_code, "did you mean 1 GiB?" in too_little.content.decode()) == (422, True)


API = "/api/v1/departments/vision/workloads/"


def job(pool: Pool, **fields: Any) -> dict[str, Any]:
    return {"name": "x", "pool": pool.slug, "image": "python:3", "command": ["python"], **fields}


def test_api_accepts_an_amount_and_describes_what_it_gives(vision: Department, alice: User) -> None:
    pool = shared_pool(vision, "hami")
    Card.objects.update(cores=100)
    body = job(pool, amount="half", cores_per_pod=75)
    verdict = person(alice).post(API + "?dry_run=1", body).json()
    assert verdict["given"]["gets"] == "half a T4, 7.5 GiB, 75 % of its compute, memory limited by software"
    assert (verdict["given"]["memory"], verdict["given"]["faults"]) == ("soft", "none")
    created = person(alice).post(API, body).json()
    assert (created["units_per_pod"], created["asked_per_pod"], created["cores_per_pod"]) == (11520, 7680, 75)


@pytest.mark.parametrize(("amount", "units"), [("1.5", 2), ("1.5 cards", 2), ("half", 1), ("25 %", 1), ("2,5", 3)])
def test_api_refuses_amounts_that_would_be_rounded(vision: Department, alice: User, amount: str, units: int) -> None:
    pool = make.pool("a100", cards=4)
    make.quota(vision, pool, 4)
    for query in ("", "?dry_run=1"):
        response = person(alice).post(API + query, job(pool, amount=amount))
        assert (response.status_code, response.json()["becomes"]) == (422, units)
        assert response.json()["errors"][0]["attr"] == "amount"
    assert not Workload.objects.exists()


def test_api_accepts_a_profile_as_an_amount(vision: Department, alice: User) -> None:
    pool = mig_pool(vision)
    created = person(alice).post(API, job(pool, amount="1g.10gb")).json()
    assert (created["profile"], created["units_per_pod"]) == ("1g.10gb", 1)


@pytest.mark.parametrize("extra", [{"amount": "half", "units_per_pod": 5}, {"amount": "lots"}])
def test_api_refuses_contradictory_and_unreadable_amounts(
    vision: Department, alice: User, extra: dict[str, Any]
) -> None:
    response = person(alice).post(API, job(shared_pool(vision), **extra))
    assert response.status_code == 422
    assert response.json()["errors"][0]["attr"] == "amount"


def test_option_of_one_sharing_system_is_offered_validated_stored_and_cloned(vision: Department, alice: User) -> None:
    pool = shared_pool(vision, "vcuda", units_per_card=15104)
    Card.objects.filter(pool=pool).update(cores=100)
    new, client = "/d/vision/workloads/new/", page(alice)
    fields = body(pool, units_per_pod="7680 MiB", cores_per_pod="30")
    assert 'data-extra="core_limit"' in client.get(new).content.decode()
    refused = client.post(new, fields | {"core_limit": "20"})
    assert refused.status_code == 422
    assert "The limit while others are idle is 30 to 100 percent, not 20." in refused.content.decode()
    assert refused.context["form"].errors.keys() == {"core_limit"}
    assert client.post(new, fields | {"core_limit": "50"}).status_code == 302
    workload = Workload.objects.get()
    assert workload.settings.extra == {"core_limit": "50"}
    again = client.get(new, {"from": workload.public_id}).context["form"]
    assert again["core_limit"].value() == "50"
    assert person(alice).get(f"/api/v1/workloads/{workload.public_id}/").json()["setup"]["extra"] == {
        "core_limit": "50"
    }


def test_option_of_another_sharing_system_is_ignored(vision: Department, alice: User) -> None:
    pool = shared_pool(vision)
    cards = make.pool("dra", sharing="dra")
    make.quota(vision, cards, 8)
    text = page(alice).get("/d/vision/workloads/new/").content.decode()
    assert 'data-extra="share"' in text
    response = page(alice).post("/d/vision/workloads/new/", body(pool, share="lab"))
    assert response.status_code == 302
    assert Workload.objects.get().settings.extra == {}


@pytest.mark.parametrize(
    ("unit", "label"),
    [("card", "Cards"), ("MiB", "GPU memory (GiB)")],
)
def test_error_summary_uses_the_same_label_for_the_amount_as_the_page(
    vision: Department, alice: User, unit: str, label: str
) -> None:
    pool = shared_pool(vision) if unit == "MiB" else make.pool("a100", cards=2)
    if unit == "card":
        make.quota(vision, pool, 2)
    response = page(alice).post("/d/vision/workloads/new/", body(pool, units_per_pod="9 parsecs"))
    assert response.status_code == 422
    assert f'<a href="#id_units_per_pod" autofocus>{label}</a>' in response.content.decode()
