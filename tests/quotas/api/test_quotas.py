import datetime as dt
import threading
from typing import Any

import pytest
from django.db import connection, connections, transaction
from django.utils import timezone

from portal.ids import new_id
from portal.models import Department, Role, User
from quotas.models import Claim, ClaimState, Decision, PlanPass, Pool, Quota
from quotas.planning.lock import locked_group
from tests import builders as make
from tests.clients import person, program
from tests.locks import short_waits

pytestmark = pytest.mark.django_db
API = "/api/v1/"
URL = API + "departments/vision/quotas/a100/"


@pytest.fixture
def pool() -> Pool:
    return make.pool("a100", cards=8, nodes=2, notice=600, grace=120)


@pytest.fixture
def nlp(pool: Pool) -> Department:
    nlp = make.department("nlp")
    make.quota(nlp, pool, 2)
    return nlp


@pytest.fixture
def olga(vision: Department) -> User:
    return make.member(vision, Role.OWNER, "olga")


def rule(guaranteed: int = 4, borrow_limit: int | None = None, lend_limit: int | None = None) -> dict[str, Any]:
    return {"guaranteed": guaranteed, "borrow_limit": borrow_limit, "lend_limit": lend_limit}


def test_a_quota_is_read_with_its_etag_and_unit(olga: User) -> None:
    response = person(olga).get(URL)
    assert response["ETag"] == '"1"'
    data = response.json()
    assert (data["guaranteed"], data["unit"], data["borrow_limit"]) == (4, "card", None)
    assert person(olga).get(API + "departments/vision/quotas/").json()["results"][0]["pool"] == "a100"


def test_owner_can_set_the_lend_limit_but_not_the_guarantee(olga: User) -> None:
    response = person(olga).put(URL, rule(lend_limit=1), headers={"If-Match": '"1"'})
    assert (response.status_code, response["ETag"], response.json()["lend_limit"]) == (200, '"2"', 1)
    more = person(olga).put(URL, rule(5, lend_limit=1), headers={"If-Match": '"2"'})
    assert (more.status_code, more.json()["role"]) == (403, "operator")
    assert Quota.objects.get().guaranteed == 4


def test_concurrent_changes_of_a_quota_do_not_overwrite_each_other(olga: User) -> None:
    client = person(olga)
    assert client.put(URL, rule(), headers={}).status_code == 428
    assert client.put(URL, rule(lend_limit=2), headers={"If-Match": '"1"'}).status_code == 200
    stale = client.put(URL, rule(lend_limit=3), headers={"If-Match": '"1"'})
    assert (stale.status_code, stale.json()["current"], stale.json()["given"]) == (412, 2, 1)
    assert Quota.objects.get().lend_limit == 2


@pytest.mark.concurrency
@pytest.mark.django_db(transaction=True)
def test_lock_timeout_returns_503_and_changes_nothing(root: User, vision: Department, pool: Pool) -> None:
    held, over = threading.Event(), threading.Event()

    def hold() -> None:
        try:
            with transaction.atomic():
                locked_group(pool.group_id)
                held.set()
                over.wait(20)
        finally:
            connections.close_all()

    thread = threading.Thread(target=hold)
    thread.start()
    try:
        assert held.wait(20)
        client = person(root)
        with short_waits():
            response = client.put(URL, rule(3), headers={"If-Match": '"1"'})
    finally:
        over.set()
        thread.join()
        connection.close()
    assert (response.status_code, response.json()["code"], response["Retry-After"]) == (503, "busy", "3")
    assert Quota.objects.get().guaranteed == 4


def test_promising_more_than_the_pool_has_is_refused_with_both_numbers(
    root: User, vision: Department, nlp: Department
) -> None:
    response = person(root).put(URL, rule(7), headers={"If-Match": '"1"'})
    data = response.json()
    assert (response.status_code, data["code"], data["promised"], data["nominal"]) == (409, "over_promised", 9, 8)
    assert data["errors"][0]["attr"] == "guaranteed"


