"""Changes that are hard to undo are confirmed together with their effects, and have the effects that were shown."""

from __future__ import annotations

import random
import re
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from portal.access import Actor
from portal.models import ApiToken, Role, User
from quotas.models import Claim, ClaimState, Cluster, Node, Pool
from quotas.planning.run_pass import run_pass
from quotas.previews.recall import preview_recall
from quotas.rules import recalls
from tests import builders as make
from tests.clients import token_of

pytestmark = pytest.mark.django_db(transaction=True)


def page(user: User) -> Client:
    client = Client()
    client.force_login(user, backend="django.contrib.auth.backends.ModelBackend")
    return client


def confirmed(client: Client, path: str, fields: dict[str, Any], *words: str) -> Any:
    """Sends the form, expects a request for confirmation with these words, and sends it again with the mark of the page."""
    response = client.post(path, fields)
    text = response.content.decode()
    assert response.status_code == 409
    assert "data-confirm" in text
    assert [word for word in words if word not in text] == []
    mark = re.findall(r'name="confirmed" value="(\w+)"', text)[0]
    for name, value in fields.items():
        assert f'name="{name}" value="{value}"' in text
    return client.post(path, fields | {"confirmed": mark})


@pytest.fixture
def oscar(db: None) -> User:
    return make.user("oscar", is_operator=True)


def test_locking_a_user_and_making_one_an_operator_list_their_effects(oscar: User) -> None:
    vision = make.department("vision")
    mia = make.member(vision, Role.MEMBER, "mia")
    token_of(mia, vision)
    client, path = page(oscar), "/operator/users/mia/"
    response = confirmed(client, path, {"change": "lock"}, "1 token is revoked", "vision")
    mia.refresh_from_db()
    assert (response.status_code, mia.is_active, ApiToken.objects.get().revoked_at is None) == (302, False, False)
    assert client.post(path, {"change": "unlock"}).status_code == 302
    assert (
        confirmed(client, path, {"change": "operator"}, "mia will be able to see the workloads", "quotas").status_code
        == 302
    )
    mia.refresh_from_db()
    assert (mia.is_active, mia.is_operator) == (True, True)


def test_confirmation_is_asked_again_if_the_effects_have_changed(oscar: User) -> None:
    vision = make.department("vision")
    mia = make.member(vision, Role.MEMBER, "mia")
    client, path = page(oscar), "/operator/users/mia/"
    mark = re.findall(r'name="confirmed" value="(\w+)"', client.post(path, {"change": "lock"}).content.decode())[0]
    token_of(mia, vision)
    second = client.post(path, {"change": "lock", "confirmed": mark})
    assert second.status_code == 409
    assert "The situation has changed since the preview" in second.content.decode()
    mia.refresh_from_db()
    assert mia.is_active


def test_switching_a_cluster_off_lists_affected_work_and_guarantees(oscar: User) -> None:
    vision, pool = make.department("vision"), make.pool("a100", name="A100 cards", cards=4)
    make.quota(vision, pool, 4)
    make.claim(vision, pool, 2, ClaimState.HOLDING, workload="w1")
    cluster = pool.group.cluster
    path, client = f"/operator/clusters/{cluster.name}/", page(oscar)
    words = ("1 workload running there", "1 department cannot use", "A100 cards")
    assert confirmed(client, path, {"active": ""}, *words).status_code == 302
    assert not Cluster.objects.get().active
    assert client.post(path, {"active": "1"}).status_code == 302
    assert Cluster.objects.get().active


def test_drain_that_breaks_guarantees_states_by_how_much(oscar: User) -> None:
    vision, pool = make.department("vision"), make.pool("a100", name="A100 cards", cards=4)
    make.quota(vision, pool, 3)
    node = Node.objects.get()
    path, client = f"/operator/nodes/{node.pk}/", page(oscar)
    words = ("A100 cards would have 0 cards, but 3 cards are guaranteed to departments", "3 cards too few")
    assert confirmed(client, path, {"drained": "1"}, *words).status_code == 302
    shown = client.get(path).content.decode()
    name = Node.objects.get().name
    assert f"{name} is drained" in shown
    assert f"Undrain {name}" in shown
    assert f"Drain {name}" not in shown
    seen = re.findall(r'name="seen" value="(\w+)"', shown)[0]
    assert client.post(path, {"drained": "", "seen": seen}).status_code == 302
    assert not Node.objects.get().drained
    assert f"Drain {name}?" in client.get(path).content.decode()


