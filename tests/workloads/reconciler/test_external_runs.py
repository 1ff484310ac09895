"""What others submitted becomes a workload, or is told why not."""

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
    made = ExternalRun(
        ref,
        "vision",
        pods,
        pods_ or own,
        by_namespace=True,
        submitted_by="alice",
        submitted_with="kubectl",
        sample=SAMPLE,
    )
    return replace(made, **changes)


def replica(uid: str, cards: int = 2, **changes: Any) -> ExternalRun:
    """The one pod of a Deployment, which asks for so many cards. `changes`: of the pod."""
    ref = ExternalRef("apps/v1", "Deployment", "lab", "web", "d1", f"web-{uid}", uid)
    own = ExternalPod(f"web-{uid}", uid, "", Phase.PENDING, gated=True, asked={"nvidia.com/gpu": float(cards)})
    return run(ref=ref, pods_=(replace(own, **changes),), sample=asking(cards))


def asking(cards: int) -> dict[str, Any]:
    return {"metadata": {}, "spec": {"containers": [{"name": "a", "resources": {"limits": {"nvidia.com/gpu": cards}}}]}}


class Cluster:
    """Lists what it is given, and remembers what it was told to say."""

    admits = True

    def __init__(self, *runs: ExternalRun) -> None:
        self.runs = runs
        self.told: list[str] = []
        self.made: list[Mapping[str, Any]] = []

    def external(self, known: Collection[ExternalRef] = ()) -> tuple[ExternalRun, ...]:
        return self.runs

    def notify_external(self, ref: ExternalRef, text: str, *, event: bool) -> None:
        self.told.append(text)

    def recreate_external(self, manifest: Mapping[str, Any]) -> str | None:
        self.made.append(manifest)
        return "again"


def looked(pool: Pool, cluster: Cluster) -> None:
    external_runs.look(pool.group.cluster, cluster, now=timezone.now())


def test_a_gang_is_one_workload_of_whoever_submitted_it(pool: Pool, alice: User) -> None:
    cluster = Cluster(run(pods=3))
    looked(pool, cluster)
    looked(pool, cluster)
    [workload] = Workload.objects.all()
    assert (workload.author, workload.pods, workload.units_per_pod, workload.kind) == (alice, 3, 2, "external")
    assert (workload.cpu_milli, workload.memory_mib, workload.image.name) == (1500, 1024, "registry/train:1")
    assert not Image.objects.get().active
    assert workload.attempts.get().namespace == "lab"
    assert cluster.told == []


def test_nothing_is_queued_before_all_of_a_gang_is_there(pool: Pool, alice: User) -> None:
    looked(pool, Cluster(run(pods=1, wanted=2)))
    assert not Workload.objects.exists()


@pytest.mark.parametrize(("who", "by_namespace", "author"), [
    ("alice", True, "alice"), ("alice", False, "alice"), ("stranger", True, None), ("nobody-here", True, None),
    ("stranger", False, "refused"), ("", False, "refused"),
])  # fmt: skip
def test_a_label_needs_somebody_who_may_submit_there_a_namespace_does_not(
    pool: Pool, alice: User, who: str, by_namespace: bool, author: str | None
) -> None:
    make.member(make.department("nlp"), username="stranger")
    cluster = Cluster(run(submitted_by=who, by_namespace=by_namespace))
    looked(pool, cluster)
    if author == "refused":
        assert not Workload.objects.exists()
        assert "no account in the portal" in cluster.told[0]
        return
    assert (Workload.objects.get().author and Workload.objects.get().author.username) == author  # type: ignore[union-attr]
    assert ExternalWork.objects.get().submitted_by == who


def test_a_stranger_with_a_label_is_not_told_which_departments_there_are(pool: Pool, alice: User) -> None:
    make.department("optics")
    make.department("team", parent=Department.objects.get(slug="optics"))
    told = []
    for slug in ("vision", "optics", "audio"):
        cluster = Cluster(run(submitted_by="stranger", by_namespace=False, department=slug))
        looked(pool, cluster)
        told.append(cluster.told[0].replace(slug, "?"))
    assert len(set(told)) == 1


