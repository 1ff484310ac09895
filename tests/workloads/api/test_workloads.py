"""Submitting, viewing, waiting, stopping and rerunning: as author, colleague, viewer, owner, operator and outsider."""

from __future__ import annotations

import asyncio
import json
import threading
from typing import Any

import pytest
from django.core.handlers.asgi import ASGIRequest
from django.db import connections
from django.utils import timezone

from portal.models import ApiToken, AuditEntry, Department, Role, User
from quotas.models import Claim, Node, Pool
from tests import builders as make
from tests.clients import person, program
from workloads.clusters.run_spec import tokens_of
from workloads.lifecycle import State
from workloads.models import Attempt, Image, Preset, Workload

API = "/api/v1/"
URL = API + "departments/vision/workloads/"
JOB: dict[str, Any] = {
    "name": "train", "pool": "a100", "image": "python:3.11", "command": ["python", "train.py"], "units_per_pod": 2
}  # fmt: skip


@pytest.fixture
def vision(pool: Pool) -> Department:
    vision = make.department("vision")
    make.quota(vision, pool, 4, borrow_limit=2)
    Image.objects.create(name="python:3.11", title="Python")
    return vision


def submitted(user: User, **changes: Any) -> dict[str, Any]:
    answer = person(user).post(URL, {**JOB, **changes})
    assert answer.status_code == 202, answer.content
    body: dict[str, Any] = answer.json()
    return body


def test_repeated_submission_takes_few_database_queries(
    alice: User, vision: Department, django_assert_max_num_queries: Any
) -> None:
    """Twelve queries, and two for the test's own transaction. The rules are read only once for repeated submissions."""
    ci = program(alice, vision)
    assert ci.post(URL, JOB).status_code == 202
    with django_assert_max_num_queries(14):
        assert ci.post(URL, {**JOB, "name": "next"}).status_code == 202


def test_accepted_submission_returns_its_location_and_the_request(alice: User) -> None:
    answer = person(alice).post(
        URL, {**JOB, "cpu": 0.5, "memory_mib": 512, "max_runtime": 3600, "max_wait": 60, "own_only": True}
    )
    body = answer.json()
    assert (answer.status_code, answer["Location"]) == (202, f"{API}workloads/{body['id']}/")
    assert (body["state"], body["author"], body["unit"], body["units"], body["cpu"]) == (
        "queued",
        "alice",
        "card",
        2,
        0.5,
    )
    assert (body["max_runtime"], body["max_wait"], body["own_only"], body["final"]) == (3600, 60, True, False)
    assert body["verdict"]["headline"] == "waits"
    assert len(body["attempts"]) == 1
    assert person(alice).get(answer["Location"]).json() == body
    entry = AuditEntry.objects.get()
    assert (entry.action, entry.target, entry.actor_name) == ("workload.submitted", body["id"], "alice")


def test_secret_variable_is_never_returned(alice: User) -> None:
    body = submitted(alice, env={"LR": "0.1", "WANDB_KEY": {"secret": "s3cr3t-value"}})
    assert body["env"] == {"LR": "0.1", "WANDB_KEY": {"secret": True}}
    row = Workload.objects.get()
    everything = f"{vars(row)} {list(AuditEntry.objects.values())} {person(alice).get(API + 'events/').content!r}"
    assert "s3cr3t-value" not in everything


def test_preset_fills_in_omitted_fields(alice: User, pool: Pool) -> None:
    Preset.objects.create(
        slug="small", title="Small", kind="job", pool=pool, image=Image.objects.get(), command=["nvidia-smi"],
        units_per_pod=1, cpu_milli=500,
    )  # fmt: skip
    answer = person(alice).post(URL, {"preset": "small", "units_per_pod": 3})
    body = answer.json()
    assert (body["name"], body["units"], body["command"], body["preset"]) == ("small", 3, ["nvidia-smi"], "small")
    assert person(alice).get(API + "presets/").json()["results"][0]["id"] == "small"
    assert person(alice).get(API + "images/").json()["results"][0]["name"] == "python:3.11"


