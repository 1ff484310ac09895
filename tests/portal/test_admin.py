"""The admin shows records to operators, changes none, and never shows a secret."""

from __future__ import annotations

import pytest
from django.urls import reverse
from django.utils import timezone

from portal.admin import site
from portal.models import ApiToken, Role
from quotas.models import PlanPass
from tests import builders as make

pytestmark = pytest.mark.django_db

SECRETS = {"password", "digest", "secret", "connection", "snapshot", "secret_env", "secrets", "token_digest"}


@pytest.fixture
def operator(client):
    user = make.user("root", is_operator=True)
    client.force_login(user)
    return user


@pytest.mark.parametrize("model", list(site._registry), ids=lambda model: model.__name__)
def test_operators_can_open_every_list_but_add_nothing(client, operator, model):
    name = f"admin:{model._meta.app_label}_{model._meta.model_name}"
    assert client.get(reverse(f"{name}_changelist") + "?q=x").status_code == 200
    assert client.get(reverse(f"{name}_add")).status_code == 403
    assert client.post(reverse(f"{name}_add"), {}).status_code == 403
    shown = set(site._registry[model].get_fields(None))
    assert not shown & SECRETS


def test_record_can_be_viewed_but_not_changed_or_deleted(client, operator):
    vision, pool = make.department("vision"), make.pool("a100")
    for row in (
        make.quota(vision, pool, 4),
        make.claim(vision, pool),
        PlanPass.objects.create(group=pool.group, snapshot=b"x"),
    ):
        name = f"admin:quotas_{row._meta.model_name}"
        assert client.get(reverse(f"{name}_change", args=[row.pk])).status_code == 200
        assert client.post(reverse(f"{name}_change", args=[row.pk]), {"guaranteed": 1}).status_code == 403
        assert client.post(reverse(f"{name}_delete", args=[row.pk]), {"post": "yes"}).status_code == 403


def test_page_of_a_token_does_not_show_its_digest(client, operator):
    vision = make.department("vision")
    token = ApiToken.objects.create(
        holder=make.member(vision),
        department=vision,
        name="ci",
        prefix="abc",
        digest="d" * 64,
        expires_at=timezone.now(),
    )
    text = client.get(reverse("admin:portal_apitoken_change", args=[token.pk])).content.decode()
    assert "abc" in text
    assert "dddd" not in text


def test_admin_uses_the_portals_login_and_is_hidden_from_owners(client):
    owner = make.member(make.department("vision"), Role.OWNER, is_staff=True)
    assert client.get("/admin/").headers["Location"] == "/admin/login/?next=/admin/"
    assert client.get("/admin/login/?next=/admin/").headers["Location"] == "/login/?next=/admin/"
    client.force_login(owner)
    assert client.get("/admin/quotas/claim/", follow=True).status_code == 404
    client.force_login(make.user(is_operator=True))
    assert client.get("/admin/login/").headers["Location"] == "/admin/"
