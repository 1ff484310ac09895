"""The operator's pages: who can see them, and what they change."""

from __future__ import annotations

import csv
import datetime as dt
import html
import io
import re

import pytest
import time_machine
from django.utils import timezone

from portal.access import Actor
from portal.models import AuditEntry, Department, Heartbeat, JobRun, Role, User
from quotas.budgets.actions import Limits, create_budget
from quotas.models import Node, Pool
from quotas.requests import actions as requests
from tests import builders as make
from tests.clients import confirmed
from workloads.models import Image, Kind, Preset, Workload

pytestmark = pytest.mark.django_db(transaction=True)
NOON = dt.datetime(2026, 6, 1, 12, tzinfo=dt.UTC)

PAGES = [
    "/operator/",
    "/operator/audit/",
    "/operator/audit/?format=csv",
    "/operator/clusters/",
    "/operator/departments/",
    "/operator/departments/vision/",
    "/operator/images/",
    "/operator/images/new/",
    "/operator/nodes/",
    "/operator/pools/",
    "/operator/pools/a100/",
    "/operator/presets/new/",
    "/operator/system/",
    "/operator/users/",
    "/operator/users/olga/",
]


@pytest.fixture
def operator(client):
    pool = make.pool("a100", name="A100 cards")
    vision = make.department("vision")
    make.quota(vision, pool, 4)
    make.member(vision, Role.OWNER, "olga")
    user = make.user("root", is_operator=True)
    client.force_login(user)
    return user


def text(response, status=200):
    assert response.status_code == status, response.content.decode()[:3000]
    return response.content.decode()


@pytest.mark.django_db
@pytest.mark.parametrize("url", PAGES)
def test_operators_see_the_page_others_get_404_and_anonymous_users_the_login(client, operator, url):
    response = client.get(url)
    assert response.status_code == 200, getattr(response, "content", b"").decode()[:3000]
    client.force_login(User.objects.get(username="olga"))
    assert client.get(url).status_code == 404
    client.logout()
    assert client.get(url).headers["Location"].startswith("/login/")


def test_overview_shows_the_state_of_jobs_and_processes(client, operator):
    now = timezone.now()
    JobRun.objects.create(job="quotas.plan_all", slot=int(now.timestamp()), started_at=now, finished_at=now)
    assert "overdue" not in text(client.get("/operator/"))  # the beat has only just begun
    before = now - timezone.timedelta(minutes=30)
    JobRun.objects.create(
        job="portal.deliver",
        slot=int(before.timestamp()),
        started_at=before,
        finished_at=before,
        error="OSError: no mail",
    )
    Heartbeat.objects.create(name="watcher:one", at=now - timezone.timedelta(hours=1))
    page = text(client.get("/operator/"))
    assert "OSError: no mail" in page
    assert "watcher:one" in page
    assert "overdue" in page  # jobs that should have run in the half hour since
    system = text(client.get("/operator/system/"))
    assert "Claims, ledger, cards and guaranteed quotas are consistent." in system


@pytest.mark.parametrize("slot_began", [0, 2, 17, 29])
def test_next_run_of_a_job_is_due_an_interval_after_its_last(client, operator, slot_began):
    """Wherever in its slot the run began, as the scheduler's clock is not that of the slots."""
    with time_machine.travel(NOON, tick=False):
        began = NOON - dt.timedelta(seconds=2)
        slot = int(began.timestamp()) - slot_began
        took = dt.timedelta(seconds=0.4)
        JobRun.objects.create(job="workloads.estimate", slot=slot, started_at=began, finished_at=began + took)
        client.force_login(operator)
        row = scheduled(client, "workloads.estimate")
        assert [row["Interval"], row["Last run"], row["Next run"], row["Duration"]] == [
            "30 s",
            "2 s ago",
            "in 28 s",
            "0.4 s",
        ]
        operator.language = "zh-hans"
        operator.save()
        page = text(client.get("/operator/"))
        assert "0.4 秒" in page
        assert page.split("定时作业")[1].split("<thead><tr><th>")[1].startswith("作业<")


def scheduled(client, job):
    """Column → text of a job's row."""
    row = text(client.get("/operator/")).split(f'data-job="{job}"')[1].split("</tr>")[0]
    cells = re.findall(r'data-label="([^"]+)">(.*?)</td>', row)
    return {label: html.unescape(re.sub("<[^>]+>", "", cell)).strip() for label, cell in cells}