@pytest.mark.parametrize(
    ("changes", "fields"),
    [
        ({"gpus": 4}, ["gpus"]),
        ({"pool": "h100"}, ["pool"]),
        ({"image": "evil"}, ["image"]),
        ({"preset": "none"}, ["preset"]),
        ({"name": ""}, ["name"]),
        ({"name": "   "}, ["name"]),
        ({"kind": "magic"}, ["kind"]),
        ({"units_per_pod": 0}, ["units_per_pod"]),
        ({"pods": 3}, ["pods"]),
        ({"cpu": "many"}, ["cpu"]),
        ({"cpu": 0.01}, ["cpu"]),
        ({"cpu": True}, ["cpu"]),
        ({"memory_mib": 1}, ["memory_mib"]),
        ({"max_runtime": 0}, ["max_runtime"]),
        ({"max_runtime": 10**9}, ["max_runtime"]),
        ({"priority": 5}, ["priority"]),
        ({"profile": "1g.10gb"}, ["profile"]),
        ({"command": "python"}, ["command"]),
        ({"command": []}, ["command"]),
        ({"env": {"1X": "y"}}, ["env"]),
        ({"env": {"CUDA_VISIBLE_DEVICES": "0"}}, ["env"]),
        ({"env": {"NVIDIA_IMEX_CHANNELS": "0"}}, ["env"]),
        ({"secret_env": {"NVIDIA_VISIBLE_DEVICES": "all"}}, ["secret_env"]),
        ({"env": {"X": 1}}, ["env"]),
        ({"env": {"X": {"secret": "a", "b": "c"}}}, ["env"]),
        ({"env": ["X=1"]}, ["env"]),
        ({"env": {"X": "a\0b"}}, ["env"]),
        ({"priority": 5, "command": [], "pods": 2}, ["command", "pods", "priority"]),
    ],
)
def test_invalid_submission_is_rejected_with_its_fields(
    alice: User, changes: dict[str, Any], fields: list[str]
) -> None:
    answer = person(alice).post(URL, {**JOB, **changes})
    assert answer.status_code == 422, answer.content
    assert sorted(each["attr"].split(".")[0] for each in answer.json()["errors"]) == fields
    assert not Workload.objects.exists()


def test_missing_fields_are_all_named(alice: User) -> None:
    answer = person(alice).post(URL, {})
    assert {each["attr"] for each in answer.json()["errors"]} == {"name", "pool", "image"}


def test_impossible_request_is_rejected_with_the_largest_possible_size(alice: User) -> None:
    answer = person(alice).post(URL, {**JOB, "units_per_pod": 7})
    body = answer.json()
    assert (answer.status_code, body["code"], body["largest"], body["asked"], body["unit"]) == (
        422, "impossible", 6, 7, "card",
    )  # fmt: skip
    assert not Workload.objects.exists()


def test_cpu_request_above_every_node_is_rejected_at_its_field(alice: User) -> None:
    Node.objects.update(cpu_milli=32_000, memory_mib=65_536)
    body = person(alice).post(URL, {**JOB, "cpu": 40}).json()
    assert (body["code"], body["errors"][0]["attr"], body["cpu"], body["node_cpu"]) == (
        "impossible", "cpu", "40", "32",
    )  # fmt: skip
    assert not Workload.objects.exists()


def test_a_dry_run_gives_the_verdict_and_stores_nothing(alice: User) -> None:
    answer = person(alice).post(URL + "?dry_run=1", {**JOB, "units_per_pod": 5})
    body = answer.json()
    assert answer.status_code == 200
    assert (body["headline"], body["own"], body["borrowed"], body["unit"]) == ("starts_borrowing", 4, 1, "card")
    assert "borrowed" in body["title"]
    assert not Workload.objects.exists()
    cannot = person(alice).post(URL + "?dry_run=1", {**JOB, "units_per_pod": 7}).json()
    assert (cannot["headline"], cannot["largest"]) == ("cannot", 6)
    chinese = person(alice).post(URL + "?dry_run=1", JOB, headers={"Accept-Language": "zh-hans"})
    assert chinese["Content-Language"] == "zh-hans"


