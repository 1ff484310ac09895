"""Work submitted with kubectl, on a real API server whose admission policies gate it, with real controllers and pods."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.utils import timezone

from portal.access import Actor
from quotas.models import Claim, ClaimState, LedgerEntry, Node, Pool
from tests.clusters.external_bed import ExternalBed, bed_of, job, spec_of, until_usable
from tests.clusters.realcluster import Admin
from workloads import actions
from workloads.kubernetes.manifests import admission
from workloads.kubernetes.manifests.labels import RECLAIM_AT
from workloads.lifecycle import Event
from workloads.models import Attempt, ExternalWork, Workload
from workloads.nodes import inventory
from workloads.reconciler import transitions

pytestmark = pytest.mark.cluster
FOREVER = "trap 'exit 3' TERM; while :; do sleep 0.1; done"
STRATEGIC = "application/strategic-merge-patch+json"
KUBECTL = "fieldManager=kubectl-create"


@pytest.fixture(scope="module")
def account(admin: Admin) -> Iterator[tuple[str, str]]:
    """A kubeconfig of the portal's account, and its name."""
    with admin.account() as kubeconfig:
        token = yaml.safe_load(kubeconfig)["users"][0]["user"]["token"]
        review = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}}
        user = admin.call("POST", "/apis/authentication.k8s.io/v1/tokenreviews", review)["status"]["user"]["username"]
        yield kubeconfig, user.rpartition(":")[2]


@pytest.fixture
def bed(transactional_db: None, admin: Admin, account: tuple[str, str], tmp_path: Path) -> Iterator[ExternalBed]:
    yield from bed_of(admin, *account, tmp_path)


def jobs(bed: ExternalBed, department: str = "vision", name: str = "") -> str:
    path = f"/apis/batch/v1/namespaces/{bed.home(department)}/jobs"
    return f"{path}/{name}" if name else f"{path}?{KUBECTL}"


def pods(bed: ExternalBed, department: str = "vision", name: str = "") -> str:
    path = f"/api/v1/namespaces/{bed.home(department)}/pods"
    return f"{path}/{name}" if name else f"{path}?{KUBECTL}"


def pod(name: str, command: str, cards: int = 1, **meta: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, **meta}, "spec": spec_of(command, cards)}


def gated(each: dict[str, Any]) -> bool:
    return any(gate["name"] == admission.ADMISSION for gate in each["spec"].get("schedulingGates") or ())


def test_kubectl_pod_is_gated_placed_by_the_portal_and_its_end_ends_the_workload(bed: ExternalBed) -> None:
    created = bed.call("POST", pods(bed), pod("train", "echo done; exit 7", cards=2), user="alice")
    assert gated(created)
    bed.until(lambda: Workload.objects.filter(state="failed").exists())
    workload, attempt = bed.only(), Attempt.objects.get()
    assert (workload.name, workload.author, workload.department) == ("train", bed.alice, bed.vision)
    assert (workload.exit_code, workload.units, attempt.node) == (7, 2, "real-0")
    assert workload.external.sentence == f"Pod {bed.home()}/train, submitted with kubectl by alice"
    assert Claim.objects.get().state == ClaimState.RELEASED
    assert LedgerEntry.objects.filter(units=2, own=True).exclude(ended_at=None).exists()
    assert bed.call("GET", pods(bed, name="train"))["metadata"]["annotations"][admission.STATUS] == "admitted"


def test_recalled_job_is_suspended_as_a_gang_and_resumes_as_the_same_workload(
    bed: ExternalBed,
) -> None:
    bed.call("POST", jobs(bed, "nlp"), job("borrows", FOREVER, cards=2, pods=2), user="bob")
    borrower = bed.until_running("borrows")
    assert (borrower.pods, borrower.units_per_pod, borrower.author) == (2, 2, bed.bob)
    bed.call("POST", pods(bed), pod("owner", FOREVER, cards=2), user="alice")
    owner = bed.until_running("owner")
    first = borrower.attempts.get(number=1)
    assert (first.outcome, bed.state(borrower)) == ("recalled", "queued")
    assert first.announced_at is not None
    stopped = bed.call("GET", jobs(bed, "nlp", "borrows"))
    assert stopped["spec"]["suspend"] is True
    assert not stopped["status"].get("failed")
    events = bed.call("GET", f"/api/v1/namespaces/{bed.home('nlp')}/events")["items"]
    assert any(event["reason"] == "Preempted" and event["involvedObject"]["name"] == "borrows" for event in events)
    bed.call("DELETE", f"{pods(bed, name='owner')}?gracePeriodSeconds=1", user="alice")
    bed.until(lambda: bed.state(owner) == "cancelled")
    Claim.objects.filter(attempt__workload=borrower).update(backoff_until=None)
    bed.until(lambda: bed.state(borrower) == "running")
    assert borrower.attempts.count() == 2
    assert Workload.objects.count() == 2
    assert bed.call("GET", jobs(bed, "nlp", "borrows"))["spec"]["suspend"] is False


