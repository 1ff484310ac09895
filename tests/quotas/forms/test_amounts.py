"""Forms accept amounts as people write them, and parse the value that they show back to the exact number of units."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from portal.models import Department, Role, User
from quotas.models import Pool, Quota, UserCap
from tests import builders as make

pytestmark = pytest.mark.django_db
GIB = 1024


@pytest.fixture
def pool(db: None) -> Pool:
    return make.pool(
        "t4", cards=4, unit="MiB", units_per_card=16 * GIB, card_mib=16 * GIB, sharing="gpushare", name="T4"
    )


@pytest.fixture
def vision(pool: Pool) -> Department:
    vision = make.department("vision")
    make.quota(vision, pool, 20 * GIB, borrow_limit=1500)
    return vision


def form(**fields: Any) -> dict[str, Any]:
    return {"guaranteed": "20", "borrow_limit": "", "lend_limit": "", "version": 1, "why": ""} | fields


def test_quota_form_accepts_bare_numbers_and_amounts_with_a_unit(
    client: Client, vision: Department, root: User
) -> None:
    client.force_login(root)
    url = "/d/vision/quotas/t4/"
    before = client.get(url).content.decode()
    assert 'value="20 GiB"' in before
    assert 'value="1500 MiB"' in before
    assert "A number without a unit is in GiB; a card has 16 GiB." in before
    assert client.post(url, form(guaranteed="2 cards", borrow_limit="8", lend_limit="half")).status_code == 302
    quota = Quota.objects.get()
    assert (quota.guaranteed, quota.borrow_limit, quota.lend_limit) == (32 * GIB, 8 * GIB, 8 * GIB)


def test_invalid_amount_is_refused_and_kept_in_the_form(client: Client, vision: Department, root: User) -> None:
    client.force_login(root)
    response = client.post("/d/vision/quotas/t4/", form(guaranteed="plenty", borrow_limit="-1", lend_limit="0"))
    assert response.status_code == 422
    text = response.content.decode()
    assert "“plenty” is not a valid amount here. Examples: memory (6 GiB)" in text
    assert "“-1” is not a valid amount here." in text
    assert 'value="plenty"' in text
    assert (
        "not a valid amount here"
        in client.get("/d/vision/quotas/t4/preview/", form(guaranteed="plenty")).content.decode()
    )
    assert client.post("/d/vision/quotas/t4/", form(guaranteed="9" * 9000)).status_code == 422
    assert Quota.objects.get().guaranteed == 20 * GIB


def test_owner_can_set_lend_limit_and_windows_as_amounts_with_a_unit(client: Client, vision: Department) -> None:
    client.force_login(make.member(vision, Role.OWNER))
    window = {f"windows-0-{name}": value for name, value in
              {"days": [0, 1], "start": "09:00", "end": "18:00", "lend_limit": "4 GiB"}.items()}  # fmt: skip
    rows = {"windows-TOTAL_FORMS": 1, "windows-INITIAL_FORMS": 0, "zone": "Asia/Shanghai"}
    url = "/d/vision/quotas/t4/"
    assert client.post(url, form(guaranteed="1", lend_limit="1.5 GiB", **rows, **window)).status_code == 302
    quota = Quota.objects.get()
    # Only an operator changes these, whatever the owner sends.
    assert (quota.guaranteed, quota.borrow_limit) == (
        20 * GIB,
        1500,
    )
    assert (quota.lend_limit, quota.windows[0]["lend_limit"]) == (1536, 4 * GIB)
    assert 'value="4 GiB"' in client.get(url).content.decode()


def test_user_cap_and_nominal_capacity_accept_amounts_with_a_unit(
    client: Client, vision: Department, root: User
) -> None:
    client.force_login(root)
    assert client.post("/d/vision/caps/t4/", {"t4-units": "6 GiB"}).status_code == 200
    assert UserCap.objects.get().units == 6 * GIB
    assert 'value="6 GiB"' in client.get("/d/vision/caps/").content.decode()
    assert client.post("/d/vision/caps/t4/", {"t4-units": "6 eggs"}).status_code == 422
    assert client.post("/operator/pools/t4/", {"form": "nominal", "nominal": "3 cards"}).status_code == 302
    assert Pool.objects.get().nominal == 48 * GIB
    assert 'value="48 GiB"' in client.get("/operator/pools/t4/").content.decode()
