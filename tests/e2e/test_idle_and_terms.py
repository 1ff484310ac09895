"""Journeys in a real browser that take minutes or days in real use: an idle notebook that is kept, and quota for a term, from
the request to its end while its cards are in use.

The demo runs as usual; only time is moved, by editing the dates of rows in its database (`python`). There is no GPU: that a
notebook's card was idle is written there, too, as Prometheus would have reported it.
"""

from __future__ import annotations

import datetime as dt
import json
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.e2e.conftest import BASE, fresh

Arrive = Callable[..., Any]
Python = Callable[..., Any]
QUARTER = r"^(0:)?1[0-5]:\d\d$"
"""A countdown of a quarter of an hour, or a little less."""

IDLE_FOR_HOURS = """
import datetime as dt, json, sys
from django.utils import timezone
from workloads.measurement import buckets
from workloads.models import Attempt, MeasuredBucket, MetricsSource
now, attempt = timezone.now(), Attempt.objects.get(workload__public_id="{workload}")
end = buckets.floor(now, buckets.BUCKET)
Attempt.objects.filter(pk=attempt.pk).update(started_at=end - dt.timedelta(hours=3))
MetricsSource.objects.update(complete_until=end)
MeasuredBucket.objects.filter(attempt=attempt).delete()
MeasuredBucket.objects.bulk_create(
    MeasuredBucket(attempt=attempt, rank=0, at=end - n * buckets.BUCKET, gpu=0, cards=1) for n in range(36)
)  # including the current bucket: nobody is warned of data that end more than five minutes ago
print(json.dumps({{}}))
"""
LOOK_FOR_IDLE_WORK = """
import json
from django.utils import timezone
from workloads.reconciler import idle_rounds
print(json.dumps(idle_rounds.review(now=timezone.now())))
"""
MOVE_END_OF_TERM = """
import datetime as dt, json
from django.utils import timezone
from quotas.models import QuotaRequest
from quotas.requests.actions import run_terms
now = timezone.now()
QuotaRequest.objects.filter(department__slug="biology", state="granted").update(ends_at=now + dt.timedelta({ends}))
print(json.dumps(run_terms(now=now)))
"""
HOW_IT_LEFT = """
import json
from workloads.models import Attempt
[row] = Attempt.objects.filter(workload__name__in=["fold-a", "fold-b"], number=1, finished_at__isnull=False)
notice = row.reclaim_at - row.claim.reclaimed_by.get().at
print(json.dumps([row.workload.name, row.outcome, row.ready_at is not None, notice.total_seconds()]))
"""