def test_pod_carries_its_recall_deadline_until_the_recall_is_withdrawn(bed: ExternalBed) -> None:
    Pool.objects.update(notice=600)
    bed.call("POST", pods(bed, "nlp"), pod("lone", FOREVER, cards=4), user="bob")
    lone = bed.until_running("lone")

    def deadline() -> str:
        return str(bed.call("GET", pods(bed, "nlp", "lone"))["metadata"]["annotations"].get(RECLAIM_AT, ""))

    assert deadline() == ""
    owner = bed.submit(bed.alice, bed.vision, "import time; time.sleep(600)", cards=2, cpu_milli=100, memory_mib=128)
    bed.until(lambda: deadline() != "")
    at = lone.attempts.get().reclaim_at
    assert at is not None
    assert dt.datetime.fromisoformat(deadline()) == at.replace(microsecond=0)
    actions.cancel(actor=Actor(bed.alice), workload=owner)
    bed.until(lambda: bed.state(lone) == "running")
    bed.until(lambda: deadline() == "")


def test_preempted_plain_pod_is_recreated_and_runs_as_the_same_workload(bed: ExternalBed) -> None:
    bed.call("POST", pods(bed, "nlp"), pod("lone", FOREVER, cards=4), user="bob")
    lone = bed.until_running("lone")
    before = bed.call("GET", pods(bed, "nlp", "lone"))["metadata"]["uid"]
    owner = bed.submit(bed.alice, bed.vision, "import time; time.sleep(600)", cards=2, cpu_milli=100, memory_mib=128)
    bed.until(lambda: bed.state(owner) == "running")
    bed.until(lambda: ExternalWork.objects.get().key != before)
    again = bed.call("GET", pods(bed, "nlp", "lone"))
    assert gated(again)
    assert again["metadata"]["annotations"][admission.SUBMITTED_BY] == "bob"
    actions.cancel(actor=Actor(bed.alice), workload=owner)
    bed.until(lambda: bed.state(owner) == "cancelled")
    Claim.objects.filter(attempt__workload=lone).update(backoff_until=None)
    bed.until(lambda: bed.state(lone) == "running")
    assert Workload.objects.count() == 2


def test_waiting_reason_is_on_the_pod_and_its_deletion_cancels_the_workload(bed: ExternalBed) -> None:
    bed.call("POST", pods(bed), pod("first", FOREVER, cards=4), user="alice")
    bed.until_running("first")
    bed.call("POST", pods(bed), pod("second", FOREVER), user="alice")

    def status() -> str:
        return str(bed.call("GET", pods(bed, name="second"))["metadata"]["annotations"].get(admission.STATUS, ""))

    bed.until(lambda: status().startswith("waits."))
    events = bed.call("GET", f"/api/v1/namespaces/{bed.home()}/events")["items"]
    assert any(event["reason"] == "WaitsForQuota" and event["message"] == status() for event in events)
    second = Workload.objects.get(name="second")
    assert bed.state(second) == "queued"
    bed.call("DELETE", pods(bed, name="second"), user="alice")
    bed.until(lambda: bed.state(second) == "cancelled")
    assert Claim.objects.get(attempt__workload=second).state == ClaimState.RELEASED


def test_workload_stopped_in_the_portal_is_stopped_in_the_cluster(bed: ExternalBed) -> None:
    bed.call("POST", jobs(bed), job("mine", FOREVER), user="alice")
    mine = bed.until_running("mine")
    actions.cancel(actor=Actor(bed.alice), workload=mine)
    bed.until(lambda: bed.state(mine) == "cancelled" and Attempt.objects.get().removed_at is not None)
    assert bed.call("GET", jobs(bed, name="mine"))["spec"]["suspend"] is True
    bed.until(lambda: bed.pods() == [])
    assert Workload.objects.count() == 1