def test_system_page_reports_broken_invariants_and_short_pools(client, operator):
    vision, pool = Department.objects.get(), Pool.objects.get()
    make.claim(vision, pool, 3, "holding")  # without a ledger entry
    Pool.objects.update(nominal=2)
    Node.objects.update(drained=True)
    system = text(client.get("/operator/system/"))
    assert "holds 3 units but the ledger has 0" in system
    assert "4 card of a100 are promised, and it has 2" in system
    assert "short, 4 cards less than guaranteed" in system


def test_policies_can_only_be_changed_with_the_current_version(client, operator):
    form = {"form": "rules", "notice": "1min", "grace": "30s", "min_runtime": "0s", "max_reclaims": 3, "version": 1}
    assert client.post("/operator/pools/a100/", form).status_code == 302
    pool = Pool.objects.get()
    assert (pool.notice, pool.grace, pool.max_reclaims, pool.version) == (60, 30, 3, 2)
    assert "version 2" in text(client.post("/operator/pools/a100/", form), 409)
    assert "add up to 4" in text(client.post("/operator/pools/a100/", {"form": "nominal", "nominal": 3}), 422)
    assert client.post("/operator/pools/a100/", {"form": "nominal", "nominal": 9}).status_code == 302
    assert text(client.post("/operator/pools/a100/", {"form": "rules", "notice": -1, "version": 2}), 422)
    assert text(client.post("/operator/pools/a100/", {"form": "nonsense"}))


def test_draining_a_node_shows_the_workloads_on_it_first(client, operator):
    vision, pool, node = Department.objects.get(), Pool.objects.get(), Node.objects.get()
    make.holding(vision, pool, own=1, name="train-cats", placement=[{"pod": 0, "node": node.name, "cards": [0]}])
    assert "train-cats" in text(client.get(f"/operator/nodes/{node.pk}/"))
    confirmed(client, f"/operator/nodes/{node.pk}/", {"drained": "1"})
    node.refresh_from_db()
    assert node.drained
    client.post(f"/operator/nodes/{node.pk}/", {"drained": ""})
    node.refresh_from_db()
    assert not node.drained


def test_department_is_created_moved_and_renamed(client, operator):
    data = {"slug": "nlp", "name": "Language", "parent": "", "weight": 1}
    assert client.post("/operator/departments/", data).status_code == 302
    assert "already" in text(client.post("/operator/departments/", data), 422)
    top = Department.objects.get(slug="nlp")
    change = {"name": "Vision 2", "parent": top.pk, "weight": 2, "version": 1}
    assert client.post("/operator/departments/vision/", change).status_code == 302
    assert Department.objects.get(slug="vision").parent == top
    assert "somebody else" in text(client.post("/operator/departments/vision/", change), 409)


def test_account_is_created_locked_and_unlocked(client, operator):
    page = text(client.post("/operator/users/", {"username": "nina", "email": ""}, follow=True))
    nina = User.objects.get(username="nina")
    shown = page.split('id="password">')[1].split("<")[0]
    assert nina.check_password(shown)
    assert "taken" in text(client.post("/operator/users/", {"username": "NINA"}), 422)
    confirmation = text(client.post("/operator/users/nina/", {"change": "lock"}), 409)
    mark = confirmation.split('name="confirmed" value="')[1].split('"')[0]
    assert client.post("/operator/users/nina/", {"change": "lock", "confirmed": mark}).status_code == 302
    nina.refresh_from_db()
    assert not nina.is_active
    client.post("/operator/users/nina/", {"change": "unlock"})
    new = text(client.post("/operator/users/nina/", {"change": "password"}, follow=True))
    nina.refresh_from_db()
    assert nina.is_active
    assert nina.check_password(new.split('id="password">')[1].split("<")[0])


def test_last_operator_can_be_neither_locked_nor_demoted(client, operator):
    confirmation = text(client.post("/operator/users/root/", {"change": "lock"}), 409)
    mark = confirmation.split('name="confirmed" value="')[1].split('"')[0]
    for change in ("lock", "no_operator"):
        sent = {"change": change, "confirmed": mark}
        assert "last operator" in text(client.post("/operator/users/root/", sent), 409)
    make.user("second", is_operator=True)
    assert client.post("/operator/users/second/", {"change": "no_operator"}).status_code == 302


