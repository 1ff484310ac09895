"""Exemptions on the page of an idle policy, and what an exempt department sees."""

from __future__ import annotations

import datetime as dt
import re
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from portal.access import SYSTEM, Actor
from portal.models import AuditEntry, Role
from portal.web.audit_words import Reader
from tests import builders as make
from tests.clients import person
from tests.workloads.idle.bed import HOUR, IdleBed
from tests.workloads.idle.test_forms import DEPARTMENT, POOL, browser, of_last_week
from workloads.idle import exemptions
from workloads.idle.rule import Rule
from workloads.models import IdleExemption, IdleSpell, Image, Workload
from workloads.requests.request import WorkloadRequest
from workloads.requests.verdict import verdict_of

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def operator() -> Client:
    return browser(make.user("root", is_operator=True))


@pytest.fixture
def owner(idle: IdleBed) -> Client:
    return browser(make.member(idle.vision, Role.OWNER, "olga"))


def fields_for(what: str, why: str = "Migration of the data", days: int = 5) -> dict[str, Any]:
    day = timezone.localdate() + dt.timedelta(days=days)
    return {"exempt-what": what, "exempt-why": why, "exempt-until": day.isoformat()}


def test_operator_can_exempt_a_department_on_either_page_and_end_it(idle: IdleBed, operator: Client) -> None:
    assert operator.post(f"{DEPARTMENT}exempt/", fields_for("department")).headers["Location"] == DEPARTMENT
    row = IdleExemption.objects.get()
    assert (row.department, row.workload, row.why) == (idle.vision, None, "Migration of the data")
    assert row.until == timezone.make_aware(
        dt.datetime.combine(timezone.localdate() + dt.timedelta(days=6), dt.time())
    ), "the day is included"
    for page in (DEPARTMENT, POOL):
        text = operator.get(page).content.decode()
        assert "All work of Vision and its teams, in every pool" in text, page
        assert "Migration of the data" in text, page
    end = f"/d/vision/idle-exemptions/{row.public_id}/end/"
    assert operator.post(end, {"next": POOL}).headers["Location"] == POOL
    assert operator.post(end, {"next": "https://elsewhere.example/"}).headers["Location"] == "/d/vision/quotas/"
    assert "Ended exemptions" in operator.get(DEPARTMENT).content.decode()
    assert operator.post(f"{POOL}exempt/", fields_for("vision")).headers["Location"] == POOL
    assert IdleExemption.objects.filter(ended_at=None).get().department == idle.vision


def test_owner_can_exempt_only_workloads_and_cannot_end_an_operators_exemption(idle: IdleBed, owner: Client) -> None:
    attempt = idle.running()
    page = owner.get(DEPARTMENT).content.decode()
    assert attempt.workload.public_id in page
    assert 'value="department"' not in page
    assert owner.post(f"{DEPARTMENT}exempt/", fields_for("department")).status_code == 422
    assert (
        owner.get(f"{POOL}exempt/").status_code == owner.post(f"{POOL}exempt/", fields_for("vision")).status_code == 404
    )
    assert browser(idle.alice).post(f"{DEPARTMENT}exempt/", fields_for("department")).status_code == 403
    stranger = browser(make.member(make.department("nlp"), Role.OWNER))
    assert stranger.post(f"{DEPARTMENT}exempt/", fields_for(attempt.workload.public_id)).status_code == 404
    assert owner.post(f"{DEPARTMENT}exempt/", fields_for(attempt.workload.public_id)).status_code == 302
    assert IdleExemption.objects.get().workload == attempt.workload
    until = timezone.now() + dt.timedelta(days=1)
    row = exemptions.exempt(actor=SYSTEM, department=idle.vision, workload=None, why="Move", until=until)
    page = owner.get(DEPARTMENT).content.decode()
    assert "Move" in page
    assert f"{row.public_id}/end/" not in page
    assert owner.post(f"/d/vision/idle-exemptions/{row.public_id}/end/").status_code == 404


@pytest.mark.parametrize(
    ("changes", "field", "text"),
    [
        ({"exempt-why": " "}, "why", "required"),
        ({"exempt-until": "soon"}, "until", "valid date"),
        ({"exempt-until": "2020-01-01"}, "until", "at most 90 days from now"),
        ({"exempt-until": "9999-12-31"}, "until", "within the next 20 years"),
        ({"exempt-what": "nobody"}, "what", "not one of the available choices"),
        ({"exempt-why": "a\x00b"}, "why", "Null characters"),
        ({"exempt-why": "x" * 501}, "why", "at most 500 characters"),
    ],
)
def test_errors_are_shown_at_their_field_with_the_policy_still_on_the_page(
    idle: IdleBed, operator: Client, changes: dict[str, str], field: str, text: str
) -> None:
    idle.set(job=HOUR)
    answer = operator.post(f"{DEPARTMENT}exempt/", fields_for("department") | changes)
    assert answer.status_code == 422
    assert text in str(answer.context["exempt_form"].errors[field])
    assert answer.context["form"].errors == {}
    assert "Jobs here are warned after 1 h" in answer.content.decode()
    assert not IdleExemption.objects.exists()


def test_last_allowed_day_can_be_chosen(idle: IdleBed, operator: Client) -> None:
    assert operator.post(f"{DEPARTMENT}exempt/", fields_for("department", days=91)).status_code == 422
    assert operator.post(f"{DEPARTMENT}exempt/", fields_for("department", days=90)).status_code == 302