def test_lists_can_be_filtered_and_counted(alice: User, vision: Department) -> None:
    bob = make.member(vision, Role.MEMBER, "bob")
    first, second, third = submitted(alice, name="a-1"), submitted(alice, name="a-2"), submitted(bob, name="b-1")
    Workload.objects.filter(public_id=second["id"]).update(state=State.SUCCEEDED)

    def ids(query: str) -> list[str]:
        return [row["id"] for row in person(alice).get(f"{URL}?{query}").json()["results"]]

    assert ids("") == [third["id"], second["id"], first["id"]]
    assert ids("mine=1") == [second["id"], first["id"]]
    assert ids("state=queued") == ids("state=live") == [third["id"], first["id"]]
    assert ids("state=succeeded,failed") == ids("state=final") == [second["id"]]
    assert ids("author=bob") == ids("q=b-") == [third["id"]]
    assert ids("pool=none") == []
    counts = person(alice).get(f"{URL}?mine=1&state=queued&facets=1").json()["facets"]
    assert counts["state"] == {"queued": 1, "succeeded": 1}
    assert counts["author"] == {"alice": 1}
    assert person(alice).get(f"{URL}?state=asleep").json()["errors"][0]["attr"] == "state"
    assert person(alice).get(f"{URL}?mine=maybe").status_code == 422


def test_a_list_of_many_takes_few_queries(alice: User, django_assert_max_num_queries: Any) -> None:
    for n in range(12):
        submitted(alice, name=f"job-{n}")
    client = person(alice)
    with django_assert_max_num_queries(14):
        assert len(client.get(URL).json()["results"]) == 12


def test_wait_reasons_have_code_numbers_and_text_and_hide_foreign_names(
    alice: User, vision: Department, pool: Pool
) -> None:
    nlp = make.department("nlp")
    theirs = make.holding(nlp, pool, own=8, name="secret-model")
    workload = submitted(alice)
    Claim.objects.filter(workload=workload["id"]).update(
        decision="wait", position=2, ahead=[theirs.public_id],
        reasons=[{"code": "held_for", "claim": theirs.public_id}, {"code": "not_enough", "pool": "a100", "short_by": 2}],
    )  # fmt: skip
    answer = person(alice).get(f"{API}workloads/{workload['id']}/")
    hold, short = answer.json()["reasons"]
    assert hold["claim"] == {"department": "nlp", "units": 8, "unit": "card", "workload": None, "name": None}
    assert (short["code"], short["short_by"]) == ("not_enough", 2)
    assert "2 cards" in short["text"]
    assert (answer.json()["position"], answer.json()["ahead"][0]["department"]) == (2, "nlp")
    assert "secret-model" not in answer.content.decode()
    assert theirs.public_id not in answer.content.decode()


def test_stopping_returns_202_and_204_once_the_workload_has_ended(alice: User) -> None:
    url = f"{API}workloads/{submitted(alice)['id']}/"
    answer = person(alice).delete(url)
    assert (answer.status_code, answer.json()["state"]) == (202, "cancelled")
    assert person(alice).delete(url).status_code == 204
    assert person(alice).get(url).json()["final"] is True


def test_rerun_creates_one_workload_for_each_idempotency_key(alice: User) -> None:
    workload = submitted(alice)
    url = f"{API}workloads/{workload['id']}/rerun/"
    answers = [person(alice).post(url, headers={"Idempotency-Key": "again"}) for _ in range(2)]
    assert [a.status_code for a in answers] == [202, 202]
    assert answers[0].json()["id"] == answers[1].json()["id"] != workload["id"]
    assert answers[0].json()["rerun_of"] == workload["id"]
    assert Workload.objects.count() == 2


def test_extending_needs_a_maximum_runtime_and_respects_the_upper_bound(alice: User) -> None:
    limited, endless = submitted(alice, max_runtime=600)["id"], submitted(alice)["id"]
    answer = person(alice).post(f"{API}workloads/{limited}/extend/", {"seconds": 60})
    assert (answer.status_code, answer.json()["max_runtime"]) == (200, 660)
    assert person(alice).post(f"{API}workloads/{limited}/extend/", {"seconds": 10**8}).status_code == 422
    assert person(alice).post(f"{API}workloads/{endless}/extend/", {"seconds": 60}).json()["code"] == "no_limit"