def test_the_audit_log_is_filtered_and_exported_without_formulas(client, operator):
    client.post("/operator/departments/", {"slug": "nlp", "name": "=HYPERLINK(1)", "parent": "", "weight": 1})
    AuditEntry.objects.create(actor_name="=cmd", action="x.y", target="+1")
    assert "x.y" in text(client.get("/operator/audit/?action=x.y"))
    answer = client.get("/operator/audit/?format=csv&action=x.y")
    assert answer.headers["Content-Type"] == "text/csv; charset=utf-8"
    rows = list(csv.DictReader(io.StringIO(b"".join(answer.streaming_content).decode())))
    assert [(row["actor"], row["target"]) for row in rows] == [("'=cmd", "'+1")]


@pytest.mark.parametrize(
    ("target", "before", "after", "says", "hides"),
    [
        ("vision/t4", {"guaranteed": 30720}, {"guaranteed": 30721}, ["30 GiB", "30721 MiB"], []),
        ("r1", None, {"pool": "t4", "wanted": "borrow_limit", "units": 1024, "before": None},
         ["Pool: T4 shared", "What: borrow limit", "Units: 1 GiB"], ["borrow_limit"]),
        ("r1", None, {"ends_at": "2031-05-06T07:08:09.123456+00:00"}, ["2031-05-06"], ["T07:08", ".123456"]),
        ("t4", {"notice": 45, "fair_sharing": None}, {"notice": 90, "fair_sharing": True},
         ["45 s", "1 min 30 s", "Fair sharing"], ["True", "None"]),
        ("vision", {"policy": None}, {"policy": {"reclaim": "lower_priority", "within": "never", "borrow_preempt": None}},
         ["lower priority only", "In its own department: never"], ["lower_priority", "{", "null"]),
        ("p", None, {"scopes": ["read", "submit"], "cpu_milli": 1500, "memory_mib": 2048, "role": "owner"},
         ["read, submit", "CPU cores: 1.5", "Memory: 2 GiB", "Role: quota owner"], ["[", "cpu_milli"]),
        ("department x", {"parent": None}, {"parent": "lab"}, ["Vision Lab"], []),
        ("w1", None, {"kind": "distributed", "pods": 2}, ["distributed job"], []),
        ("demo", None, {"options": {"nodes": [{"name": "n" * 900}]}}, ["…"], ["n" * 400]),
    ],
)  # fmt: skip
def test_audit_log_shows_values_in_plain_words(client, operator, target, before, after, says, hides):
    make.pool("t4", cards=4, unit="MiB", units_per_card=16384, card_mib=16384, sharing="gpushare", name="T4 shared")
    make.department("lab", name="Vision Lab")
    AuditEntry.objects.create(actor_name="root", action="x.y", target=target, before=before, after=after)
    page = html.unescape(text(client.get("/operator/audit/?action=x.y")))
    row = " ".join(re.sub("<[^>]+>", "", page.split('data-action="x.y"')[1].split("</tr>")[0]).split())
    assert [words for words in says if words not in row] == []
    assert [words for words in hides if words in row] == []
    assert "options" not in row or len(row) < 1000


def test_audit_log_shows_and_finds_what_was_changed_by_its_name(client, operator):
    vision = Department.objects.get(slug="vision")
    image = Image.objects.create(name="py", title="Python")
    work = Workload.objects.create(
        public_id=f"{'nightly':0<26}", department=vision, author=operator, kind=Kind.JOB, name="nightly-train",
        pool=Pool.objects.get(), image=image, units_per_pod=1,
    )  # fmt: skip
    AuditEntry.objects.create(actor_name="root", action="workload.shared", target=work.public_id, department=vision)
    AuditEntry.objects.create(actor_name="root", action="user.locked", target="user olga")
    AuditEntry.objects.create(actor_name="root", action="member.added", target="user nobody", department=vision)
    AuditEntry.objects.create(actor_name="root", action="department.moved", target="department vision")
    AuditEntry.objects.create(actor_name="root", action="quota.changed", target="vision/a100", department=vision)
    page = text(client.get("/operator/audit/"))
    assert f'<a href="/w/{work.public_id}/">nightly-train</a>' in page
    assert '<a href="/operator/users/olga/">olga</a>' in page
    assert [raw for raw in ("user olga", "user nobody", "department vision") if raw in page] == []
    assert "Vision / A100 cards" in page
    for words in ("nightly-tr", work.public_id[2:9]):
        found = text(client.get(f"/operator/audit/?q={words}"))
        assert ("nightly-train" in found, "olga" in found) == (True, False)