def test_pod_that_cannot_be_admitted_carries_the_reason(bed: ExternalBed) -> None:
    bed.call("POST", pods(bed), pod("huge", FOREVER, cards=5), user="alice")
    odd = pod("odd", FOREVER, cards=0)
    odd["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/mig-9g.90gb"] = "1"
    bed.call("POST", pods(bed), odd, user="alice")
    wrong = pod("wrong", FOREVER, annotations={f"{admission.PREFIX}/max-runtime": "soon"})
    bed.call("POST", pods(bed), wrong, user="alice")

    def status(name: str) -> str:
        return str(bed.call("GET", pods(bed, name=name))["metadata"]["annotations"].get(admission.STATUS, ""))

    bed.until(lambda: all(status(name) for name in ("huge", "odd", "wrong")))
    assert "can have at most" in status("huge") or "4" in status("huge")
    assert "nvidia.com/mig-9g.90gb: 1" in status("odd")
    assert "soon is not a duration" in status("wrong")
    assert not Workload.objects.exists()


CLAIM = {"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "one-gpu"}]}


@pytest.mark.parametrize("way", ["resource claim", "device class"])
def test_pods_with_dra_devices_are_gated_and_get_a_notice_how_to_proceed(bed: ExternalBed, way: str) -> None:
    dra_pod = pod("dra", FOREVER, cards=0)
    [container] = dra_pod["spec"]["containers"]
    if way == "resource claim":
        container["resources"] = {"claims": [{"name": "gpu"}]}
        dra_pod["spec"] |= CLAIM
    else:
        by_class = {"deviceclass.resource.kubernetes.io/gpu.nvidia.com": "1"}
        container["resources"] = {"limits": by_class, "requests": by_class}
    assert gated(bed.call("POST", pods(bed), dra_pod, user="alice"))

    def status() -> str:
        notes = bed.call("GET", pods(bed, name="dra"))["metadata"]["annotations"]
        return str(notes.get(admission.STATUS, ""))

    bed.until(lambda: "resource claims (DRA)" in status())
    assert "nvidia.com/gpu: 2, or submit it in the portal" in status()
    assert not Workload.objects.exists()


def test_only_the_portal_can_lift_the_gate_or_change_what_a_pod_is_charged_to(bed: ExternalBed) -> None:
    bed.call("POST", pods(bed), pod("mine", FOREVER), user="alice")
    for patch in (
        {"spec": {"schedulingGates": [{"$patch": "delete", "name": admission.ADMISSION}]}},
        {"metadata": {"labels": {admission.ADMIT_TO: bed.nlp.slug}}},
        {"metadata": {"annotations": {admission.SUBMITTED_BY: "bob"}}},
        {"metadata": {"annotations": {admission.ADMITTED: "x"}}},
        {"metadata": {"annotations": {"gpu-fraction": "0.9"}}},
        {"metadata": {"labels": {"sharedgpu/gpu_request": "1.0"}}},
    ):
        response = bed.admin.call("PATCH", pods(bed, name="mine"), patch, STRATEGIC, "alice")
        assert response["code"] in (403, 422), response
        assert "gpu-quota-portal" in response["message"]
    forged = bed.admin.call(
        "POST", pods(bed), pod("forged", FOREVER, annotations={admission.ADMITTED: "x"}), user="alice"
    )
    assert forged["code"] in (403, 422), forged
    changed = {"metadata": {"annotations": {"note": "its own"}}}
    assert bed.call("PATCH", pods(bed, name="mine"), changed, user="alice", kind=STRATEGIC)["metadata"]["annotations"][
        "note"
    ]


@pytest.fixture
def free(bed: ExternalBed, admin: Admin) -> Iterator[str]:
    """A namespace that is tied to no department."""
    name = f"{bed.name}-free"
    admin.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    until_usable(admin, name)
    yield name
    admin.call("DELETE", f"/api/v1/namespaces/{name}")


def test_users_cannot_write_the_marks_of_the_policies_on_pods(bed: ExternalBed, free: str) -> None:
    path = f"/api/v1/namespaces/{free}/pods"
    with_gate = pod("gate", FOREVER)
    with_gate["spec"]["schedulingGates"] = [{"name": admission.ADMISSION}]
    for pods_url, forged_pod in (
        (path, with_gate),
        (path, pod("by", FOREVER, annotations={admission.SUBMITTED_BY: "alice"})),
        (path, pod("tied", FOREVER, annotations={admission.TIED_BY: admission.NAMESPACE})),
        (pods(bed), pod("none", FOREVER, cards=0, annotations={admission.SUBMITTED_BY: ""})),
    ):
        response = bed.admin.call("POST", pods_url, forged_pod, user="bob")
        assert response["code"] in (403, 422), response
        assert "leave them out" in response["message"]
    bed.call("POST", path, pod("outside", FOREVER), user="bob")
    later = {"metadata": {"labels": {admission.ADMIT_TO: bed.vision.slug}}}
    response = bed.admin.call("PATCH", f"{path}/outside", later, STRATEGIC, "bob")
    assert response["code"] in (403, 422), response
    forged = {admission.SUBMITTED_BY: "alice", admission.TIED_BY: admission.NAMESPACE}
    tied = bed.call("POST", pods(bed, "nlp"), pod("over", FOREVER, annotations=forged), user="bob")
    assert tied["metadata"]["annotations"][admission.SUBMITTED_BY] == "bob"
    assert gated(tied)


def test_department_label_applies_only_to_pods_submitted_by_its_members(bed: ExternalBed, free: str) -> None:
    path, label = f"/api/v1/namespaces/{free}/pods", {admission.ADMIT_TO: bed.vision.slug}
    bed.call("POST", path, pod("hers", FOREVER, labels=label), user="alice")
    bed.call("POST", path, pod("his", FOREVER, labels=label), user="bob")
    outside = bed.call("POST", path, pod("nobodys", FOREVER), user="bob")
    assert not gated(outside)
    bed.until_running("hers")
    bed.until(
        lambda: "no account" in bed.call("GET", f"{path}/his")["metadata"]["annotations"].get(admission.STATUS, "")
    )
    bed.until(lambda: bed.call("GET", f"{path}/nobodys")["status"]["phase"] == "Running")
    inventory.refresh(bed.cluster)
    # Only that of the pod "nobodys".
    assert sum(card.outside for card in Node.objects.get(name="real-0").cards.all()) == 1
    assert list(Workload.objects.values_list("name", flat=True)) == ["hers"]


def test_submitter_of_a_job_cannot_be_forged(bed: ExternalBed, free: str) -> None:
    """A Job tied only by its pods' label has no submitter annotation, and users cannot add one, neither at once nor later."""
    path = f"/apis/batch/v1/namespaces/{free}/jobs"
    forged = {admission.SUBMITTED_BY: "alice", admission.SUBMITTED_WITH: "kubectl", "own": "kept"}
    forged_job = job("forged", FOREVER, labels={admission.ADMIT_TO: bed.vision.slug})
    # Without labels it would get those of its pods.
    forged_job["metadata"] |= {
        "annotations": forged,
        "labels": {"own": "x"},
    }
    assert bed.call("POST", path, forged_job, user="bob")["metadata"]["annotations"] == {"own": "kept"}
    patch = {"metadata": {"annotations": forged}}
    changed = bed.call("PATCH", f"{path}/forged", patch, user="bob", kind=STRATEGIC)
    assert changed["metadata"]["annotations"] == {"own": "kept"}
    tied = job("tied", FOREVER)
    tied["metadata"]["annotations"] = forged
    assert bed.call("POST", jobs(bed, "nlp"), tied, user="bob")["metadata"]["annotations"][
        admission.SUBMITTED_BY
    ] == "bob"  # fmt: skip
    changed = bed.call("PATCH", jobs(bed, "nlp", "tied"), patch, user="bob", kind=STRATEGIC)
    assert changed["metadata"]["annotations"][admission.SUBMITTED_BY] == "bob"


def test_untying_a_namespace_does_not_stop_its_running_workloads(bed: ExternalBed, admin: Admin) -> None:
    bed.call("POST", pods(bed), pod("runs", FOREVER), user="alice")
    runs = bed.until_running("runs")
    path = f"/api/v1/namespaces/{bed.home()}"
    bed.call("PATCH", path, {"metadata": {"labels": {admission.ADMIT_TO: None}}}, kind="application/merge-patch+json")
    assert not gated(bed.call("POST", pods(bed), pod("later", FOREVER), user="alice"))
    for _ in range(5):
        bed.turn()
    assert bed.state(runs) == "running"
    assert bed.call("GET", pods(bed, name="runs"))["status"]["phase"] == "Running"


def test_worker_killed_between_cluster_call_and_record_neither_loses_nor_repeats_a_start(
    bed: ExternalBed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker dies right after the pods' gates were lifted, and again right after the pods were stopped."""
    original, killed = transitions.record_event, set[Event]()

    def die_once(attempt: Attempt, event: Event, **facts: Any) -> bool:
        if event in (Event.CREATED, Event.GONE_CANCELLED) and event not in killed:
            killed.add(event)
            raise RuntimeError("killed")
        return original(attempt, event, **facts)

    monkeypatch.setattr(transitions, "record_event", die_once)
    bed.call("POST", jobs(bed), job("mine", FOREVER, pods=2), user="alice")
    mine = bed.until_running("mine")
    assert [each["spec"].get("nodeName") for each in bed.pods()] == ["real-0", "real-0"]
    assert LedgerEntry.objects.filter(ended_at=None).count() == 1
    actions.cancel(actor=Actor(bed.alice), workload=mine)
    bed.until(lambda: bed.state(mine) == "cancelled")
    assert killed == {Event.CREATED, Event.GONE_CANCELLED}
    assert Workload.objects.count() == Attempt.objects.count() == 1
    assert not LedgerEntry.objects.filter(ended_at=None).exists()


def workload_of(pod: dict[str, Any]) -> Workload:
    return Workload.objects.get(external__pod_uid=pod["metadata"]["uid"])


def test_each_replica_of_a_deployment_is_a_workload_continued_by_its_next_pod(bed: ExternalBed) -> None:
    labels = {"app": "web"}
    template = {"metadata": {"labels": labels}, "spec": spec_of(FOREVER) | {"restartPolicy": "Always"}}
    web = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
           "spec": {"replicas": 2, "selector": {"matchLabels": labels}, "template": template}}  # fmt: skip
    path = f"/apis/apps/v1/namespaces/{bed.home()}/deployments"
    bed.call("POST", f"{path}?{KUBECTL}", web, user="alice")
    bed.until(lambda: Workload.objects.filter(state="running").count() == 2)
    assert {row.sentence.split("/")[0] for row in ExternalWork.objects.all()} == {f"Deployment {bed.home()}"}
    assert set(Workload.objects.values_list("author__username", flat=True)) == {"alice"}
    first = workload_of(bed.pods()[0])
    bed.call("DELETE", pods(bed, name=bed.pods()[0]["metadata"]["name"]), user="alice")
    bed.until(lambda: ExternalWork.objects.get(workload=first).pod_uid in {pod["metadata"]["uid"] for pod in bed.pods()}
              and bed.state(first) == "running" and len(bed.pods()) == 2 and not any(map(gated, bed.pods())))  # fmt: skip
    assert Workload.objects.count() == 2
    bed.call("PATCH", f"{path}/web", {"spec": {"replicas": 1}}, kind="application/merge-patch+json", user="alice")
    bed.until(lambda: len(bed.pods()) == 1)
    ExternalWork.objects.exclude(pod_uid=bed.pods()[0]["metadata"]["uid"]).update(
        missing_since=timezone.now() - dt.timedelta(minutes=2)
    )
    bed.until(lambda: Workload.objects.filter(state="cancelled").count() == 1)
    assert Workload.objects.filter(state="running").count() == 1


def test_preempted_replica_of_a_stateful_set_is_requeued_as_the_same_workload(bed: ExternalBed) -> None:
    labels = {"app": "db"}
    template = {"metadata": {"labels": labels}, "spec": spec_of(FOREVER, cards=4) | {"restartPolicy": "Always"}}
    database = {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "db"},
                "spec": {"replicas": 1, "selector": {"matchLabels": labels}, "template": template}}  # fmt: skip
    bed.call("POST", f"/apis/apps/v1/namespaces/{bed.home('nlp')}/statefulsets?{KUBECTL}", database, user="bob")
    replica = bed.until_running("db-0")
    bed.call("POST", pods(bed), pod("owner", FOREVER, cards=2), user="alice")
    owner = bed.until_running("owner")
    bed.until(lambda: any(map(gated, bed.pods("nlp"))) and ExternalWork.objects.get(workload=replica).bound == 2)
    assert (bed.state(replica), replica.attempts.get(number=1).outcome) == ("queued", "recalled")
    actions.cancel(actor=Actor(bed.alice), workload=owner)
    bed.until(lambda: bed.state(owner) == "cancelled")
    Claim.objects.filter(attempt__workload=replica).update(backoff_until=None)
    bed.until(lambda: bed.state(replica) == "running")
    assert Workload.objects.count() == 2
