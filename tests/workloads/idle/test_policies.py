"""Idle policies: a pool's, tightened by its departments, and exemptions from both."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from portal.access import Actor, Forbidden, NotVisible
from portal.errors import Invalid
from portal.infra.versions import Stale
from portal.models import AuditEntry, Department, Role, User
from quotas.models import Pool
from tests import builders as make
from tests.clients import person as api
from workloads.idle import exemptions
from workloads.idle.policies import Loosens, Policies, set_policy
from workloads.idle.rule import Action, Rule
from workloads.models import IdlePolicy, Image, Workload

pytestmark = pytest.mark.django_db
STOP = Rule(below=5, minutes=60, action=Action.STOP, countdown=15, keep=240)


@pytest.fixture
def pool(db: None) -> Pool:
    return make.pool("a100", cards=8)


@pytest.fixture
def vision() -> Department:
    return make.department("vision")


@pytest.fixture
def operator() -> User:
    return make.user("root", is_operator=True)


@pytest.fixture
def owner(vision: Department) -> User:
    return make.member(vision, Role.OWNER, "olga")


def put(who: User, pool: Pool, department: Department | None, version: int, **rules: Rule) -> IdlePolicy:
    return set_policy(actor=Actor(who), pool=pool, department=department, rules=rules, expected_version=version)


def test_department_can_tighten_the_pool_policy_and_its_teams_further(
    pool: Pool, vision: Department, operator: User, owner: User
) -> None:
    team = make.department("team", parent=vision)
    put(operator, pool, None, 0, notebook=STOP)
    put(owner, pool, vision, 0, notebook=Rule(10, 60, Action.STOP, 15, 60), job=Rule(5, 120, Action.WARN))
    put(owner, pool, team, 0, notebook=Rule(10, 30, Action.STOP, 15, 60))
    known = Policies()
    assert known.effective(pool.pk, vision.pk, "notebook") == Rule(10, 60, Action.STOP, 15, 60)
    assert known.effective(pool.pk, team.pk, "notebook") == Rule(10, 30, Action.STOP, 15, 60)
    assert known.effective(pool.pk, team.pk, "job") == Rule(5, 120, Action.WARN)
    assert known.effective(pool.pk, team.pk, "service") is None
    assert known.definition(pool.pk, team.pk, "service").action is Action.NOTHING
    entry = AuditEntry.objects.filter(action="idle_policy.changed", department=team).get()
    assert entry.after
    assert entry.after["idle_policy"]["notebook"]["minutes"] == 30


@pytest.mark.parametrize(
    ("field", "own", "text"),
    [
        ("below", 4, "5 %"), ("minutes", 61, "60 minutes"), ("countdown", 16, "15 minutes"), ("keep", 241, "240 minutes"),
        ("action", Action.WARN, "warn, then stop"),
    ],
)  # fmt: skip
def test_looser_rule_is_rejected_with_both_values(
    pool: Pool, vision: Department, operator: User, owner: User, field: str, own: Any, text: str
) -> None:
    put(operator, pool, None, 0, notebook=STOP)
    values = {"below": 5, "minutes": 60, "action": Action.STOP, "countdown": 15, "keep": 240} | {field: own}
    with pytest.raises(Loosens) as refused:
        put(owner, pool, vision, 0, notebook=Rule(**values))
    assert refused.value.field == f"rules.notebook.{field}"
    assert text in refused.value.detail
    assert field == "action" or str(own) in refused.value.detail
    assert not IdlePolicy.objects.filter(department=vision).exists()


def test_pool_policy_tightened_later_applies_to_departments_with_looser_rules(
    pool: Pool, vision: Department, operator: User, owner: User
) -> None:
    put(operator, pool, None, 0, notebook=STOP)
    put(owner, pool, vision, 0, notebook=STOP)
    put(operator, pool, None, 1, notebook=Rule(5, 20, Action.STOP, 15, 240))
    found = Policies().effective(pool.pk, vision.pk, "notebook")
    assert found is not None
    assert found.minutes == 20


def test_invalid_outdated_or_unauthorised_policies_change_nothing(
    pool: Pool, vision: Department, operator: User, owner: User
) -> None:
    with pytest.raises(Invalid, match="10 to 10080"):
        put(operator, pool, None, 0, job=Rule(minutes=9))
    with pytest.raises(Invalid, match="not a kind"):
        put(operator, pool, None, 0, dance=STOP)
    put(operator, pool, None, 0, job=STOP)
    with pytest.raises(Stale):
        put(operator, pool, None, 0, job=STOP)
    with pytest.raises(NotVisible):
        put(owner, pool, None, 1, job=STOP)
    with pytest.raises(Forbidden):
        put(make.member(vision), pool, vision, 0, job=STOP)
    with pytest.raises(NotVisible):
        put(make.member(make.department("nlp"), Role.OWNER), pool, vision, 0, job=STOP)
    assert IdlePolicy.objects.count() == 1


def test_api_reads_sets_and_removes_policies(pool: Pool, vision: Department, operator: User, owner: User) -> None:
    address = "/api/v1/pools/a100/idle_policy/"
    root, olga = api(operator), api(owner)
    assert olga.get(address).json() == {"rules": {}, "effective": {}, "exempt_until": None, "version": 0}
    body = {"rules": {"notebook": {"action": "stop", "minutes": 60}}}
    assert root.put(address, body, "json").status_code == 428
    fresh = {"headers": {"If-Match": '"0"'}}
    answer = root.put(address, body, "json", **fresh)
    assert answer.status_code == 200, answer.content
    assert answer.json()["effective"]["notebook"] == {
        "below": 5, "minutes": 60, "action": "stop", "countdown": 15, "keep": 240
    }  # fmt: skip
    own = "/api/v1/departments/vision/quotas/a100/idle_policy/"
    assert olga.get(own).json()["effective"]["notebook"]["minutes"] == 60
    looser = {"rules": {"notebook": {"action": "stop", "minutes": 90}}}
    refused = olga.put(own, looser, "json", **fresh)
    assert (refused.status_code, refused.json()["code"]) == (422, "looser_than_pool")
    assert refused.json()["errors"][0]["attr"] == "rules.notebook.minutes"
    for wrong in (
        {"rules": {"notebook": {"action": "explode"}}},
        {"rules": {"dance": {}}},
        {"rules": 3},
        {},
        {"rules": {"job": {}}},
    ):
        assert olga.put(own, wrong, "json", **fresh).status_code == 422, wrong
    unset = root.delete(address, headers={"If-Match": '"1"'})
    assert unset.json() == {"rules": {}, "effective": {}, "exempt_until": None, "version": 2}


def test_exemptions_cover_teams_and_end_when_they_expire_or_are_withdrawn(
    operator: User, owner: User, vision: Department, pool: Pool
) -> None:
    team, now = make.department("team", parent=vision), timezone.now()
    soon = now + dt.timedelta(days=3)
    row = exemptions.exempt(actor=Actor(operator), department=vision, workload=None, why="Migration", until=soon)
    other = make.department("nlp")
    known = exemptions.Exempt.at(now + dt.timedelta(seconds=5))
    assert known.until(7, team.pk) == soon
    assert known.until(7, other.pk) is None
    assert exemptions.Exempt.at(soon).until(7, team.pk) is None
    exemptions.end(actor=Actor(operator), row=row)
    assert exemptions.Exempt.at(now + dt.timedelta(seconds=5)).until(7, team.pk) is None
    with pytest.raises(exemptions.Ended):
        exemptions.end(actor=Actor(operator), row=row)
    assert set(AuditEntry.objects.values_list("action", flat=True)) == {"idle.exempted", "idle.exemption_ended"}
    with pytest.raises(NotVisible):  # a department cannot exempt itself from the policy of its pool
        exemptions.exempt(actor=Actor(owner), department=vision, workload=None, why="We like it", until=soon)


def a_workload(pool: Pool, department: Department, author: User, **fields: Any) -> Workload:
    image, _new = Image.objects.get_or_create(name="python:3.11", title="Python")
    return Workload.objects.create(
        department=department, author=author, kind="notebook", name="lab", pool=pool, image=image, units_per_pod=1,
        state="running", **fields,
    )  # fmt: skip


def test_owner_can_exempt_a_workload_by_api_with_a_reason_and_an_end(
    owner: User, vision: Department, pool: Pool
) -> None:
    author = make.member(vision, username="alice")
    workload = a_workload(pool, vision, author)
    client: Client = api(owner)
    address, soon = "/api/v1/departments/vision/idle_exemptions/", timezone.now() + dt.timedelta(days=2)
    body = {"workload": workload.public_id, "why": "Holds a licence", "until": soon.isoformat()}
    assert api(author).post(address, body, "json").status_code == 403
    created = client.post(address, body, "json")
    assert created.status_code == 201, created.content
    assert created.json()["in_force"] is True
    assert created.json()["by"] == "olga"
    for field, wrong in (("until", (timezone.now() + dt.timedelta(days=91)).isoformat()), ("why", " "),
                         ("until", (timezone.now() - dt.timedelta(days=1)).isoformat())):  # fmt: skip
        answer = client.post(address, {**body, field: wrong}, "json")
        assert (answer.status_code, answer.json()["errors"][0]["attr"]) == (422, field)
    assert exemptions.of_workload(workload, timezone.now()) is not None
    one = f"/api/v1/idle_exemptions/{created.json()['id']}/"
    assert api(author).get(one).json()["why"] == "Holds a licence"
    assert api(author).delete(one).status_code == 403
    assert client.delete(one).status_code == 204
    assert [each["in_force"] for each in client.get(address).json()["results"]] == [False]
    assert client.get(address, {"in_force": "1"}).json()["results"] == []
