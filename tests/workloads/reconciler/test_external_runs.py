"""Work submitted with kubectl or controllers becomes a workload, or gets a notice why it cannot."""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from portal.access import Actor, Right
from portal.errors import Invalid, Problem
from portal.models import Department, User
from quotas.models import Claim, Pool
from tests import builders as make
from workloads import actions
from workloads.files import volumes
from workloads.kubernetes import external_runs as kubernetes_runs
from workloads.kubernetes.manifests import admission
from workloads.models import Attempt, ExternalWork, Image, Workload
from workloads.reconciler import external_runs
from workloads.runtime.base import Unreachable
from workloads.runtime.external import ExternalPod, ExternalRef, ExternalRun
from workloads.runtime.phases import Phase
from workloads.status.status_line import Situation

SAMPLE = {"metadata": {}, "spec": {"containers": [
    {"name": "a", "image": "registry/train:1", "resources": {"limits": {"nvidia.com/gpu": "2", "cpu": "1500m", "memory": "1Gi"}}}
]}}  # fmt: skip


@pytest.fixture
def pool(db: None) -> Pool:
    return make.pool("a100", cards=8)


@pytest.fixture
def vision(pool: Pool) -> Department:
    department = make.department("vision")
    make.quota(department, pool, 8)
    return department


@pytest.fixture
def alice(vision: Department) -> User:
    return make.member(vision, username="alice")


def run(uid: str = "u1", pods: int = 1, pods_: tuple[ExternalPod, ...] = (), **changes: Any) -> ExternalRun:
    ref = ExternalRef("batch/v1", "Job", "lab", "train", uid)
    own = tuple(ExternalPod(f"train-{n}", f"{uid}-{n}", "", Phase.PENDING, gated=True) for n in range(pods))
    external = ExternalRun(
        ref,
        "vision",
        pods,
        pods_ or own,
        by_namespace=True,
        submitted_by="alice",
        submitted_with="kubectl",
        sample=SAMPLE,
    )
    return replace(external, **changes)


def replica(uid: str, cards: int = 2, **changes: Any) -> ExternalRun:
    """The run of one pod of a Deployment that requests this many cards; `changes` are applied to the pod."""
    ref = ExternalRef("apps/v1", "Deployment", "lab", "web", "d1", f"web-{uid}", uid)
    own = ExternalPod(f"web-{uid}", uid, "", Phase.PENDING, gated=True, asked={"nvidia.com/gpu": float(cards)})
    return run(ref=ref, pods_=(replace(own, **changes),), sample=sample_with(cards))


def sample_with(cards: int) -> dict[str, Any]:
    return {"metadata": {}, "spec": {"containers": [{"name": "a", "resources": {"limits": {"nvidia.com/gpu": cards}}}]}}


class Cluster:
    """Lists the given runs and records the notices sent to them."""

    admits = True

    def __init__(self, *runs: ExternalRun) -> None:
        self.runs = runs
        self.notices: list[str] = []
        self.recreated: list[Mapping[str, Any]] = []

    def external(self, known: Collection[ExternalRef] = ()) -> tuple[ExternalRun, ...]:
        return self.runs

    def notify_external(self, ref: ExternalRef, text: str, *, event: bool) -> None:
        self.notices.append(text)

    def recreate_external(self, manifest: Mapping[str, Any]) -> str | None:
        self.recreated.append(manifest)
        return "again"


def refresh(pool: Pool, cluster: Cluster) -> None:
    external_runs.look(pool.group.cluster, cluster, now=timezone.now())


def test_gang_becomes_one_workload_of_its_submitter(pool: Pool, alice: User) -> None:
    cluster = Cluster(run(pods=3))
    refresh(pool, cluster)
    refresh(pool, cluster)
    [workload] = Workload.objects.all()
    assert (workload.author, workload.pods, workload.units_per_pod, workload.kind) == (alice, 3, 2, "external")
    assert (workload.cpu_milli, workload.memory_mib, workload.image.name) == (1500, 1024, "registry/train:1")
    assert not Image.objects.get().active
    assert workload.attempts.get().namespace == "lab"
    assert cluster.notices == []


def test_gang_is_not_queued_before_all_its_pods_exist(pool: Pool, alice: User) -> None:
    refresh(pool, Cluster(run(pods=1, wanted=2)))
    assert not Workload.objects.exists()