def test_ready_token_only_lets_its_own_workload_report_ready(alice: User) -> None:
    one, other = submitted(alice)["id"], submitted(alice)["id"]
    token = tokens_of(Attempt.objects.get(workload__public_id=one))["ready"]
    with_token = {"Authorization": f"Bearer {token}"}
    client = person(make.user())
    client.logout()
    url = f"{API}workloads/{one}/ready/"
    assert client.post(url, headers=with_token).json()["code"] == "not_recalled"
    Workload.objects.filter(public_id=one).update(state=State.RECALLED)
    assert client.post(url).status_code == 404
    assert client.post(url, headers={"Authorization": "Bearer no"}).status_code == 404
    assert client.post(f"{API}workloads/{other}/ready/", headers=with_token).status_code == 404
    accepted = client.post(url, headers=with_token)
    assert (accepted.status_code, accepted.json()["attempt"]) == (202, 1)
    assert Attempt.objects.get(workload__public_id=one).ready_at is not None
    assert client.get(f"{API}workloads/{one}/", headers=with_token).status_code == 401, (
        "it gives access to nothing else"
    )


# Permissions ----------------------------------------------------------------------------------------------------------

ACTIONS = [("delete", ""), ("post", "extend/"), ("post", "leave/"), ("post", "rerun/"), ("put", "files/a.txt")]
READS = ["", "logs/", "events/", "files/"]


@pytest.mark.parametrize("path", READS)
def test_workload_is_hidden_from_other_departments(alice: User, path: str) -> None:
    url = f"{API}workloads/{submitted(alice)['id']}/{path}"
    for stranger in (make.member(make.department("nlp"), Role.OWNER), make.user()):
        assert person(stranger).get(url).status_code == 404
        assert person(stranger).get(API + "workloads/").json()["results"] == []


@pytest.mark.parametrize(("method", "path"), ACTIONS)
def test_only_its_author_and_the_owner_can_act_on_a_workload(
    alice: User, vision: Department, method: str, path: str
) -> None:
    url = f"{API}workloads/{submitted(alice, max_runtime=60)['id']}/{path}"
    body = {"seconds": 1} if path == "extend/" else {}
    stranger = make.member(make.department("nlp"), Role.OWNER)
    assert getattr(person(stranger), method)(url, {}).status_code == 404
    viewer = make.member(vision, Role.VIEWER)
    assert getattr(person(viewer), method)(url, body).status_code == 403
    colleague = make.member(vision, Role.MEMBER)
    if path != "rerun/":  # running it again is a submission of one's own
        assert getattr(person(colleague), method)(url, body).status_code == 403
    reader = program(alice, vision, ["read"])
    answer = getattr(reader, method)(url, body)
    assert (answer.status_code, answer.json()["scope"]) == (403, "submit")
    assert Workload.objects.get().state == State.QUEUED


def test_owner_and_operator_can_stop_workloads_of_others(alice: User, vision: Department) -> None:
    for user in (make.member(vision, Role.OWNER), make.user(is_operator=True)):
        assert person(user).delete(f"{API}workloads/{submitted(alice)['id']}/").status_code == 202


def test_viewers_and_members_of_other_departments_cannot_submit(alice: User, vision: Department) -> None:
    assert person(make.member(vision, Role.VIEWER)).post(URL, JOB).status_code == 403
    assert person(make.member(make.department("nlp"))).post(URL, JOB).status_code == 404
    assert not Workload.objects.exists()