def test_a_new_quota_is_created_only_if_there_is_none(root: User, vision: Department) -> None:
    speech = make.department("speech")
    url = API + "departments/speech/quotas/a100/"
    created = person(root).put(url, rule(1), headers={"If-None-Match": "*"})
    assert (created.status_code, created["Location"]) == (201, url)
    assert person(root).put(url, rule(2), headers={"If-None-Match": "*"}).status_code == 412
    assert Quota.objects.get(department=speech).guaranteed == 1


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"guaranteed": -1, "borrow_limit": None, "lend_limit": None}, "guaranteed"),
        ({"guaranteed": 2**40, "borrow_limit": None, "lend_limit": None}, "guaranteed"),
        ({"guaranteed": 1, "borrow_limit": "x", "lend_limit": None}, "borrow_limit"),
        ({"guaranteed": 1, "borrow_limit": None}, "lend_limit"),
        ({"guaranteed": 1, "borrow_limit": None, "lend_limit": None, "weight": 1}, "weight"),
    ],
)
def test_invalid_quota_is_refused_with_its_field(root: User, vision: Department, body: Any, field: str) -> None:
    response = person(root).put(URL, body, headers={"If-Match": '"1"'})
    assert (response.status_code, response.json()["errors"][0]["attr"]) == (422, field)


def test_dry_run_lists_effects_and_changes_nothing(root: User, vision: Department, nlp: Department, pool: Pool) -> None:
    response = person(root).put(URL + "?dry_run=1", rule(6), headers={"If-Match": '"1"'})
    assert response.status_code == 200
    assert set(response.json()) == {"unit", "stopped", "promised_at", "sentence", "lines", "breaks", "confirm"}
    assert Quota.objects.get(department=vision).guaranteed == 4


def test_usage_has_own_borrowed_and_lent_units_but_no_workload_names(
    olga: User, vision: Department, nlp: Department, pool: Pool
) -> None:
    make.holding(vision, pool, own=3, user=olga)
    make.holding(nlp, pool, own=2, borrowed={vision: 1}, name="secret-model")
    response = person(olga).get(API + "departments/vision/usage/")
    [row] = response.json()["results"]
    assert (row["own"], row["lent"], row["lent_to"], row["unit"]) == (3, 1, {"nlp": 1}, "card")
    assert row["per_user"] == [{"user": "olga", "own": 3, "borrowed": 0, "cap": None}]
    assert "secret-model" not in response.content.decode()


def test_owners_can_cap_what_each_user_holds(olga: User, vision: Department) -> None:
    url = API + "departments/vision/user_caps/"
    assert person(olga).put(f"{url}a100/", {"units": 2}).json() == {"pool": "a100", "unit": "card", "units": 2}
    assert person(olga).get(url).json()["results"][0]["units"] == 2
    assert person(olga).delete(f"{url}a100/").status_code == 204
    assert person(olga).get(url).json()["results"] == []


def test_everyone_can_see_pools_and_departments_use_but_no_workloads(
    olga: User, vision: Department, nlp: Department, pool: Pool
) -> None:
    make.holding(nlp, pool, own=2, name="secret-model", workload="w" * 26)
    response = person(olga).get(API + "pools/")
    [row] = response.json()["results"]
    assert (row["present"], row["own"], row["free"], row["promised"]) == (8, 2, 6, 6)
    assert {share["department"]: share["own"] for share in row["shares"]} == {"nlp": 2, "vision": 0}
    assert "secret-model" not in response.content.decode()
    assert "w" * 26 not in response.content.decode()