@pytest.mark.parametrize(("submitter", "by_namespace", "author"), [
    ("alice", True, "alice"), ("alice", False, "alice"), ("stranger", True, None), ("nobody-here", True, None),
    ("stranger", False, "refused"), ("", False, "refused"),
])  # fmt: skip
def test_only_a_department_label_requires_a_submitter_who_can_submit_there(
    pool: Pool, alice: User, submitter: str, by_namespace: bool, author: str | None
) -> None:
    make.member(make.department("nlp"), username="stranger")
    cluster = Cluster(run(submitted_by=submitter, by_namespace=by_namespace))
    refresh(pool, cluster)
    if author == "refused":
        assert not Workload.objects.exists()
        assert "no account in the portal" in cluster.notices[0]
        return
    assert (Workload.objects.get().author and Workload.objects.get().author.username) == author  # type: ignore[union-attr]
    assert ExternalWork.objects.get().submitted_by == submitter


def test_refusal_of_a_stranger_does_not_reveal_which_departments_exist(pool: Pool, alice: User) -> None:
    make.department("optics")
    make.department("team", parent=Department.objects.get(slug="optics"))
    refusals = []
    for slug in ("vision", "optics", "audio"):
        cluster = Cluster(run(submitted_by="stranger", by_namespace=False, department=slug))
        refresh(pool, cluster)
        refusals.append(cluster.notices[0].replace(slug, "?"))
    assert len(set(refusals)) == 1


def test_limit_of_queued_workloads_per_person_applies_to_kubectl_too(pool: Pool, alice: User, settings: Any) -> None:
    settings.QUEUED_PER_PERSON = 1
    cluster = Cluster(run("u1"), run("u2"))
    refresh(pool, cluster)
    assert Workload.objects.count() == 1
    assert "the maximum is 1" in cluster.notices[0]