def test_unreachable_cluster_is_not_added(client, operator):
    config = """
apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "https://127.0.0.1:1"}}]
contexts: [{name: c, context: {cluster: c, user: u}}]
users: [{name: u, user: {token: t}}]
current-context: c
"""
    for button in ({"test": "1"}, {}):
        page = text(
            client.post("/operator/clusters/", {"name": "far", "kubeconfig": config, "options": "", **button}), 422
        )
        assert "unexpected response" in page
    assert "not a kubeconfig" not in page
    assert text(client.post("/operator/clusters/", {"name": "far", "kubeconfig": "nonsense: [", "options": ""}), 422)
    assert text(client.post("/operator/clusters/", {"name": "far", "kubeconfig": "", "options": "[]"}), 422)
    assert not AuditEntry.objects.filter(action="cluster.added").exists()


def test_image_known_only_from_external_work_can_be_added_as_new(client, operator):
    hidden = Image.objects.create(name="demo/train:1", title="demo/train:1", kinds=["external"], active=False)
    assert client.get(f"/operator/images/{hidden.pk}/").status_code == 404
    preset = text(client.get("/operator/presets/new/"))
    assert f'value="{hidden.pk}">demo/train:1' not in preset
    data = {"name": "demo/train:1", "title": "Training", "kinds": ["external"], "active": "on"}
    assert text(client.post("/operator/images/new/", data), 422)
    saved = client.post("/operator/images/new/", data | {"kinds": ["job"]}, follow=True)
    assert "Training was saved." in text(saved)
    row = Image.objects.get()
    assert (row.pk, row.title, row.kinds, row.active) == (hidden.pk, "Training", ["job"], True)
    assert AuditEntry.objects.get(action="image.added").before is None
    assert "already exists" in text(client.post("/operator/images/new/", data | {"kinds": ["job"]}), 422)


def test_changes_to_images_and_presets_write_audit_entries(client, operator):
    data = {"name": "demo/train:1", "title": "Training", "kinds": ["job"], "active": "on"}
    assert client.post("/operator/images/new/", data).status_code == 302
    image = Image.objects.get()
    preset = {
        "slug": "small", "title": "Small", "kind": Kind.JOB, "pool": Pool.objects.get().pk, "pods": 1,
        "units_per_pod": 1, "image": image.pk, "command": "python 'my train.py' --epochs 3", "cpu_milli": 1000,
        "memory_mib": 1024, "order": 1, "active": "on",
    }  # fmt: skip
    assert client.post("/operator/presets/new/", preset).status_code == 302
    stored = Preset.objects.get()
    assert stored.command == ["python", "my train.py", "--epochs", "3"]
    assert "&#x27;my train.py&#x27;" in text(client.get(f"/operator/presets/{stored.pk}/"))
    broken = {**preset, "command": "python 'oops"}
    assert "quotation mark" in text(client.post(f"/operator/presets/{stored.pk}/", broken), 422)
    client.post(f"/operator/images/{image.pk}/", {**data, "title": "Training 2"})
    actions = list(AuditEntry.objects.order_by("pk").values_list("action", flat=True))
    assert actions == ["image.added", "preset.added", "image.changed"]


def test_the_audit_log_names_quota_requests_and_budgets_and_links_to_them(client, operator):
    vision, pool, actor = Department.objects.get(), Pool.objects.get(), Actor(operator)
    quota_request = requests.ask_for_quota(
        actor=actor, department=vision, pool=pool, wanted="guaranteed", units=6, why="A paper is due."
    )
    budgets = [
        create_budget(actor=actor, department=vision, limits=Limits(10), pool=pool),
        create_budget(actor=actor, department=vision, limits=Limits(99)),
    ]
    page = text(client.get("/operator/audit/"))
    names = dict(re.findall(r'<a href="(/d/[^"]+)"[^>]*>([^<]+)</a>', page))
    assert names[f"/d/vision/requests/{quota_request.public_id}/"] == "Vision / A100 cards"
    assert [names[f"/d/vision/budgets/{each.public_id}/"] for each in budgets] == [
        "Vision / A100 cards", "Vision / all pools"
    ]  # fmt: skip
    budgets[0].delete()
    assert f"vision/{budgets[0].public_id}" in text(client.get("/operator/audit/"))