def test_only_operators_can_change_a_pools_rules_and_drain_nodes(olga: User, root: User, pool: Pool) -> None:
    change = {"notice": 60}
    assert person(olga).patch(API + "pools/a100/", change, headers={"If-Match": '"1"'}).status_code == 404
    response = person(root).patch(API + "pools/a100/", change, headers={"If-Match": '"1"'})
    assert (response.json()["notice"], response.json()["grace"], response["ETag"]) == (60, 120, '"2"')
    assert person(root).patch(API + "pools/a100/", change, headers={"If-Match": '"1"'}).status_code == 412
    nodes = person(olga).get(API + "nodes/?pool=a100").json()["results"]
    assert [len(node["cards"]) for node in nodes] == [4, 4]
    node = f"{API}nodes/{nodes[0]['id']}/"
    assert person(olga).patch(node, {"drained": True}).status_code == 404
    assert person(root).patch(node, {"drained": True}).json()["takes_pods"] is False
    assert person(olga).get(API + "pools/a100/").json()["present"] == 4


def test_recall_can_be_previewed_created_watched_and_withdrawn(
    olga: User, vision: Department, nlp: Department, pool: Pool
) -> None:
    make.holding(nlp, pool, own=2, borrowed={None: 2, vision: 4}, name="secret-model", workload="w" * 26, notice=600)
    client, url = person(olga), API + "recalls/"
    body = {"department": "vision", "pool": "a100", "units": 3}
    preview = client.post(url + "?dry_run=1", body)
    assert preview.status_code == 200
    assert [(s["department"], s["units"], s["own"], s["name"]) for s in preview.json()["stopped"]] == [
        ("nlp", 8, False, "")
    ]
    assert not Claim.objects.filter(pods=0).exists()
    created = client.post(url, body, headers={"Idempotency-Key": "r"})
    assert (created.status_code, created.json()["returned"], created.json()["units"]) == (201, 0, 3)
    assert client.post(url, body, headers={"Idempotency-Key": "r"}).json()["id"] == created.json()["id"]
    assert Claim.objects.filter(pods=0).count() == 1

    from quotas.planning.run_pass import run_pass

    run_pass(group_id=pool.group_id)
    watched = client.get(created["Location"])
    data = watched.json()
    assert (data["returned"], data["state"], data["by"]) == (0, "pending", "olga")
    assert [(s["department"], s["units"]) for s in data["returning"]] == [("nlp", 8)]
    assert data["returning"][0]["gone_by"] > timezone.now().isoformat()
    assert "secret-model" not in watched.content.decode()
    # The leaver is now held for this claim; the recall still waits for it.
    other = make.claim(vision, pool, 2, name="other")
    Claim.objects.filter(state=ClaimState.LEAVING).update(preempted_for=other)
    for response in (client.get(created["Location"]).json(), *client.get(url).json()["results"]):
        assert (response["returned"], response["returning"]) == (0, data["returning"])
    assert client.delete(created["Location"]).status_code == 204
    assert client.delete(created["Location"]).status_code == 204, "withdrawing twice is harmless"
    assert client.get(url + "?running=1").json()["results"] == []


@pytest.mark.parametrize("changes", [{"units": 5}, {"units": 0}, {"until": "2001-01-01T00:00:00Z"}, {"pool": "none"}])
def test_recall_above_the_guarantee_or_into_the_past_is_refused(olga: User, changes: dict[str, Any]) -> None:
    response = person(olga).post(API + "recalls/", {"department": "vision", "pool": "a100", "units": 3, **changes})
    assert response.status_code == (404 if "pool" in changes else 422), response.content
    assert not Claim.objects.exists()


def make_decision(by: Department, victims: list[Claim], pool: Pool) -> Decision:
    claim = make.claim(by, pool, 2, name=f"{by.slug}-work", workload=new_id())
    plan_pass = PlanPass.objects.create(group=pool.group, snapshot=b"")
    row = Decision.objects.create(
        plan_pass=plan_pass, kind="reclaim", claim=claim, department=by, pool=pool,
        data={"own": 2, "borrowed": 0, "from": {}, "waiting_on": [v.public_id for v in victims],
              "reasons": [{"code": "lent_out_returning", "victims": [v.public_id for v in victims], "at": 1_800_000_000}]},
    )  # fmt: skip
    row.victims.set(victims)
    return row