@pytest.fixture
def python(demo: str, demo_folder: Path) -> Python:
    """Runs code beside the demo, on its database; its last printed line is JSON."""

    def run(code: str, **values: str) -> Any:
        command = [
            sys.executable,
            "manage.py",
            "shell",
            "--no-imports",
            "-c",
            code.format(**values) if values else code,
        ]
        environment = fresh(demo_folder) | {"LOG_LEVEL": "ERROR"}
        done = subprocess.run(command, cwd=BASE, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[-3000:]
        return json.loads(done.stdout.strip().splitlines()[-1])

    return run


def is_fine(person: Any, width: int) -> None:
    """axe finds nothing, and the page is not wider than the screen."""
    assert person.axe() == [], person.page.url
    assert person.page.evaluate("document.documentElement.scrollWidth") <= width, person.page.url


def choose(page: Any, action: str, **numbers: int) -> None:
    """Fills in a policy for idle notebooks."""
    page.select_option("#id_notebook_action", action)
    for name, number in numbers.items():
        page.fill(f"#id_notebook_{name}", str(number))


def tighten_the_policy(person: Arrive) -> None:
    """The operator sets one for the pool; the owner tightens it, sees its effect on the last week, and cannot loosen it."""
    oscar = person("oscar").go("/pools/t4/")
    oscar.locator("dd", has_text="nothing is done").get_by_role("link", name="Edit").click()
    choose(oscar, "stop", below=5, minutes=240, countdown=60, keep=240)
    oscar.get_by_role("button", name="Save").click()
    expect(oscar.locator(".toast")).to_contain_text("saved")
    olivia = person("olivia", language="zh-CN")
    page = olivia.go("/pools/t4/")
    page.get_by_role("link", name="Computer Vision").filter(has_text="空闲策略").click()
    preview = page.locator("#preview")
    choose(page, "stop", below=5, minutes=300, countdown=15, keep=120)
    expect(preview).to_contain_text("300")
    page.get_by_role("button", name="保存").click()
    expect(page.locator("#idle-policy")).to_contain_text("部门只能选择更少，不能是 300")
    choose(page, "stop", below=5, minutes=60, countdown=15, keep=120)
    expect(preview).to_contain_text("最近 7 天若采用此策略")
    expect(preview).to_contain_text("sleepy")
    expect(preview).to_contain_text("会被停止")
    is_fine(olivia, 1400)
    page.get_by_role("button", name="保存").click()
    expect(page.locator(".toast")).to_be_visible()
    olivia.heard = [text for text in olivia.heard if "422" not in text]


def test_idle_notebook_shows_a_countdown_on_home_and_can_be_kept(person: Arrive, python: Python) -> None:
    """Its author sees it twice, on a phone in Chinese and on a screen in English."""
    alice, phone = person("alice"), person("alice", language="zh-CN", width=390, theme="dark")
    page = alice.go("/d/vision/workloads/new/?preset=notebook&name=sleepy")
    page.get_by_role("button", name="Submit").click()
    expect(page.get_by_role("button", name="Open notebook")).to_be_visible(timeout=40_000)
    address = page.url.removeprefix(alice.base)
    python(IDLE_FOR_HOURS, workload=address.rstrip("/").rsplit("/", 1)[1])
    tighten_the_policy(person)
    small = phone.go("/")
    deadline = time.monotonic() + 60
    while not python(LOOK_FOR_IDLE_WORK) and time.monotonic() < deadline:
        pass  # a notebook that is too busy to answer in time is asked again, as by each minute's round
    banner = small.locator("[data-warned]", has_text="sleepy")
    expect(banner).to_contain_text("处于空闲状态", timeout=60_000)  # without a reload
    clock = banner.locator("time[data-time=countdown]")
    expect(clock).to_have_text(re.compile(QUARTER))
    before = clock.inner_text()
    expect(clock).not_to_have_text(before)
    is_fine(phone, 390)
    now, hours = page.locator("#now"), re.compile(r"^1:5\d:\d\d$")
    expect(now).to_contain_text("It is stopped unless it becomes active")
    expect(now.locator("time[data-time=countdown]")).to_have_text(re.compile(QUARTER))
    is_fine(alice, 1400)
    banner.get_by_role("button", name="保留").click()
    small.wait_for_url(phone.base + address)
    expect(small.locator(".toast")).to_contain_text("已保留至")
    expect(small.locator("#now")).to_contain_text("Alice Chen 已选择“保留”")
    is_fine(phone, 390)
    expect(now).to_contain_text("Alice Chen chose “Keep it”: it is kept until")
    expect(now.locator("time[data-time=countdown]")).to_have_text(hours)
    expect(now.get_by_role("button", name="Keep it")).to_have_count(0)
    page = alice.go("/")
    expect(page.locator("tr", has_text="sleepy").locator("[data-idle] time")).to_have_text(hours)
    expect(page.locator("[data-warned]")).to_have_count(0)
    expect(alice.go("/inbox/").locator("main")).to_contain_text("sleepy has been idle since")
    expect(phone.go("/inbox/").locator("main")).to_contain_text("sleepy")
    alice.go(address)
    page.get_by_role("button", name="Stop", exact=True).click()
    page.locator("dialog#stop").get_by_role("button", name="Stop").click()
    expect(page.locator("#now[data-state=cancelled]")).to_be_visible()


def days_ahead(days: int) -> str:
    return (dt.datetime.now(dt.UTC).date() + dt.timedelta(days)).isoformat()


def wait_and_request(person: Arrive) -> Any:
    """From a verdict that waits to a quota request, by bob on a phone in Chinese, who stays on the page of his request."""
    bob = person("bob", language="zh-CN", width=390, theme="dark")
    page = bob.go("/d/biology/workloads/")
    page.get_by_role("link", name="fold-c").click()
    expect(page.locator("#now[data-state=queued]").get_by_role("link", name="申请更多配额")).to_be_visible()
    page = bob.go("/d/biology/workloads/new/?preset=train-1")
    page.fill("#id_units_per_pod", "2")
    expect(page.locator("#verdict .verdict-headline")).to_contain_text("排队")
    more = page.locator("#verdict").get_by_role("link", name="申请更多配额")
    expect(more).to_have_attribute("href", re.compile("more=2$"))
    more.click()
    expect(page.locator("h1")).to_contain_text("申请配额")
    expect(page.locator("#id_pool")).to_have_value("a100")
    expect(page.locator("#id_units")).to_have_value("2")  # nothing is guaranteed yet, and it needs two
    page.fill("#id_units", "6")
    page.fill("#id_ends_on", days_ahead(200))
    page.fill("#id_why", "蛋白质折叠竞赛将于年底截止。")
    is_fine(bob, 390)
    page.get_by_role("button", name="提交申请").click()
    expect(page.locator("dl.facts")).to_contain_text("待处理")
    expect(page.locator("dl.facts")).to_contain_text("但可能被召回")
    is_fine(bob, 390)
    return bob


def approve_less(oscar: Any) -> None:
    """After unassigned capacity, effects and the last 30 days were shown, approves four of six cards for a shorter term."""
    page = oscar.go("/requests/")
    page.locator("section", has_text="Waiting for your approval").get_by_role("link").first.click()
    decision, preview = page.locator("#decision"), page.locator("#preview")
    expect(decision).to_contain_text("Not guaranteed to any department: 4 cards of 16 cards.")
    expect(preview).to_contain_text("add up to 18 cards")
    record = page.locator("section", has_text="The last 30 days")
    expect(record.locator("dd", has_text="GPU-hours")).to_have_count(5)
    expect(record).to_contain_text("not measured")
    expect(record).to_contain_text(re.compile(r"\d starts?: half waited at most"))
    page.get_by_role("button", name="Approve").click()
    expect(page.locator("#decision")).to_contain_text("add up to 18 cards")
    page.fill("#id_units", "4")
    expect(preview).to_contain_text("No workload is affected now.")
    is_fine(oscar, 1400)
    page.fill("#id_ends_on", days_ahead(60))
    page.fill("#id_note", "Four, until the contest.")
    page.get_by_role("button", name="Approve").click()
    expect(page.locator("dl.facts").first).to_contain_text("Approved: 4 cards")
    oscar.heard = [text for text in oscar.heard if "422" not in text]


def renew_after_a_reminder(bob: Any, oscar: Any, python: Python) -> None:
    """A week before the end: the reminder links to the grant, and one click there requests an equal term."""
    assert python(MOVE_END_OF_TERM, ends="days=6.5") == 1
    page = bob.go("/inbox/")
    page.get_by_role("link", name=re.compile("即将|到期")).first.click()
    expect(page.locator("dl.facts")).to_contain_text("已批准：4 张卡")
    page.get_by_role("button", name="续期").click()
    expect(page.locator("dl.facts")).to_contain_text("待处理")
    is_fine(bob, 390)
    decided = oscar.go("/requests/")
    decided.locator("section", has_text="Waiting for your approval").get_by_role("link").first.click()
    expect(decided.locator("dl.facts").first).to_contain_text("renewal of an earlier grant")
    expect(decided.locator("#preview")).to_contain_text("No workload is affected now.")
    decided.get_by_role("button", name="Approve").click()
    expect(decided.locator("dl.facts").first).to_contain_text("Approved: 4 cards")


def test_owner_of_the_parent_grants_a_teams_request_from_its_own_guarantee(person: Arrive) -> None:
    """No operator has to decide; the audit log shows it afterwards."""
    wei, nora = person("wei"), person("nora", language="zh-CN")
    page = wei.go("/d/translation/requests/new/?pool=a100")
    expect(page.locator("#id_units")).to_have_value("4")
    expect(page.locator("main")).to_contain_text("Decided by: Nora Weiss")
    page.fill("#id_why", "A second language pair.")
    page.get_by_role("button", name="Send request").click()
    expect(page.locator("dl.facts")).to_contain_text("open")
    above = nora.go("/")
    above.get_by_role("link", name="个配额申请待审批").click()
    above.locator("section", has_text="等待您审批").get_by_role("link").first.click()
    expect(above.locator("#decision")).to_contain_text("Language 自身的保障配额中还有 1 张卡可以分配")
    expect(above.locator("#preview")).to_contain_text("目前没有任务受影响")
    above.get_by_role("button", name="批准").click()
    expect(above.locator("dl.facts").first).to_contain_text("已批准：4 张卡")
    is_fine(nora, 1400)
    page.reload()
    expect(page.locator("dl.facts")).to_contain_text("Approved: 4 cards")
    quotas = nora.go("/d/nlp/quotas/")
    expect(quotas.locator("tr", has_text="A100 80GB, whole cards").first).to_contain_text("无")
    oscar = person("oscar")
    expect(oscar.go("/requests/").locator("section", has_text="Waiting for your approval")).to_have_count(0)
    expect(oscar.go("/operator/audit/").locator("tbody")).to_contain_text("nora")


def test_quota_for_a_term_is_requested_renewed_and_ends_while_its_cards_are_in_use(
    person: Arrive, python: Python
) -> None:
    oscar = person("oscar")
    page = oscar.go("/d/vision/quotas/a100/")
    page.fill("#id_guaranteed", "4")
    expect(page.locator("#preview")).to_contain_text("No workload is affected now.")
    page.get_by_role("button", name="Save").click()
    expect(page.locator("h1")).to_contain_text("Quotas of")
    bob = wait_and_request(person)
    request = bob.page.url.removeprefix(bob.base)
    approve_less(oscar)
    for text in ("6 张卡", "已批准"):
        expect(bob.go("/requests/").locator("tbody").get_by_text(text)).to_be_in_viewport(ratio=1)
    bob.go(request)
    expect(bob.page.locator("dl.facts")).to_contain_text("已批准：4 张卡")
    expect(bob.page.locator("dl.facts")).to_contain_text("Four, until the contest.")
    expect(bob.go("/inbox/").locator("main")).to_contain_text("批准了")
    alice = person("alice")
    mine = alice.go("/d/vision/workloads/new/?preset=train-1&name=needs-three")
    mine.fill("#id_units_per_pod", "3")
    expect(mine.locator("#verdict .verdict-headline")).to_have_text(re.compile("^Waiting"))
    mine.get_by_role("button", name="Submit").click()
    expect(mine.locator("#now[data-state=queued]")).to_be_visible()
    renew_after_a_reminder(bob, oscar, python)
    expect(mine.locator("#now[data-state=queued]")).to_be_visible()
    small = bob.go("/")
    python(MOVE_END_OF_TERM, ends="minutes=-1")
    banner = small.locator(".notice", has_text="fold-")
    expect(banner).to_contain_text("召回", timeout=60_000)
    expect(banner.locator("time[data-time=countdown]")).to_have_text(re.compile(r"^0:[0-4]\d$"))
    is_fine(bob, 390)
    expect(mine.locator("#now[data-state=queued]")).to_be_visible()
    with small.expect_navigation():
        banner.get_by_role("link").first.click()
    name = small.locator("h1").inner_text()
    expect(small.locator(".big-number")).to_be_visible()
    small.get_by_role("button", name="已保存，立即释放").click()
    expect(small.locator("#now[data-state=queued]")).to_be_visible(timeout=60_000)
    expect(mine.locator("#now[data-state=running]")).to_be_visible(timeout=60_000)
    assert python(HOW_IT_LEFT) == [name, "recalled", True, 45], (
        "with the whole notice of the pool, from the decision on"
    )
    bob.go("/inbox/")
    expect(small.locator("main")).to_contain_text("召回")
    bob.go(request)
    expect(small.locator("dl.facts")).to_contain_text("已批准：4 张卡")
