"""A dry run refuses what the write would refuse, with the same status and the same body."""

import datetime as dt
from typing import Any

import pytest
from django.utils import timezone

from portal.models import AuditEntry, Department, Role, User
from quotas.models import Claim, Pool, Quota
from tests import builders as make
from tests.clients import person

pytestmark = pytest.mark.django_db
API = "/api/v1/"
QUOTA = API + "departments/vision/quotas/a100/"
SAME = {"guaranteed": 4, "borrow_limit": None, "lend_limit": None}
OVERLAPPING = {
    **SAME,
    "zone": "UTC",
    "windows": [{"days": [0], "from": "09:00", "to": "18:00", "lend_limit": 1}] * 2,
}


@pytest.fixture
def pool() -> Pool:
    return make.pool("a100", cards=8, nodes=2, notice=600, grace=120)


@pytest.fixture
def olga(vision: Department) -> User:
    return make.member(vision, Role.OWNER, "olga")


def both(user: User, method: str, url: str, body: Any, **headers: str) -> tuple[Any, Any]:
    """The responses to the dry run and to the write that follows it."""
    dry, write = (
        getattr(person(user), method)(url + query, body, headers=headers, format="json") for query in ("?dry_run=1", "")
    )
    return dry, write


@pytest.mark.parametrize(
    ("changes", "headers", "status"),
    [
        (SAME, {"If-Match": '"7"'}, 412),
        (SAME, {"If-None-Match": "*"}, 412),
        ({**SAME, "guaranteed": 5}, {"If-Match": '"1"'}, 403),
        ({**SAME, "guaranteed": 3}, {"If-Match": '"1"'}, 403),
        ({**SAME, "borrow_limit": 2}, {"If-Match": '"1"'}, 403),
        (OVERLAPPING, {"If-Match": '"1"'}, None),
        (SAME, {}, 428),
    ],
)
def test_quota_dry_run_is_refused_as_the_write_is(
    olga: User, pool: Pool, changes: Any, headers: dict[str, str], status: int | None
) -> None:
    dry, write = both(olga, "put", QUOTA, changes, **headers)
    assert write.status_code == status or (status is None and write.status_code >= 400)
    assert (dry.status_code, dry.json()) == (write.status_code, write.json())
    assert Quota.objects.get().version == 1


def test_dry_run_that_promises_too_much_is_refused_as_the_write_is(root: User, vision: Department, pool: Pool) -> None:
    dry, write = both(root, "put", QUOTA, {**SAME, "guaranteed": 9}, **{"If-Match": '"1"'})
    assert (dry.status_code, dry.json()) == (write.status_code, write.json())
    assert (write.json()["promised"], write.json()["nominal"]) == (9, 8)


@pytest.mark.parametrize("fault", [{"until": "2001-01-01T00:00:00Z"}, {"units": 5}, {"units": 0}, {"pool": "none"}])
def test_recall_dry_run_is_refused_as_the_write_is(olga: User, pool: Pool, fault: dict[str, Any]) -> None:
    dry, write = both(olga, "post", API + "recalls/", {"department": "vision", "pool": "a100", "units": 3, **fault})
    assert write.status_code in {404, 422}
    assert (dry.status_code, dry.json()) == (write.status_code, write.json())
    assert not Claim.objects.exists()


def test_recall_with_an_end_in_the_future_is_accepted(olga: User, pool: Pool) -> None:
    until = (timezone.now() + dt.timedelta(hours=1)).isoformat()
    body = {"department": "vision", "pool": "a100", "units": 3, "until": until}
    dry, write = both(olga, "post", API + "recalls/", body)
    assert (dry.status_code, write.status_code) == (200, 201)


@pytest.mark.parametrize(
    ("method", "place", "body"),
    [
        ("put", "pools/a100/policy/", {"within": "never", "reclaim": "never", "borrow_preempt": None}),
        ("put", "departments/vision/policy/", {"within": "never", "reclaim": "never", "borrow_preempt": None}),
        ("delete", "departments/vision/quotas/a100/policy/", None),
        ("patch", "pools/a100/", {"notice": 30}),
    ],
)
def test_stale_version_is_refused_by_dry_run_and_write(
    root: User, vision: Department, pool: Pool, method: str, place: str, body: Any
) -> None:
    dry, write = both(root, method, API + place, body, **{"If-Match": '"3"'})
    assert write.status_code == 412
    assert (dry.status_code, dry.json()) == (412, write.json())
    assert not AuditEntry.objects.exists()


def test_invalid_weight_is_refused_by_preview_and_write(root: User, vision: Department, pool: Pool) -> None:
    dry = person(root).get(API + "departments/vision/preview/?weight=0")
    write = person(root).patch(API + "departments/vision/", {"weight": 0}, headers={"If-Match": '"1"'}, format="json")
    assert (dry.status_code, write.status_code) == (422, 422)
    assert dry.json()["errors"][0]["attr"] == write.json()["errors"][0]["attr"] == "weight"
    assert person(root).get(API + "departments/vision/preview/?weight=2").status_code == 200
