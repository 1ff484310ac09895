"""Every change that can take something away from somebody is refused, in the API and on its page, until its effects are
confirmed. Each of these changes is tried in a world in which it has effects."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from django.test import Client
from django.urls import get_resolver

from portal.models import AuditEntry, Department, User
from quotas.models import Cluster, Node, Pool, Quota
from tests import builders as make
from tests.clients import person

pytestmark = pytest.mark.django_db
API = "/api/v1/"
NEVER = {"within": "never", "reclaim": "never", "borrow_preempt": None}
NEVER_FORM = {
    "own": "1", "reclaim": "never", "within": "never", "borrow_preempt": "never", "max_priority": "", "version": "1",
}  # fmt: skip
ALL_DAY = {"days": ["mon", "tue", "wed", "thu", "fri", "sat", "sun"], "start": "00:00", "end": "24:00", "lend_limit": 0}
ALL_DAY_FORM = {
    "windows-TOTAL_FORMS": "1", "windows-INITIAL_FORMS": "0", "windows-0-days": [*map(str, range(7))],
    "windows-0-start": "00:00", "windows-0-end": "00:00", "windows-0-lend_limit": "0", "zone": "UTC",
}  # fmt: skip


# Worlds: a pool of four cards, vision and nlp -------------------------------------------------------------------------


def crowded(vision: int = 4, used: int = 0, asks: int = 0, **quota: Any) -> None:
    """vision is guaranteed `vision`, uses `used` of it and requests `asks`; nlp borrows all the rest."""
    pool, mine, nlp = _pool(), make.department("vision"), make.department("nlp")
    make.quota(mine, pool, vision, **quota)
    make.quota(nlp, pool, 0)
    if used:
        _running(mine, pool, range(used), own=used)
    if used < 4:
        _running(nlp, pool, range(used, 4), borrowed={mine if vision else None: 4 - used})
    if asks:
        make.claim(mine, pool, asks, workload="asks")


def free(asks: str = "nlp", units: int = 2, **quota: Any) -> None:
    """Everything is free and guaranteed to vision, and the department `asks` is about to start a workload."""
    pool, rows = _pool(), {"vision": make.department("vision"), "nlp": make.department("nlp")}
    make.quota(rows["vision"], pool, 4)
    make.quota(rows["nlp"], pool, 0, **quota)
    make.claim(rows[asks], pool, units, workload="asks", user=make.user("ann"))


def unassigned() -> None:
    """Nothing is guaranteed, and nlp is about to start a workload."""
    make.quota(make.department("nlp"), _pool(), 0)
    make.claim(Department.objects.get(), Pool.objects.get(), 2, workload="asks")


def team_above_its_limit() -> None:
    """lab cannot borrow; nlp, which is to become its team, is guaranteed 2 and uses 4."""
    pool, lab, nlp = _pool(), make.department("lab"), make.department("nlp")
    make.quota(lab, pool, 0, borrow_limit=0)
    make.quota(nlp, pool, 2)
    _running(nlp, pool, range(4), own=2, borrowed={None: 2})


def protected() -> None:
    """nlp uses what vision lends, and the minimum runtime protects it for another hour."""
    crowded()
    Pool.objects.update(min_runtime=7200)


def _pool() -> Pool:
    return make.pool("a100", name="A100 cards", cards=4, notice=60, grace=30)


def _running(department: Department, pool: Pool, cards: range, **parts: Any) -> None:
    place = [{"pod": 0, "node": "a100-n1", "cards": list(cards)}]
    workload = f"{department.slug}-runs"
    make.holding(department, pool, workload=workload, name="train", notice=60, grace=30, placement=place, **parts)


# Changes --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Change:
    world: Callable[[], None]
    kinds: set[str]
    page: str
    fields: dict[str, Any]
    operation: str = ""  # of the API; "": there is none
    call: tuple[str, str, Any] = ("", "", None)
    dry: bool = True
    version: bool = True


def quota(world: Callable[[], None], kinds: set[str], windows: bool = False, **numbers: Any) -> Change:
    body = {"guaranteed": 4, "borrow_limit": None, "lend_limit": None, **numbers}
    fields = {name: "" if value is None else value for name, value in body.items()} | {"version": "1", "why": ""}
    department = "nlp" if "borrow_limit" in numbers else "vision"
    if department == "nlp":
        body["guaranteed"] = fields["guaranteed"] = 0
    if windows:
        body, fields = body | {"windows": [ALL_DAY], "zone": "UTC"}, fields | ALL_DAY_FORM
    path = f"departments/{department}/quotas/a100/"
    return Change(world, kinds, f"/d/{department}/quotas/a100/", fields, "quotas_set", ("put", path, body))


def policy(page: str, path: str, operation: str) -> Change:
    return Change(crowded, {"guarantee"}, page, NEVER_FORM, operation, ("put", path, NEVER))


DEPARTMENT = "/operator/departments/"
CHANGES = {
    "guarantee raised": quota(lambda: crowded(vision=0, asks=2), {"stopped"}, guaranteed=4),
    "guarantee lowered": quota(lambda: crowded(used=4), {"recallable"}, guaranteed=2),
    "borrow limit": quota(free, {"impossible"}, borrow_limit=0),
    "lend limit": quota(free, {"impossible"}, lend_limit=0),
    "lending window": quota(crowded, {"stopped"}, windows=True),
    "cap": Change(
        lambda: free(asks="vision"), {"waits"}, "/d/vision/caps/a100/", {"a100-units": "1"}, "user_caps_set",
        ("put", "departments/vision/user_caps/a100/", {"units": 1}), version=False,
    ),
    "move": Change(
        team_above_its_limit, {"over"}, f"{DEPARTMENT}nlp/", {"name": "Nlp", "parent": "lab", "weight": "1", "version": "1"},
        "departments_change", ("patch", "departments/nlp/", {"parent": "lab"}), dry=False,
    ),
    "pause": Change(
        free, {"waits"}, "/d/nlp/pause/", {"paused": "1", "version": "1"}, "departments_change",
        ("patch", "departments/nlp/", {"paused": True}), dry=False,
    ),
    "policy of a pool": policy("/operator/pools/a100/policy/", "pools/a100/policy/", "pool_policy_set"),
    "policy of a department": policy(f"{DEPARTMENT}vision/policy/", "departments/vision/policy/", "department_policy_set"),
    "policy of a quota": policy(
        f"{DEPARTMENT}vision/policy/a100/", "departments/vision/quotas/a100/policy/", "quota_policy_set"
    ),
    "rules: shorter protection": Change(
        protected, {"protection"}, "/operator/pools/a100/", {
            "form": "rules", "notice": "60s", "grace": "30s", "min_runtime": "0s", "max_reclaims": "10",
            "beside_percent": "100", "fair_sharing": "", "starvation_after": "", "restart_cost": "", "version": "1",
        },
        "pools_change", ("patch", "pools/a100/", {"min_runtime": 0, "max_reclaims": 10}),
    ),
    "rules: longer protection": Change(
        crowded, {"guarantee"}, "/operator/pools/a100/", {
            "form": "rules", "notice": "60s", "grace": "30s", "min_runtime": "1d", "max_reclaims": "10",
            "beside_percent": "100", "fair_sharing": "", "starvation_after": "", "restart_cost": "", "version": "1",
        },
        "pools_change", ("patch", "pools/a100/", {"min_runtime": 86400}),
    ),
    "nominal": Change(unassigned, {"impossible"}, "/operator/pools/a100/", {"form": "nominal", "nominal": "0"}),
    "drain": Change(
        free, {"short", "waits"}, "/operator/nodes/{node}/", {"drained": "1"}, "nodes_drain",
        ("patch", "nodes/{node}/", {"drained": True}), version=False,
    ),
    "cluster off": Change(
        crowded, {"cluster"}, "/operator/clusters/{cluster}/", {"active": ""}, "clusters_change",
        ("patch", "clusters/{cluster}/", {"active": False}), dry=False, version=False,
    ),
}  # fmt: skip


@pytest.fixture
def oscar(db: None) -> User:
    return make.user("oscar", is_operator=True)


def filled(path: str) -> str:
    return path.format(node=Node.objects.get().pk, cluster=Cluster.objects.get().name)


def stored() -> Any:
    """Everything that these changes write."""
    return (
        list(Quota.objects.order_by("pk").values()),
        list(Pool.objects.values()),
        list(Department.objects.order_by("pk").values()),
        list(Node.objects.values("drained")),
        list(Cluster.objects.values("active")),
        AuditEntry.objects.count(),
    )


@pytest.mark.parametrize("name", [name for name, change in CHANGES.items() if change.operation])
def test_api_write_is_refused_until_its_effects_are_confirmed(oscar: User, name: str) -> None:
    change = CHANGES[name]
    change.world()
    method, path, body = change.call
    before, client = stored(), person(oscar)

    def call(query: str = "") -> Any:
        headers = {"If-Match": '"1"'} if change.version else {}
        return getattr(client, method)(API + filled(path) + query, body, headers=headers, format="json")

    refused = call()
    problem = refused.json()
    assert (refused.status_code, problem.get("code")) == (409, "needs_confirmation"), problem
    assert refused["Content-Type"] == "application/problem+json"
    assert change.kinds <= {each["kind"] for each in problem["breaks"]}, problem
    assert all(each["detail"] for each in problem["breaks"])
    if change.dry:
        shown = call("?dry_run=1").json()
        assert shown["confirm"] == problem["confirm"]
        assert [each["kind"] for each in shown["breaks"]] == [each["kind"] for each in problem["breaks"]]
    wrong = call("?confirm=0123456789abcdef")
    assert (wrong.status_code, wrong.json()["changed"]) == (409, True)
    assert stored() == before
    done = call(f"?confirm={problem['confirm']}")
    assert done.status_code == 200, done.json()
    assert stored() != before


@pytest.mark.parametrize("name", CHANGES)
def test_page_asks_to_confirm_the_effects(oscar: User, name: str) -> None:
    change = CHANGES[name]
    change.world()
    client, path = Client(), filled(change.page)
    client.force_login(oscar, backend="django.contrib.auth.backends.ModelBackend")
    fields = dict(change.fields)
    if "parent" in fields:
        fields["parent"] = Department.objects.get(slug="lab").pk
    before = stored()
    asked = client.post(path, fields)
    text = asked.content.decode()
    assert asked.status_code == 409, re.findall(r"error-text[^<]*<|invalid-feedback[^<]*<", text)
    mark = re.findall(r'name="confirmed" value="(\w+)"', text)[0]
    assert stored() == before
    assert client.post(path, fields | {"confirmed": "0123456789abcdef"}).status_code == 409
    assert stored() == before
    done = client.post(path, fields | {"confirmed": mark})
    assert done.status_code in (200, 302)
    assert stored() != before


def test_change_without_effects_needs_no_confirmation(oscar: User) -> None:
    crowded(vision=2, used=2)
    same = person(oscar).put(
        f"{API}departments/vision/quotas/a100/", {"guaranteed": 2, "borrow_limit": 2, "lend_limit": None},
        headers={"If-Match": '"1"'}, format="json",
    )  # fmt: skip
    assert same.status_code == 200


def test_effects_on_work_of_others_show_only_department_and_amount(oscar: User) -> None:
    crowded(vision=4)
    olivia = make.member(Department.objects.get(slug="vision"), "owner", "olivia")
    refused = person(olivia).put(
        f"{API}departments/vision/quotas/a100/", {"guaranteed": 4, "borrow_limit": None, "lend_limit": 0} | {
            "windows": [ALL_DAY], "zone": "UTC",
        }, headers={"If-Match": '"1"'}, format="json",
    )  # fmt: skip
    assert refused.status_code == 409
    details = [each["detail"] for each in refused.json()["breaks"] if each["kind"] == "stopped"]
    assert details == ["Nlp: a workload of another department, 4 cards would have to release its capacity."]


def test_recall_with_other_effects_than_confirmed_is_refused(oscar: User) -> None:
    crowded()
    asked = {"department": "vision", "pool": "a100", "units": 2}
    shown = person(oscar).post(f"{API}recalls/?dry_run=1", asked, format="json").json()
    assert [each["kind"] for each in shown["breaks"]] == ["stopped"]
    other = person(oscar).post(f"{API}recalls/?confirm={shown['confirm']}", asked | {"units": 3}, format="json")
    assert (other.status_code, other.json()["code"]) == (409, "needs_confirmation")
    assert person(oscar).post(f"{API}recalls/?confirm={shown['confirm']}", asked, format="json").status_code == 201


def test_request_for_confirmation_is_not_stored_for_the_idempotency_key(oscar: User) -> None:
    crowded()
    asked, key = {"department": "vision", "pool": "a100", "units": 2}, {"Idempotency-Key": "recall-1"}
    shown = person(oscar).post(f"{API}recalls/?confirm=0", asked, headers=key, format="json").json()
    path = f"{API}recalls/?confirm={shown['confirm']}"
    assert person(oscar).post(path, asked, headers=key, format="json").status_code == 201


# Completeness ---------------------------------------------------------------------------------------------------------

# tests/workloads/api/test_modes.py; tests/quotas/views/: test_requests.py, test_health.py, test_budgets.py;
# tests/portal/sign_in/test_identities.py; tests/workloads/configuration/test_api.py; tests/workloads/api/test_catalogue.py
# A recall stops workloads by its nature.
COVERED_ELSEWHERE = {
    "configuration_apply",
    "pools_set_capacity",
    "mode_changes_start",
    "recalls_ask",
    "quota_requests_decide",
    "quarantines_begin",
    "budgets_create",
    "budgets_set",
    "budgets_remove",
    "group_rules_remove",
}


def test_every_api_write_with_a_dry_run_is_covered(client: Client) -> None:
    schema = person(make.user("root", is_operator=True)).get(f"{API}schema/?format=json").json()
    dry, confirmed = set(), set()
    for operations in schema["paths"].values():
        for operation in operations.values():
            names = {each["name"] for each in operation.get("parameters", ())}
            dry |= {operation["operationId"]} if "dry_run" in names else set()
            confirmed |= {operation["operationId"]} if "confirm" in names else set()
    covered = {change.operation for change in CHANGES.values() if change.operation}
    covered |= {name.replace("_set", "_unset") for name in covered if "policy" in name}
    assert confirmed == covered | COVERED_ELSEWHERE
    only_give = {"group_rules_create"}  # a rule takes nothing from anybody
    assert {name for name in dry if "workloads" not in name} <= confirmed | only_give


def test_every_page_with_a_preview_is_covered() -> None:
    names = {str(name) for name in get_resolver("quotas.page_urls").reverse_dict if isinstance(name, str)}
    previews = {name for name in names if name.endswith("preview")}
    covered_elsewhere = {"request_preview", "quarantine_preview"}  # tests/quotas/views/test_requests.py, test_health.py
    covered_elsewhere |= {"budget_preview", "budget_edit_preview"}  # test_budgets.py there
    assert previews - covered_elsewhere == {
        "quota_preview",
        "recall_preview",
        "department_preview",
        "operator_pool_preview",
    }