def test_preview_names_covered_workloads_and_warnings_that_would_end(idle: IdleBed, operator: Client) -> None:
    idle.set(job=HOUR)
    attempt = idle.running()
    of_last_week(idle, 10)
    idle.quiet(attempt)
    idle.round()
    assert IdleSpell.objects.filter(ended_at=None).exists()
    panel = operator.get(f"{DEPARTMENT}exempt/", fields_for("department", why="")).content.decode()
    assert "It covers 2 workloads" in panel, panel
    assert attempt.workload.name in panel
    assert "would have stopped" in panel
    assert "at most 90 days" in operator.get(f"{POOL}exempt/", fields_for("vision", days=99)).content.decode()
    assert "Choose what is exempt." in operator.get(f"{POOL}exempt/").content.decode()
    assert not IdleExemption.objects.exists()


def test_exemption_is_shown_in_place_of_the_policy_wherever_it_applies(idle: IdleBed) -> None:
    idle.set(notebook=HOUR)
    attempt = idle.running("notebook")
    image = Image.objects.get()
    until = timezone.now() + dt.timedelta(days=3)

    def policy_lines(kind: str = "notebook") -> tuple[str, ...]:
        request = WorkloadRequest(kind=kind, name="x", pool=idle.pool, image=image, command=("true",), units_per_pod=1)
        return verdict_of(actor=Actor(idle.alice), department=idle.vision, request=request).idle_policy

    idle.vision.parent = make.department("science")
    idle.vision.save()
    exemptions.exempt(actor=SYSTEM, department=make.department("nlp"), workload=None, why="Other", until=until)
    assert "are warned after" in policy_lines()[0]
    for department in (idle.vision, idle.vision.parent):
        row = exemptions.exempt(actor=SYSTEM, department=department, workload=None, why="Move", until=until)
        [sentence] = policy_lines()
        assert sentence.startswith("Exempt from the idle policy until ")
        assert sentence.endswith(": Move")
        assert policy_lines("job") == (), "without a rule there is nothing to be exempt from"
        if department == idle.vision:
            exemptions.end(actor=SYSTEM, row=row)
    form = {"name": "x", "kind": "notebook", "pool": "a100", "image": image.name, "units_per_pod": 1, "cpu": 1,
            "memory_mib": "1", "pods": 1}  # fmt: skip
    panel = browser(idle.alice).post("/d/vision/workloads/new/verdict/", form).content.decode()
    assert "Exempt from the idle policy until" in panel
    assert "are warned after" not in panel
    one = f"/api/v1/workloads/{attempt.workload.public_id}/"
    [sentence] = person(idle.alice).get(one).json()["verdict"]["idle_policy"]
    assert sentence.startswith("Exempt from the idle policy until ")
    own = "/api/v1/departments/vision/quotas/a100/idle_policy/"
    assert person(idle.alice).get(own).json()["exempt_until"] is not None
    page = browser(idle.alice).get(f"/d/vision/workloads/{attempt.workload.public_id}/").content.decode()
    assert "are warned after" not in page
    part = browser(idle.alice).get("/pools/a100/idle/").content.decode()
    assert "Vision is exempt until" in part
    exemptions.end(actor=SYSTEM, row=row)
    assert "are warned after" in policy_lines()[0]
    assert "are warned after" in person(idle.alice).get(one).json()["verdict"]["idle_policy"][0]
    assert "is exempt until" not in browser(idle.alice).get("/pools/a100/idle/").content.decode()


def test_audit_log_describes_policies_and_exemptions_in_words(idle: IdleBed, operator: Client) -> None:
    idle.set(notebook=HOUR)
    idle.set(notebook=Rule(below=10, minutes=60, countdown=15, keep=120, action=HOUR.action), job=HOUR)
    idle.set(job=HOUR)
    newest, middle, first = AuditEntry.objects.filter(action="idle_policy.changed").order_by("-pk")
    reader = Reader([newest, middle, first])
    assert reader.changes(middle) == [
        ("Jobs: when idle", "–", "warn, then stop"), ("Jobs: idle below", "–", "5 %"), ("Jobs: for so long", "–", "1 h"),
        ("Jobs: stop after the warning", "–", "15 min"), ("Jobs: “Keep it” gives", "–", "2 h"),
        ("Notebooks: idle below", "5 %", "10 %"),
    ]  # fmt: skip
    assert ("Notebooks: idle below", "–", "5 %") in reader.changes(first)
    assert ("Notebooks: idle below", "10 %", "–") in reader.changes(newest)
    assert not any("Jobs" in name for name, _before, _after in reader.changes(newest)), "unchanged values are left out"
    assert operator.post(f"{DEPARTMENT}exempt/", fields_for("department")).status_code == 302
    page = operator.get("/operator/audit/").content.decode()
    assert "Migration of the data" in page
    assert "&quot;" not in page
    assert "{" not in page.partition("<tbody>")[2].partition("</tbody>")[0]


def test_department_exemption_ends_countdowns_of_its_teams_and_shows_its_last_day(
    idle: IdleBed, operator: Client
) -> None:
    team = make.department("ocr", parent=idle.vision)
    idle.set(job=HOUR)
    attempts = [idle.running(), idle.running()]
    Workload.objects.filter(pk=attempts[1].workload_id).update(department=team)
    for attempt in attempts:
        idle.quiet(attempt)
    idle.round()
    assert IdleSpell.objects.filter(ended_at=None).count() == 2
    operator.post(f"{DEPARTMENT}exempt/", fields_for("department", days=5))
    assert set(IdleSpell.objects.values_list("end", flat=True)) == {"exempt"}
    last = timezone.localdate() + dt.timedelta(days=5)
    for page in (DEPARTMENT, f"/d/vision/workloads/{attempts[0].workload.public_id}/"):
        text = operator.get(page).content.decode()
        assert f"{last.day} {last:%b} 23:59" in re.sub(r"\s+\d{4} ", " ", text), page