def test_each_side_can_read_a_decision_and_sees_only_the_names_of_its_own_work(
    olga: User, vision: Department, nlp: Department, pool: Pool
) -> None:
    victim = make.holding(nlp, pool, borrowed={vision: 2}, name="nlp-work", workload=f"{'victim':w<26}")
    row = make_decision(vision, [victim], pool)
    nora = make.member(nlp, Role.VIEWER)
    stranger = make.member(make.department("speech"))
    mine = person(olga).get(f"{API}decisions/{row.public_id}/")
    assert mine.json()["claim"]["name"] == "vision-work"
    assert mine.json()["victims"][0] == {
        "department": "nlp",
        "units": 2,
        "unit": "card",
        "workload": None,
        "name": None,
    }
    assert "nlp-work" not in mine.content.decode()
    assert victim.public_id not in mine.content.decode()
    assert mine.json()["reasons"][0]["at"] == "2027-01-15T08:00:00Z"
    theirs = person(nora).get(API + "decisions/")
    assert theirs.json()["results"][0]["victims"][0]["name"] == "nlp-work"
    assert "vision-work" not in theirs.content.decode()
    assert person(stranger).get(API + "decisions/").json()["results"] == []
    assert person(stranger).get(f"{API}decisions/{row.public_id}/").status_code == 404


def test_a_page_of_decisions_and_loans_takes_few_queries(
    olga: User, vision: Department, nlp: Department, pool: Pool, django_assert_max_num_queries: Any
) -> None:
    for _ in range(8):
        make_decision(vision, [make.holding(nlp, pool, borrowed={vision: 1})], pool)
    client = person(olga)
    for path, rows in (("decisions/", 8), ("loans/", 8), ("recalls/", 0)):
        with django_assert_max_num_queries(16):
            assert len(client.get(API + path).json()["results"]) == rows


def test_loans_show_borrower_and_lender_and_name_only_visible_work(
    olga: User, vision: Department, nlp: Department, pool: Pool
) -> None:
    until = timezone.now() + dt.timedelta(minutes=5)
    make.holding(nlp, pool, borrowed={vision: 2}, state=ClaimState.LEAVING, leave_by=until, workload="w" * 26)
    [loan] = person(olga).get(API + "loans/?department=vision&running=1").json()["results"]
    assert (loan["borrower"], loan["lender"], loan["units"], loan["workload"]) == ("nlp", "vision", 2, None)
    assert loan["until"][:19] == until.isoformat()[:19]
    nora = make.member(nlp)
    assert person(nora).get(API + "loans/").json()["results"][0]["workload"] == "w" * 26
    assert person(make.user()).get(API + "loans/").json()["results"] == []


PLACES = [
    ("get", "departments/vision/quotas/"),
    ("get", "departments/vision/quotas/a100/"),
    ("put", "departments/vision/quotas/a100/"),
    ("get", "departments/vision/usage/"),
    ("get", "departments/vision/user_caps/"),
    ("put", "departments/vision/user_caps/a100/"),
    ("delete", "departments/vision/user_caps/a100/"),
    ("get", "loans/?department=vision"),
    ("get", "decisions/?department=vision"),
    ("get", "recalls/?department=vision"),
]


@pytest.mark.parametrize(("method", "path"), PLACES)
def test_stranger_gets_404_and_member_cannot_write(vision: Department, olga: User, method: str, path: str) -> None:
    stranger = make.member(make.department("speech"), Role.OWNER)
    assert getattr(person(stranger), method)(API + path, {}).status_code == 404
    if method == "get":
        assert person(make.member(vision, Role.VIEWER)).get(API + path).status_code == 200
    else:
        assert getattr(person(make.member(vision, Role.MEMBER)), method)(API + path, {}).status_code == 403
        assert getattr(program(olga, vision, ["read", "submit"]), method)(API + path, {}).status_code == 403


def test_member_cannot_recall_and_stranger_gets_404(vision: Department) -> None:
    body = {"department": "vision", "pool": "a100", "units": 1}
    assert person(make.member(vision)).post(API + "recalls/", body).status_code == 403
    assert person(make.member(make.department("x"))).post(API + "recalls/", body).status_code == 404