def test_policy_that_keeps_a_guarantee_from_being_reclaimed_states_this(oscar: User) -> None:
    vision, nlp = make.department("vision"), make.department("nlp")
    pool = make.pool("a100", name="A100 cards", cards=4)
    make.quota(vision, pool, 4)
    make.quota(nlp, pool, 0)
    make.claim(nlp, pool, 4, ClaimState.HOLDING, workload="w1", borrowed=4, own=0)
    path = "/operator/policies/departments/vision/"
    path = next(
        each for each in ("/operator/departments/vision/policy/", path) if page(oscar).get(each).status_code == 200
    )
    fields = {
        "own": "1",
        "reclaim": "never",
        "within": "never",
        "borrow_preempt": "never",
        "max_priority": "",
        "version": "1",
    }
    response = confirmed(page(oscar), path, fields, "requested the other 4 cards", "have to wait")
    assert response.status_code == 302


def crowded(seed: int) -> tuple[User, Pool]:
    """Others borrow what vision is guaranteed, in claims of random sizes."""
    chance = random.Random(seed)
    vision, nlp, bio = make.department("vision"), make.department("nlp"), make.department("biology")
    pool = make.pool("a100", cards=16)
    make.quota(vision, pool, 12)
    for each in (nlp, bio):
        make.quota(each, pool, 2)
    remaining = 16
    while remaining:
        units = min(remaining, chance.choice([1, 1, 2, 3]))
        make.claim(
            chance.choice([nlp, bio]), pool, units, ClaimState.HOLDING, workload=f"w{remaining}", own=0, borrowed=units,
            priority=chance.choice([-5, 0]),
        )  # fmt: skip
        remaining -= units
    return make.member(vision, Role.OWNER, "olivia"), pool


@pytest.mark.parametrize("seed", range(8))
def test_recall_preempts_exactly_the_workloads_of_its_preview(seed: int) -> None:
    olivia, pool = crowded(seed)
    vision = olivia.memberships.get().department
    actor = Actor(olivia)
    units = random.Random(seed).randint(1, 12)
    shown = {side.claim for side in preview_recall(actor=actor, department=vision, pool=pool, units=units).stopped}
    recalls.create_recall(actor=actor, department=vision, pool=pool, units=units, until=None)
    run_pass(group_id=pool.group_id)
    leaving = set(Claim.objects.filter(state=ClaimState.LEAVING).values_list("public_id", flat=True))
    assert leaving == shown
    assert leaving


def test_recall_whose_preview_has_changed_must_be_confirmed_again() -> None:
    olivia, pool = crowded(1)
    client, fields = page(olivia), {"pool": "a100", "units": "4", "hours": "24"}
    panel = client.get("/d/vision/recall/preview/", fields).content.decode()
    mark = re.findall(r'name="confirmed" value="(\w+)" form="recall"', panel)[0]
    vision = olivia.memberships.get().department
    gone = preview_recall(actor=Actor(olivia), department=vision, pool=pool, units=4).stopped[0].claim
    Claim.objects.filter(public_id=gone).update(state=ClaimState.RELEASED, released_at=timezone.now())
    response = client.post("/d/vision/recall/", fields | {"confirmed": mark})
    text = response.content.decode()
    assert response.status_code == 409
    assert "The situation has changed since the preview" in text
    assert not Claim.objects.filter(pods=0).exists()
    now = re.findall(r'name="confirmed" value="(\w+)"', text)[0]
    assert client.post("/d/vision/recall/", fields | {"confirmed": now}).status_code == 302
    assert Claim.objects.filter(pods=0).count() == 1


def test_recall_whose_preview_was_shown_needs_no_other_confirmation() -> None:
    olivia, _pool = crowded(2)
    client, fields = page(olivia), {"pool": "a100", "units": "3", "hours": "24"}
    assert client.post("/d/vision/recall/", fields).status_code == 409
    panel = client.get("/d/vision/recall/preview/", fields).content.decode()
    mark = re.findall(r'name="confirmed" value="(\w+)"', panel)[0]
    assert client.post("/d/vision/recall/", fields | {"confirmed": mark}).status_code == 302
    assert client.post("/d/vision/recall/", fields | {"units": "5", "confirmed": mark}).status_code == 409