@pytest.mark.parametrize(("submitter", "author"), [("oidc:alice", "alice"), ("alice", None)])
def test_submitter_without_the_clusters_user_prefix_matches_no_account(
    pool: Pool, alice: User, submitter: str, author: str | None
) -> None:
    pool.group.cluster.options = {"user_prefix": "oidc:"}
    pool.group.cluster.save()
    refresh(pool, Cluster(run(submitted_by=submitter)))
    assert Workload.objects.values_list("author__username", flat=True).get() == author


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "unknown department": ({"department": "audio"}, "there is no department audio"),
    "different amounts": ({"alike": False}, "different amounts"),
    "devices by claim": ({"sample": {"metadata": {}, "spec": {
        "containers": [{"name": "a", "resources": {"claims": [{"name": "gpu"}]}}],
        "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "one-gpu"}]}}}, "resource claims (DRA)"),
    "devices by the name of their class": ({"sample": {"metadata": {}, "spec": {"containers": [
        {"name": "a", "resources": {"limits": {"deviceclass.resource.kubernetes.io/gpu.nvidia.com": "1"}}}]}}},
        "nvidia.com/gpu: 2, or submit it in the portal"),
    "a kind that its operator cannot stop": ({"unstoppable": "KubeRay stops none of these"}, "KubeRay stops none of these"),
    "unknown pool": ({"settings": {"pool": "h100"}}, "the pool h100 does not offer"),
    "priority reserved for operators": ({"settings": {"priority": "5"}}, "for operators"),
    "priority that is not a number": ({"settings": {"priority": "high"}}, "high is not a whole number"),
    "runtime that is not a duration": ({"settings": {"max-runtime": "soon"}}, "soon is not a duration"),
    "option that is not a boolean": ({"settings": {"preemptible": "no"}}, "no is not true or false"),
    "more cards than the pool has": ({"sample": {"metadata": {}, "spec": {"containers": [
        {"name": "a", "resources": {"limits": {"nvidia.com/gpu": "9"}}}]}}}, "9"),
    "a resource that no pool offers": ({"sample": {"metadata": {}, "spec": {"containers": [
        {"name": "a", "resources": {"limits": {"nvidia.com/mig-1g.5gb": "1"}}}]}}}, "nvidia.com/mig-1g.5gb: 1"),
}  # fmt: skip


def run_of_unequal_pods(api: str, kind: str, groups: dict[str, dict[str, Any]], spec: dict[str, Any]) -> ExternalRun:
    """One object with these gated pods, read as the driver reads it."""
    notes = {admission.SUBMITTED_BY: "alice", admission.TIED_BY: admission.NAMESPACE}
    meta = {"name": "train", "namespace": "lab", "uid": "o1", "annotations": notes}
    top = {"apiVersion": api, "kind": kind, "metadata": meta, "spec": spec}
    pods = [
        {"metadata": {"name": f"train-{name}", "namespace": "lab", "uid": name, "annotations": notes,
                      "labels": {admission.ADMIT_TO: "vision"},
                      "ownerReferences": [{"apiVersion": api, "kind": kind, "name": "train", "uid": "o1", "controller": True}]},
         "spec": {**template["spec"], "schedulingGates": [{"name": admission.ADMISSION}]}, "status": {"phase": "Pending"}}
        for name, template in groups.items()
    ]  # fmt: skip
    [run] = kubernetes_runs.runs([(pod, [top]) for pod in pods])
    return run


def role(cards: int, replicas: int = 1) -> dict[str, Any]:
    return {"replicas": replicas, "template": sample_with(cards)}


UNEQUAL = {
    "MPIJob whose launcher has a card": run_of_unequal_pods(
        "kubeflow.org/v2beta1", "MPIJob", {"launcher": sample_with(1), "worker-0": sample_with(4), "worker-1": sample_with(4)},
        {"mpiReplicaSpecs": {"Launcher": role(1), "Worker": role(4, 2)}},
    ),
    "RayCluster with workers of two sizes": run_of_unequal_pods(
        "ray.io/v1", "RayCluster", {"head": sample_with(1), "small-0": sample_with(2), "big-0": sample_with(4)},
        {"headGroupSpec": role(1), "workerGroupSpecs": [role(2), role(4)]},
    ),
    "JobSet with two jobs": run_of_unequal_pods(
        "jobset.x-k8s.io/v1alpha2", "JobSet", {"actor-0": sample_with(1), "learner-0": sample_with(8)},
        {"replicatedJobs": [{"template": {"spec": {"template": sample_with(cards)}}} for cards in (1, 8)]},
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", UNEQUAL)
def test_gang_of_unequal_pods_gets_a_notice_with_the_pods_and_a_remedy(pool: Pool, alice: User, case: str) -> None:
    run, cluster = UNEQUAL[case], Cluster(UNEQUAL[case])
    assert run.waits
    refresh(pool, cluster)
    [notice] = cluster.notices
    assert not Workload.objects.exists()
    assert "submit those that differ as an object of their own" in notice
    for pod in {f"{each.asked['nvidia.com/gpu']:g}": each for each in reversed(run.pods)}.values():
        assert f"nvidia.com/gpu {pod.asked['nvidia.com/gpu']:g}: {pod.name}" in notice
    assert len(notice) < 900  # the whole notice fits into the annotation


def test_launcher_without_a_gpu_does_not_make_a_gang_unequal(pool: Pool, alice: User) -> None:
    """The launcher's pod is neither gated nor listed."""
    run = run_of_unequal_pods(
        "kubeflow.org/v2beta1", "MPIJob", {"worker-0": sample_with(2), "worker-1": sample_with(2)},
        {"mpiReplicaSpecs": {"Launcher": {"template": {"spec": {"containers": [{"name": "l"}]}}}, "Worker": role(2, 2)}},
    )  # fmt: skip
    refresh(pool, Cluster(run))
    assert Workload.objects.values_list("pods", "units_per_pod").get() == (2, 2)


@pytest.mark.parametrize("case", WRONG)
def test_run_that_cannot_be_admitted_gets_one_notice_with_the_reason(pool: Pool, alice: User, case: str) -> None:
    changes, word = WRONG[case]
    cluster = Cluster(run(**changes))
    refresh(pool, cluster)
    assert word in cluster.notices[0]
    assert not Workload.objects.exists()
    cluster.runs = (replace(cluster.runs[0], status=cluster.notices[0]),)
    refresh(pool, cluster)
    assert len(cluster.notices) == 1


def test_notice_on_pods_contains_only_what_anybody_can_read(
    pool: Pool, alice: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    readers = []

    def situation(reader: Actor, *_of: Any) -> Situation:
        readers.append(reader)
        return Situation("For the cards of others.")

    monkeypatch.setattr(external_runs, "situation_of", situation)
    cluster = Cluster(run())
    refresh(pool, cluster)
    Claim.objects.update(answered_at=timezone.now())
    refresh(pool, cluster)
    assert cluster.notices == ["waits. For the cards of others."]
    assert not any(reader.may(Right.SEE, Department.objects.get()) for reader in readers)


def test_number_of_refusal_notices_per_refresh_is_limited(
    pool: Pool, alice: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(external_runs, "NOTIFY_AT_ONCE", 2)
    cluster = Cluster(*(run(f"u{n}", department="audio") for n in range(5)), run("good"))
    refresh(pool, cluster)
    assert len(cluster.notices) == 2
    assert ExternalWork.objects.get().key == "good"


def test_annotations_set_the_fields_of_the_submission_form(pool: Pool, alice: User) -> None:
    annotations = {
        "name": "nightly",
        "priority": "-3",
        "max-runtime": "8h",
        "preemptible": "false",
        "own-only": "true",
        "pool": pool.slug,
    }
    refresh(pool, Cluster(run(settings=annotations)))
    workload = Workload.objects.get()
    assert (workload.name, workload.priority, workload.max_runtime) == ("nightly", -3, 8 * 3600)
    assert (workload.preemptible, workload.own_only) == (False, True)
    assert Claim.objects.get().priority == -3


def test_names_are_cleaned_like_those_from_forms(pool: Pool, alice: User) -> None:
    sample = {**SAMPLE, "spec": {"containers": [{**SAMPLE["spec"]["containers"][0], "image": "a\0b"}]}}  # type: ignore[index]
    refresh(pool, Cluster(run(settings={"name": "night\u202ely\0"}, sample=sample)))
    assert (Workload.objects.get().name, Image.objects.get().name) == ("nightly", "a b")


def test_unreadable_run_does_not_block_the_admission_of_others(
    pool: Pool, alice: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = external_runs.register

    def fail_for_bad(cluster: Any, run: ExternalRun, **facts: Any) -> Workload | None:
        if run.ref.uid == "bad":
            raise KeyError("spec")
        return original(cluster, run, **facts)

    monkeypatch.setattr(external_runs, "register", fail_for_bad)
    refresh(pool, Cluster(run("bad"), run("good")))
    assert ExternalWork.objects.get().key == "good"


def test_workload_is_cancelled_when_its_object_is_deleted_in_the_cluster(pool: Pool, alice: User) -> None:
    cluster = Cluster(run())
    refresh(pool, cluster)
    cluster.runs = ()
    refresh(pool, cluster)
    assert Workload.objects.get().cancel_requested_at is not None


@pytest.mark.parametrize(("bound", "by_portal", "cancelled"), [
    (1, True, False),  # the portal suspended it, and no pod of its next attempt has existed yet
    (2, True, True),  # it has been resumed, the mark is outdated
    (1, False, True),
])  # fmt: skip
def test_suspension_by_a_user_cancels_the_workload_even_after_one_by_the_portal(
    pool: Pool, alice: User, bound: int, by_portal: bool, cancelled: bool
) -> None:
    cluster = Cluster(run())
    refresh(pool, cluster)
    Workload.objects.update(attempts_made=2)
    Attempt.objects.update(number=2)
    ExternalWork.objects.update(bound=bound)
    cluster.runs = (run(pods=0, suspended=True, suspended_by_portal=by_portal),)
    refresh(pool, cluster)
    assert (Workload.objects.get().cancel_requested_at is not None) is cancelled


def test_manifest_of_a_recreated_pod_is_encrypted_and_deleted_with_its_workload(pool: Pool, alice: User) -> None:
    manifest = {"metadata": {"name": "lone"}, "spec": {"env": "hunter2"}}
    lone = run(ref=ExternalRef("v1", "Pod", "lab", "lone", "p1"), manifest=manifest)
    cluster = Cluster(lone)
    refresh(pool, cluster)
    assert "hunter2" not in ExternalWork.objects.get().manifest
    Workload.objects.update(attempts_made=2)
    Attempt.objects.update(number=2)
    cluster.runs = ()
    refresh(pool, cluster)
    assert cluster.recreated == [manifest]
    assert ExternalWork.objects.get().key == "again"
    Workload.objects.update(finished_at=timezone.now(), state="cancelled")
    refresh(pool, cluster)
    assert ExternalWork.objects.get().manifest == ""


def test_pod_left_on_a_lost_node_does_not_count_for_the_next_attempt(pool: Pool, alice: User) -> None:
    left = ExternalPod("train-0", "p0", "n1", Phase.RUNNING, gated=False, leaving=dt.timedelta(seconds=5))
    new = ExternalPod("train-1", "p1", "", Phase.PENDING, gated=True)
    cluster = Cluster(run())
    refresh(pool, cluster)
    Workload.objects.update(attempts_made=2)
    Attempt.objects.update(number=2)
    cluster.runs = (run(pods_=(left,)),)
    assert external_runs.look(pool.group.cluster, cluster, now=timezone.now()) == {}
    assert ExternalWork.objects.get().bound == 1
    cluster.runs = (run(pods_=(left, new)),)
    [seen] = external_runs.look(pool.group.cluster, cluster, now=timezone.now()).values()
    assert (seen.phase, seen.node) == (Phase.PENDING, "")
    assert ExternalWork.objects.get().bound == 2


def test_replica_on_a_lost_node_continues_with_its_next_pod_without_being_missing(pool: Pool, alice: User) -> None:
    left = replica("p1", gated=False, phase=Phase.RUNNING, leaving=dt.timedelta(seconds=5))
    cluster = Cluster(replica("p1"))
    refresh(pool, cluster)
    Workload.objects.update(attempts_made=2)
    Attempt.objects.update(number=2)
    cluster.runs = (left,)
    refresh(pool, cluster)
    assert ExternalWork.objects.get().missing_since is None
    cluster.runs = (left, replica("p2"))
    refresh(pool, cluster)
    assert ExternalWork.objects.get().key == "p2"


def test_run_resumed_after_its_workload_ended_becomes_a_new_workload(pool: Pool, alice: User) -> None:
    cluster = Cluster(run())
    refresh(pool, cluster)
    first = Workload.objects.get()
    actions.cancel(actor=Actor(alice), workload=first)
    first.attempts.update(removed_at=timezone.now())
    refresh(pool, cluster)
    assert Workload.objects.count() == 2
    assert ExternalWork.objects.get(workload=first).key is None


def test_next_pod_of_a_replica_continues_its_workload_only_with_the_same_amount(pool: Pool, alice: User) -> None:
    cluster = Cluster(replica("p1"))
    refresh(pool, cluster)
    cluster.runs = (replica("p2"),)
    refresh(pool, cluster)
    assert ExternalWork.objects.get().key == "p2"
    cluster.runs = (replica("p3", cards=4),)
    refresh(pool, cluster)
    rows = ExternalWork.objects.order_by("pk")
    assert [(row.key, row.workload.units_per_pod) for row in rows] == [("p2", 2), ("p3", 4)]


def test_replacement_pod_waits_until_the_terminating_pod_is_gone(pool: Pool, alice: User) -> None:
    cluster = Cluster(replica("p1"))
    refresh(pool, cluster)
    old = replica("p1", gated=False, phase=Phase.RUNNING, leaving=dt.timedelta(seconds=30))
    cluster.runs = (old, replica("p2"))
    refresh(pool, cluster)
    assert ExternalWork.objects.get().key == "p1"
    cluster.runs = (old, replica("p2"), replica("p3"))  # it has been scaled up meanwhile
    refresh(pool, cluster)
    assert sorted(ExternalWork.objects.values_list("key", flat=True)) == ["p1", "p3"]
    cluster.runs = (replica("p2"), replica("p3"))
    refresh(pool, cluster)
    assert sorted(ExternalWork.objects.values_list("key", flat=True)) == ["p2", "p3"]


def test_object_whose_pods_request_another_amount_becomes_another_workload(pool: Pool, alice: User) -> None:
    def waiting(cards: int) -> ExternalRun:
        pod = ExternalPod("train-0", f"p{cards}", "", Phase.PENDING, gated=True, asked={"nvidia.com/gpu": cards})
        return run(pods_=(pod,), sample=sample_with(cards))

    cluster = Cluster(waiting(1))
    refresh(pool, cluster)
    cluster.runs = (waiting(8),)
    refresh(pool, cluster)
    first = Workload.objects.get()
    assert first.cancel_requested_at is not None
    Workload.objects.filter(pk=first.pk).update(finished_at=timezone.now(), state="cancelled")
    first.attempts.update(removed_at=timezone.now())
    refresh(pool, cluster)
    assert Workload.objects.exclude(pk=first.pk).get().units_per_pod == 8


def test_page_names_the_submitter_and_omits_features_of_portal_workloads(
    pool: Pool, vision: Department, alice: User, client: Client
) -> None:
    refresh(pool, Cluster(run(submitted_by="carol")))
    workload = Workload.objects.get()
    client.force_login(alice)
    text = client.get(reverse("workloads:detail", args=[vision.slug, workload.public_id])).content.decode()
    assert "Job lab/train, submitted with kubectl by carol" in text
    for left_out in ("tab=files", "tab=spec", "from=" + workload.public_id):
        assert left_out not in text
    with pytest.raises(Invalid):
        actions.rerun(actor=Actor(alice), workload=workload)
    with pytest.raises(Problem):
        volumes.listing(workload)


def test_nothing_changes_when_external_runs_cannot_be_listed(pool: Pool, alice: User) -> None:
    class Forbidding(Cluster):
        def external(self, known: Collection[ExternalRef] = ()) -> tuple[ExternalRun, ...]:
            raise Unreachable("jobsets is forbidden")

    class NotAdmitting(Cluster):
        admits = False

    assert external_runs.seen_of(pool.group.cluster, Forbidding(), now=timezone.now()) is None
    assert external_runs.seen_of(pool.group.cluster, NotAdmitting(run()), now=timezone.now()) is None
    assert not Workload.objects.exists()