def test_nobody_fills_the_queue_with_kubectl_either(pool: Pool, alice: User, settings: Any) -> None:
    settings.QUEUED_PER_PERSON = 1
    cluster = Cluster(run("u1"), run("u2"))
    looked(pool, cluster)
    assert Workload.objects.count() == 1
    assert "the maximum is 1" in cluster.told[0]


@pytest.mark.parametrize(("who", "author"), [("oidc:alice", "alice"), ("alice", None)])
def test_where_names_have_a_prefix_one_without_it_is_somebody_else(
    pool: Pool, alice: User, who: str, author: str | None
) -> None:
    pool.group.cluster.options = {"user_prefix": "oidc:"}
    pool.group.cluster.save()
    looked(pool, Cluster(run(submitted_by=who)))
    assert Workload.objects.values_list("author__username", flat=True).get() == author


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "no department": ({"department": "audio"}, "there is no department audio"),
    "different amounts": ({"alike": False}, "different amounts"),
    "devices by claim": ({"sample": {"metadata": {}, "spec": {
        "containers": [{"name": "a", "resources": {"claims": [{"name": "gpu"}]}}],
        "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "one-gpu"}]}}}, "resource claims (DRA)"),
    "devices by the name of their class": ({"sample": {"metadata": {}, "spec": {"containers": [
        {"name": "a", "resources": {"limits": {"deviceclass.resource.kubernetes.io/gpu.nvidia.com": "1"}}}]}}},
        "nvidia.com/gpu: 2, or submit it in the portal"),
    "what would not be resumed": ({"unstoppable": "KubeRay stops none of these"}, "KubeRay stops none of these"),
    "no such pool": ({"settings": {"pool": "h100"}}, "the pool h100 does not offer"),
    "a priority of operators": ({"settings": {"priority": "5"}}, "for operators"),
    "no number": ({"settings": {"priority": "high"}}, "high is no whole number"),
    "no duration": ({"settings": {"max-runtime": "soon"}}, "soon is no duration"),
    "no truth": ({"settings": {"preemptible": "no"}}, "no is no true or false"),
    "more than there is": ({"sample": {"metadata": {}, "spec": {"containers": [
        {"name": "a", "resources": {"limits": {"nvidia.com/gpu": "9"}}}]}}}, "9"),
    "nothing anybody offers": ({"sample": {"metadata": {}, "spec": {"containers": [
        {"name": "a", "resources": {"limits": {"nvidia.com/mig-1g.5gb": "1"}}}]}}}, "nvidia.com/mig-1g.5gb: 1"),
}  # fmt: skip


def unequal(api: str, kind: str, groups: dict[str, dict[str, Any]], spec: dict[str, Any]) -> ExternalRun:
    """One object with these pods behind their gates, read as the driver reads them."""
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
    return {"replicas": replicas, "template": asking(cards)}


UNEQUAL = {
    "MPIJob whose launcher has a card": unequal(
        "kubeflow.org/v2beta1", "MPIJob", {"launcher": asking(1), "worker-0": asking(4), "worker-1": asking(4)},
        {"mpiReplicaSpecs": {"Launcher": role(1), "Worker": role(4, 2)}},
    ),
    "RayCluster with workers of two sizes": unequal(
        "ray.io/v1", "RayCluster", {"head": asking(1), "small-0": asking(2), "big-0": asking(4)},
        {"headGroupSpec": role(1), "workerGroupSpecs": [role(2), role(4)]},
    ),
    "JobSet with two jobs": unequal(
        "jobset.x-k8s.io/v1alpha2", "JobSet", {"actor-0": asking(1), "learner-0": asking(8)},
        {"replicatedJobs": [{"template": {"spec": {"template": asking(1)}}}, {"template": {"spec": {"template": asking(8)}}}]},
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", UNEQUAL)
def test_a_gang_of_unequal_pods_is_told_which_and_what_to_do(pool: Pool, alice: User, what: str) -> None:
    run, cluster = UNEQUAL[what], Cluster(UNEQUAL[what])
    assert run.waits
    looked(pool, cluster)
    [told] = cluster.told
    assert not Workload.objects.exists()
    assert "submit those that differ as an object of their own" in told
    for pod in {f"{each.asked['nvidia.com/gpu']:g}": each for each in reversed(run.pods)}.values():
        assert f"nvidia.com/gpu {pod.asked['nvidia.com/gpu']:g}: {pod.name}" in told
    assert len(told) < 900  # all of it fits into the annotation


def test_a_launcher_or_head_without_a_gpu_leaves_the_others_alike(pool: Pool, alice: User) -> None:
    """Its pod is not kept back, and not listed."""
    run = unequal(
        "kubeflow.org/v2beta1", "MPIJob", {"worker-0": asking(2), "worker-1": asking(2)},
        {"mpiReplicaSpecs": {"Launcher": {"template": {"spec": {"containers": [{"name": "l"}]}}}, "Worker": role(2, 2)}},
    )  # fmt: skip
    looked(pool, Cluster(run))
    assert Workload.objects.values_list("pods", "units_per_pod").get() == (2, 2)


@pytest.mark.parametrize("what", WRONG)
def test_what_cannot_be_admitted_is_told_why_once(pool: Pool, alice: User, what: str) -> None:
    changes, word = WRONG[what]
    cluster = Cluster(run(**changes))
    looked(pool, cluster)
    assert word in cluster.told[0]
    assert not Workload.objects.exists()
    cluster.runs = (replace(cluster.runs[0], status=cluster.told[0]),)
    looked(pool, cluster)
    assert len(cluster.told) == 1


def test_what_is_written_on_pods_is_what_anybody_may_read(
    pool: Pool, alice: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    readers = []

    def situation(reader: Actor, *_of: Any) -> Situation:
        readers.append(reader)
        return Situation("For the cards of others.")

    monkeypatch.setattr(external_runs, "situation_of", situation)
    cluster = Cluster(run())
    looked(pool, cluster)
    Claim.objects.update(answered_at=timezone.now())
    looked(pool, cluster)
    assert cluster.told == ["waits. For the cards of others."]
    assert not any(reader.may(Right.SEE, Department.objects.get()) for reader in readers)


def test_no_more_refusals_are_told_at_once_than_a_look_has_time_for(
    pool: Pool, alice: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(external_runs, "NOTIFY_AT_ONCE", 2)
    cluster = Cluster(*(run(f"u{n}", department="audio") for n in range(5)), run("good"))
    looked(pool, cluster)
    assert len(cluster.told) == 2
    assert ExternalWork.objects.get().key == "good"


def test_its_annotations_are_the_fields_of_the_form(pool: Pool, alice: User) -> None:
    said = {
        "name": "nightly",
        "priority": "-3",
        "max-runtime": "8h",
        "preemptible": "false",
        "own-only": "true",
        "pool": pool.slug,
    }
    looked(pool, Cluster(run(settings=said)))
    workload = Workload.objects.get()
    assert (workload.name, workload.priority, workload.max_runtime) == ("nightly", -3, 8 * 3600)
    assert (workload.preemptible, workload.own_only) == (False, True)
    assert Claim.objects.get().priority == -3


def test_names_are_cleaned_as_those_of_forms(pool: Pool, alice: User) -> None:
    sample = {**SAMPLE, "spec": {"containers": [{**SAMPLE["spec"]["containers"][0], "image": "a\0b"}]}}  # type: ignore[index]
    looked(pool, Cluster(run(settings={"name": "night\u202ely\0"}, sample=sample)))
    assert (Workload.objects.get().name, Image.objects.get().name) == ("nightly", "a b")


def test_one_that_cannot_be_read_keeps_no_other_from_being_admitted(
    pool: Pool, alice: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = external_runs.register

    def fails_once(cluster: Any, run: ExternalRun, **facts: Any) -> Workload | None:
        if run.ref.uid == "bad":
            raise KeyError("spec")
        return real(cluster, run, **facts)

    monkeypatch.setattr(external_runs, "register", fails_once)
    looked(pool, Cluster(run("bad"), run("good")))
    assert ExternalWork.objects.get().key == "good"


def test_what_was_taken_away_in_the_cluster_is_asked_to_stop(pool: Pool, alice: User) -> None:
    cluster = Cluster(run())
    looked(pool, cluster)
    cluster.runs = ()
    looked(pool, cluster)
    assert Workload.objects.get().cancel_requested_at is not None


@pytest.mark.parametrize(("bound", "by_portal", "taken_away"), [
    (1, True, False),  # the portal suspended it, and nothing of its next attempt has been there yet
    (2, True, True),  # it was resumed, the mark is old
    (1, False, True),
])  # fmt: skip
def test_what_its_people_suspend_is_taken_away_also_after_the_portal_had_suspended_it(
    pool: Pool, alice: User, bound: int, by_portal: bool, taken_away: bool
) -> None:
    cluster = Cluster(run())
    looked(pool, cluster)
    Workload.objects.update(attempts_made=2)
    Attempt.objects.update(number=2)
    ExternalWork.objects.update(bound=bound)
    cluster.runs = (run(pods=0, suspended=True, suspended_by_portal=by_portal),)
    looked(pool, cluster)
    assert (Workload.objects.get().cancel_requested_at is not None) is taken_away


def test_a_pod_that_is_made_again_is_kept_unreadable_and_no_longer_than_its_workload(pool: Pool, alice: User) -> None:
    manifest = {"metadata": {"name": "lone"}, "spec": {"env": "hunter2"}}
    lone = run(ref=ExternalRef("v1", "Pod", "lab", "lone", "p1"), manifest=manifest)
    cluster = Cluster(lone)
    looked(pool, cluster)
    assert "hunter2" not in ExternalWork.objects.get().manifest
    Workload.objects.update(attempts_made=2)
    Attempt.objects.update(number=2)
    cluster.runs = ()
    looked(pool, cluster)
    assert cluster.made == [manifest]
    assert ExternalWork.objects.get().key == "again"
    Workload.objects.update(finished_at=timezone.now(), state="cancelled")
    looked(pool, cluster)
    assert ExternalWork.objects.get().manifest == ""


def test_what_a_lost_node_keeps_of_the_attempt_before_is_nothing_of_the_next_one(pool: Pool, alice: User) -> None:
    left = ExternalPod("train-0", "p0", "n1", Phase.RUNNING, gated=False, leaving=dt.timedelta(seconds=5))
    new = ExternalPod("train-1", "p1", "", Phase.PENDING, gated=True)
    cluster = Cluster(run())
    looked(pool, cluster)
    Workload.objects.update(attempts_made=2)
    Attempt.objects.update(number=2)
    cluster.runs = (run(pods_=(left,)),)
    assert external_runs.look(pool.group.cluster, cluster, now=timezone.now()) == {}
    assert ExternalWork.objects.get().bound == 1
    cluster.runs = (run(pods_=(left, new)),)
    [seen] = external_runs.look(pool.group.cluster, cluster, now=timezone.now()).values()
    assert (seen.phase, seen.node) == (Phase.PENDING, "")
    assert ExternalWork.objects.get().bound == 2


def test_a_replica_on_a_lost_node_goes_on_with_its_next_pod_and_is_not_missing_meanwhile(
    pool: Pool, alice: User
) -> None:
    left = replica("p1", gated=False, phase=Phase.RUNNING, leaving=dt.timedelta(seconds=5))
    cluster = Cluster(replica("p1"))
    looked(pool, cluster)
    Workload.objects.update(attempts_made=2)
    Attempt.objects.update(number=2)
    cluster.runs = (left,)
    looked(pool, cluster)
    assert ExternalWork.objects.get().missing_since is None
    cluster.runs = (left, replica("p2"))
    looked(pool, cluster)
    assert ExternalWork.objects.get().key == "p2"


def test_what_is_resumed_after_its_end_is_a_new_workload(pool: Pool, alice: User) -> None:
    cluster = Cluster(run())
    looked(pool, cluster)
    first = Workload.objects.get()
    actions.cancel(actor=Actor(alice), workload=first)
    first.attempts.update(removed_at=timezone.now())
    looked(pool, cluster)
    assert Workload.objects.count() == 2
    assert ExternalWork.objects.get(workload=first).key is None


def test_the_next_pod_of_a_replica_goes_on_with_its_workload_only_if_it_asks_for_the_same(
    pool: Pool, alice: User
) -> None:
    cluster = Cluster(replica("p1"))
    looked(pool, cluster)
    cluster.runs = (replica("p2"),)
    looked(pool, cluster)
    assert ExternalWork.objects.get().key == "p2"
    cluster.runs = (replica("p3", cards=4),)
    looked(pool, cluster)
    rows = ExternalWork.objects.order_by("pk")
    assert [(row.key, row.workload.units_per_pod) for row in rows] == [("p2", 2), ("p3", 4)]


def test_a_pod_that_takes_the_place_of_one_that_still_has_its_grace_waits_for_it(pool: Pool, alice: User) -> None:
    cluster = Cluster(replica("p1"))
    looked(pool, cluster)
    old = replica("p1", gated=False, phase=Phase.RUNNING, leaving=dt.timedelta(seconds=30))
    cluster.runs = (old, replica("p2"))
    looked(pool, cluster)
    assert ExternalWork.objects.get().key == "p1"
    cluster.runs = (old, replica("p2"), replica("p3"))  # it was scaled up meanwhile
    looked(pool, cluster)
    assert sorted(ExternalWork.objects.values_list("key", flat=True)) == ["p1", "p3"]
    cluster.runs = (replica("p2"), replica("p3"))
    looked(pool, cluster)
    assert sorted(ExternalWork.objects.values_list("key", flat=True)) == ["p2", "p3"]


def test_an_object_whose_pods_ask_for_something_else_now_is_another_workload(pool: Pool, alice: User) -> None:
    def waiting(cards: int) -> ExternalRun:
        pod = ExternalPod("train-0", f"p{cards}", "", Phase.PENDING, gated=True, asked={"nvidia.com/gpu": cards})
        return run(pods_=(pod,), sample=asking(cards))

    cluster = Cluster(waiting(1))
    looked(pool, cluster)
    cluster.runs = (waiting(8),)
    looked(pool, cluster)
    first = Workload.objects.get()
    assert first.cancel_requested_at is not None
    Workload.objects.filter(pk=first.pk).update(finished_at=timezone.now(), state="cancelled")
    first.attempts.update(removed_at=timezone.now())
    looked(pool, cluster)
    assert Workload.objects.exclude(pk=first.pk).get().units_per_pod == 8


def test_pages_say_who_submitted_it_and_offer_nothing_that_only_the_portals_own_has(
    pool: Pool, vision: Department, alice: User, client: Client
) -> None:
    looked(pool, Cluster(run(submitted_by="carol")))
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


def test_where_external_runs_cannot_be_listed_nothing_is_concluded_of_them(pool: Pool, alice: User) -> None:
    class Forbidding(Cluster):
        def external(self, known: Collection[ExternalRef] = ()) -> tuple[ExternalRun, ...]:
            raise Unreachable("jobsets is forbidden")

    class NotAdmitting(Cluster):
        admits = False

    assert external_runs.seen_of(pool.group.cluster, Forbidding(), now=timezone.now()) is None
    assert external_runs.seen_of(pool.group.cluster, NotAdmitting(run()), now=timezone.now()) is None
    assert not Workload.objects.exists()
