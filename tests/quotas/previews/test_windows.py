"""Previews of lending windows: what is lent now and later, and what a lower limit recalls."""

from __future__ import annotations

import datetime as dt
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from django.utils import timezone, translation

from portal.models import Department, Role, User
from quotas.lending import windows
from quotas.lending.schedule import Window
from quotas.models import Pool, Quota
from quotas.wording import lends
from tests import builders as make
from tests.clients import person

pytestmark = pytest.mark.django_db(transaction=True)
SHANGHAI = ZoneInfo("Asia/Shanghai")


@pytest.fixture
def vision(pool: Pool) -> Department:
    vision = make.department("vision")
    make.quota(vision, pool, 8)
    return vision


@pytest.fixture
def nlp() -> Department:
    return make.department("nlp")


def dry_run(user: User, *rows: dict[str, Any], guaranteed: int = 8, lend_limit: int = 3) -> Any:
    body = {"guaranteed": guaranteed, "borrow_limit": None, "lend_limit": lend_limit, "windows": rows, "zone": "UTC"}
    url = "/api/v1/departments/vision/quotas/a100/?dry_run=1"
    return person(user).put(url, body, headers={"If-Match": '"1"'}).json()


def around(hours: int, until: int, lend_limit: int | None) -> dict[str, Any]:
    """A daily window by hours from now, in UTC."""
    now = timezone.now()
    begin, end = (f"{now + dt.timedelta(hours=each):%H:%M}" for each in (hours, until))
    return {
        "days": ["mon", "tue", "wed", "thu", "fri", "sat", "sun"],
        "start": begin,
        "end": end,
        "lend_limit": lend_limit,
    }


def make_borrower(
    department: Department, pool: Pool, first: int, lenders: dict[Department | None, int], **fields: Any
) -> None:
    place = [{"pod": 0, "node": "a100-n1", "cards": [first, first + 1]}]
    make.holding(department, pool, borrowed=lenders, placement=place, notice=600, grace=120, **fields)


def test_preview_mentions_lent_units_only_if_a_later_lower_limit_recalls_them(
    vision: Department, nlp: Department, pool: Pool
) -> None:
    owner = make.member(vision, Role.OWNER)
    make_borrower(nlp, pool, 0, {vision: 2})
    make_borrower(nlp, pool, 2, {vision: 2})
    closed = dry_run(owner, around(-2, 2, 0))
    assert "2 workloads would have to release 4 cards in total." in closed["sentence"]
    [line] = closed["lines"]  # in two hours the limit rises: that recalls nothing
    assert line.startswith("After this change the department lends nothing now, and at most 3 cards from ")
    later = dry_run(owner, around(3, 5, 0))
    assert "1 workload would have to release 2 cards in total." in later["sentence"]
    assert later["lines"][1].startswith("Of the 4 cards lent now, 2 cards would be recalled by ")
    Department.objects.filter(pk=vision.pk).update(policy={"reclaim": "never"})
    forbidden = dry_run(owner, around(3, 5, 0))
    assert "it reclaims nothing" in forbidden["lines"][1]


def test_surplus_of_recalled_workloads_is_not_recalled_again(vision: Department, nlp: Department, pool: Pool) -> None:
    """The newest borrower releases two cards, of which vision lent one: the other is idle then, and can be vision's later."""
    Quota.objects.update(guaranteed=7)
    make_borrower(nlp, pool, 0, {vision: 2})
    make_borrower(nlp, pool, 2, {None: 1, vision: 1}, started_at=timezone.now())
    make.holding(vision, pool, own=4, placement=[{"pod": 0, "node": "a100-n1", "cards": [4, 5, 6, 7]}])
    preview = dry_run(make.member(vision, Role.OWNER), around(3, 5, 0), guaranteed=7, lend_limit=2)
    assert preview["sentence"] == "1 workload would have to release 2 cards in total."
    assert preview["lines"][1].startswith("Of the 3 cards lent now, 1 card would be recalled by ")


def test_lending_sentences_in_chinese(vision: Department, pool: Pool) -> None:
    now = dt.datetime(2026, 11, 23, 10, tzinfo=SHANGHAI)

    def sentence(*limits: int | None) -> str:
        schedule = [Window((0, 1, 2, 3, 4, 5, 6), 9 * 60, 18 * 60, limits[1])] if len(limits) > 1 else []
        quota = Quota(department=vision, pool=pool, lend_limit=limits[0], zone="Asia/Shanghai")
        quota.windows = list(map(windows.to_json, schedule))
        return lends(quota, now=now)

    with translation.override("zh-hans"), timezone.override(SHANGHAI):
        assert (sentence(0), sentence(None)) == ("从不借出", "始终全部借出")
        assert sentence(3, 0).startswith("现在不借出，从 ")
        assert sentence(3, 0).endswith("起最多借出 3 张卡")
        assert sentence(None, 2).startswith("现在最多借出 2 张卡，从 ")
        assert sentence(0, None).endswith("起不借出")