def test_only_operators_see_clusters_and_connections_are_tested_before_they_are_saved(alice: User) -> None:
    from quotas.models import Cluster

    before = Cluster.objects.count()
    root = person(make.user(is_operator=True))
    assert person(alice).get(API + "clusters/").status_code == 404
    listed = root.get(API + "clusters/").json()["results"]
    assert {"id", "kind", "unreachable_since"} <= set(listed[0])
    assert "connection" not in listed[0]
    nowhere = """
apiVersion: v1
kind: Config
current-context: c
clusters: [{name: c, cluster: {server: "http://127.0.0.1:9"}}]
users: [{name: u, user: {token: t0ken-value}}]
contexts: [{name: c, context: {cluster: c, user: u}}]
"""
    answer = root.post(API + "clusters/", {"name": "lab", "kubeconfig": nowhere})
    assert (answer.status_code, answer.json()["code"]) == (422, "cluster_unreachable"), answer.content
    assert "t0ken-value" not in answer.content.decode()
    assert root.post(API + "clusters/", {"name": "lab", "kubeconfig": "no: yaml: at all"}).status_code == 422
    assert Cluster.objects.count() == before


# Waiting for a change -------------------------------------------------------------------------------------------------


def long_poll(user: User, path: str) -> Any:
    """Calls the same view under ASGI and reads its response to the end."""
    from rest_framework.test import force_authenticate

    from workloads.api.resources import WorkloadView

    route, _, query = path.partition("?")
    scope = {
        "type": "http", "method": "GET", "path": route, "query_string": query.encode(), "headers": [],
        "server": ("localhost", 80),
    }  # fmt: skip
    request = ASGIRequest(scope, None)  # type: ignore[arg-type]
    request.user = user
    force_authenticate(request, user)
    response = WorkloadView.as_view()(request, workload=route.rstrip("/").rsplit("/", 1)[-1])
    if not response.streaming:
        return response.data

    async def body() -> bytes:
        async with asyncio.timeout(20):
            return b"".join([part async for part in response.streaming_content])

    return json.loads(asyncio.run(body()))


@pytest.mark.django_db(transaction=True)
def test_long_poll_returns_when_the_version_changes(alice: User) -> None:
    workload = submitted(alice)
    url = f"{API}workloads/{workload['id']}/"

    def stop() -> None:
        try:
            person(alice).delete(url)
        finally:
            connections.close_all()

    timer = threading.Timer(0.3, stop)
    timer.start()
    later = long_poll(alice, f"{url}?wait=15&version={workload['version']}")
    timer.join()
    assert later["version"] > workload["version"]
    assert long_poll(alice, f"{url}?wait=15&until=finished")["state"] == "cancelled", (
        "an ended workload is returned at once"
    )


@pytest.mark.django_db(transaction=True)
def test_long_poll_without_a_change_returns_the_same_state_after_its_timeout(alice: User) -> None:
    workload = submitted(alice)
    assert long_poll(alice, f"{API}workloads/{workload['id']}/?wait=1") == workload
    assert long_poll(alice, f"{API}workloads/{workload['id']}/?wait=50&version=0")["version"] == workload["version"]


@pytest.mark.parametrize("query", ["wait=x", "version=-1", "until=never", "wait=²"])
def test_invalid_wait_parameter_is_rejected(alice: User, query: str) -> None:
    assert person(alice).get(f"{API}workloads/{submitted(alice)['id']}/?{query}").status_code == 422


def test_token_of_a_submission_is_shown_only_to_users_who_can_list_it(alice: User, vision: Department) -> None:
    ci = program(alice, vision, name="ci-nightly")
    workload = ci.post(URL, JOB).json()
    assert (workload["token"]["name"], workload["token"]["holder"]) == ("ci-nightly", "alice")
    page = f"/d/vision/workloads/{workload['id']}/"
    sentence = "Submitted with the token “ci-nightly” of alice"
    olga, bob = make.member(vision, Role.OWNER, "olga"), make.member(vision, Role.MEMBER, "bob")
    ApiToken.objects.update(revoked_at=timezone.now())  # it is still shown after the token was revoked
    for user, can_see in ((alice, True), (olga, True), (bob, False)):
        read = person(user).get(f"{API}workloads/{workload['id']}/").json()["token"]
        [listed] = person(user).get(URL).json()["results"]
        assert (read is not None) == can_see, user
        assert listed["token"] == read
        assert (sentence in person(user).get(page).content.decode()) == can_see, user
    assert submitted(alice, name="by hand")["token"] is None
