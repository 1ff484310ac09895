"""From the objects of a gang or a service, as a cluster lists them, to one run; and the status of single pods."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from tests.workloads.kubernetes.test_gang_manifests import gang, served
from tests.workloads.kubernetes.test_manifests import spec
from workloads.kubernetes import job_status, manifests, pod_status
from workloads.kubernetes.manifests import INDEX, STOPPED_AT, SUBMISSION, Options
from workloads.runtime.base import CardInfo, NodeInfo, Observed, Offer, Phase
from workloads.runtime.setups import Setup

T0, T1 = "2031-01-01T00:00:00Z", "2031-01-01T00:00:09Z"
RUNNING = {"phase": "Running", "containerStatuses": [{"state": {"running": {"startedAt": T0}}, "ready": True}]}
FAILED = {
    "phase": "Failed",
    "containerStatuses": [{"state": {"terminated": {"exitCode": 3, "reason": "Error", "finishedAt": T1}}}],
}
STOPPED = {STOPPED_AT: T1}


def job(notes: dict[str, str] | None = None, **status: Any) -> dict[str, Any]:
    manifest = manifests.job(gang(), Options())
    manifest["metadata"] |= {"uid": "u0", "annotations": manifest["metadata"]["annotations"] | (notes or {})}
    return manifest | {"status": status}


def deployment(notes: dict[str, str] | None = None) -> dict[str, Any]:
    manifest = manifests.deployment(served(), Options())
    manifest["metadata"] |= {"uid": "u0", "annotations": manifest["metadata"]["annotations"] | (notes or {})}
    return manifest | {"status": {}}


def pod(owner: dict[str, Any], status: dict[str, Any], rank: int | None = None, **meta: Any) -> dict[str, Any]:
    """A pod that its controller created and the portal released; `meta` overrides its metadata."""
    body = deepcopy(owner["spec"]["template"])
    body["spec"].pop("schedulingGates", None)
    body["spec"]["nodeName"] = "n1"
    index = {} if rank is None else {INDEX: str(rank)}
    names = {
        "name": f"{owner['metadata']['name']}-7f9c-{rank}",
        "uid": f"u-{rank}",
        "namespace": owner["metadata"]["namespace"],
    }
    owners = {"ownerReferences": [{"name": owner["metadata"]["name"] + ("" if index else "-7f9c")}]}
    body["metadata"] |= names | owners | {"creationTimestamp": T0, "labels": body["metadata"]["labels"] | index} | meta
    return body | {"status": status}


def one(
    owners: list[dict[str, Any]], listed: list[dict[str, Any]], reported_ready: frozenset[str] = frozenset()
) -> Observed:
    [run] = job_status.runs(owners, listed, reported_ready)
    return run


class TestAGang:
    def test_is_one_run_of_all_its_ranks(self) -> None:
        run = one([job()], [pod(job(), RUNNING, 1), pod(job(), RUNNING, 0)])
        assert (run.ref.name, run.ref.kind, run.phase, run.stopping) == ("w-7-1", "distributed", Phase.RUNNING, False)
        assert [rank.rank for rank in run.ranks] == [0, 1]

    def test_is_pending_until_every_pod_exists_and_gives_the_reason_of_its_job(self) -> None:
        run = one([job()], [pod(job(), RUNNING, 0)])
        assert (run.phase, [rank.phase for rank in run.ranks]) == (Phase.PENDING, [Phase.RUNNING, Phase.PENDING])
        conditions = [{"type": "Failed", "status": "True", "reason": "DeadlineExceeded"}]
        assert one([job(conditions=conditions)], []).reason == "DeadlineExceeded"

    def test_is_gated_once_every_rank_exists_and_one_is_still_gated(self) -> None:
        held = pod(job(), {"phase": "Pending"}, 1)
        held["spec"] |= {"schedulingGates": [{"name": manifests.GATE}]}
        assert not one([job()], [held]).gated
        assert one([job()], [held, pod(job(), RUNNING, 0)]).gated

    def test_that_was_stopped_has_ended_when_no_pod_is_left(self) -> None:
        run = one([job(STOPPED)], [])
        assert (run.phase, run.reason, run.stopping) == (Phase.FAILED, "Stopped", True)

    def test_whose_job_was_deleted_is_lost_and_recognised_by_its_pods(self) -> None:
        run = one([], [pod(job(), FAILED, 0), pod(job(), RUNNING, 1)])
        assert (run.ref.name, run.over, run.ranks[0].exit_code) == ("w-7-1", True, 3)
        assert one([], [pod(job(), FAILED, 0)]).phase is Phase.LOST

    def test_that_is_being_removed_is_not_a_run(self) -> None:
        assert job_status.runs([], [pod(job(), FAILED, 0, deletionTimestamp=T1, finalizers=[])]) == ()

    def test_has_the_status_of_the_youngest_pod_of_each_rank(self) -> None:
        listed = [pod(job(), RUNNING, 0, creationTimestamp=T1), pod(job(), FAILED, 0), pod(job(), RUNNING, 1)]
        assert one([job()], listed).phase is Phase.RUNNING


class TestAService:
    def test_is_running_while_its_pod_runs_and_between_restarts(self) -> None:
        run = one([deployment()], [pod(deployment(), RUNNING)])
        assert (run.phase, run.ranks[0].ready, run.ref.kind) == (Phase.RUNNING, True, "service")
        assert one([deployment()], [pod(deployment(), FAILED)]).phase is Phase.RUNNING

    def test_is_pending_while_it_has_no_pod_or_no_node(self) -> None:
        assert one([deployment()], []).phase is Phase.PENDING
        since = [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "lastTransitionTime": T1}]
        unscheduled = pod(deployment(), {"phase": "Pending", "conditions": since})
        del unscheduled["spec"]["nodeName"]
        run = one([deployment()], [unscheduled])
        assert (run.phase, run.reason, run.displaced_at) == (Phase.PENDING, "Unschedulable", pod_status.time(T1))

    def test_that_was_stopped_has_ended_when_no_pod_is_left(self) -> None:
        assert one([deployment(STOPPED)], [pod(deployment(), RUNNING)]).stopping
        assert (one([deployment(STOPPED)], []).phase, one([deployment(STOPPED)], []).reason) == (
            Phase.FAILED,
            "Stopped",
        )

    def test_whose_deployment_was_deleted_stops_and_ends_with_its_last_pod(self) -> None:
        left = pod(deployment(), RUNNING, deletionTimestamp=T1)
        run = one([], [left])
        assert (run.ref.name, run.phase, run.stopping) == ("w-one-1", Phase.RUNNING, True)
        del left["spec"]["nodeName"]
        assert (one([], [left | {"status": {}}]).phase, one([], [left | {"status": {}}]).reason) == (
            Phase.PENDING,
            "Deleted",
        )
        assert job_status.runs([], []) == ()

    def test_is_ready_once_it_has_reported_so_itself(self) -> None:
        assert not one([deployment()], []).ready
        assert one([deployment()], [], frozenset({"s-1"})).ready

    def test_has_the_status_of_its_newest_pod_that_is_not_being_deleted(self) -> None:
        leaving = pod(deployment(), RUNNING, creationTimestamp=T1, deletionTimestamp=T1)
        assert one([deployment()], [leaving, pod(deployment(), {"phase": "Pending"})]).phase is Phase.PENDING


def test_objects_of_others_are_not_runs() -> None:
    stranger = {"metadata": {"name": "x", "labels": None}, "spec": {}, "status": {}}
    assert job_status.runs([stranger], [stranger]) == ()
    assert not job_status.is_owned(stranger)
    assert job_status.is_owned(job())
    assert not job_status.is_owned(manifests.pod(spec(), Options()))


class TestAPod:
    def test_has_its_actual_node_or_else_the_planned_one(self) -> None:
        manifest = manifests.pod(spec(), Options())
        assert pod_status.node_of(manifest) == "n1"
        assert pod_status.node_of(manifest | {"spec": manifest["spec"] | {"nodeName": "n9"}}) == "n9"
        assert pod_status.node_of(manifests.pod(spec(placement=()), Options())) == ""
        by_label = {"nodeSelectorTerms": [{"matchExpressions": []}]}
        affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": by_label}}
        assert pod_status.node_of({"spec": {"affinity": affinity}}) == ""

    @pytest.mark.parametrize(
        ("condition", "since"),
        [
            ({"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}, T1),
            ({"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}, None),
            ({"type": "PodScheduled", "status": "True"}, None),
            ({"type": "Ready", "status": "False"}, None),
        ],
    )
    def test_states_since_when_it_is_unschedulable(self, condition: dict[str, str], since: str | None) -> None:
        found = pod_status.unschedulable_since({"status": {"conditions": [condition | {"lastTransitionTime": T1}]}})
        assert found == pod_status.time(since)

    def test_that_is_gated_has_no_reason_for_waiting(self) -> None:
        gated = {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}
        other = {"type": "Ready", "status": "False", "reason": "Unschedulable"}
        assert pod_status.waiting_for({"status": {"conditions": [other, gated]}}) == ("", "")

    def test_that_ran_out_of_memory_reports_it_even_if_it_was_deleted(self) -> None:
        killed = {"exitCode": 137, "reason": "OOMKilled", "finishedAt": T1, "message": "oom"}
        manifest = manifests.pod(spec(), Options())
        manifest["metadata"]["uid"] = "u1"
        manifest["status"] = {"phase": "Failed", "containerStatuses": [{"state": {"terminated": killed}}]}
        run = pod_status.observed(manifest)
        assert (run.phase, run.reason, run.message) == (Phase.FAILED, "OOMKilled", "oom")

    def test_that_failed_for_its_own_reason_reports_it(self) -> None:
        manifest = manifests.pod(spec(), Options())
        manifest["metadata"]["uid"] = "u1"
        manifest["status"] = {"phase": "Failed", "reason": "StartError", "message": "no such file"}
        run = pod_status.observed(manifest)
        assert (run.phase, run.reason, run.message) == (Phase.FAILED, "StartError", "no such file")


def test_node_offers_only_parts_with_a_sharing_system_and_cards() -> None:
    cards = (CardInfo(0, 1),)
    beside = Offer("whole", "A100", "card", 1, cards)
    node = NodeInfo("n1", "mig", "A100", "slice", 8, (), beside=(beside,))
    assert node.offers == (beside,)


class TestASetup:
    def test_is_written_without_default_values_and_read_back(self) -> None:
        setup = Setup(template="torch", rdma=2, extra={"share": "lab"})
        assert setup.as_json() == {"template": "torch", "rdma": 2, "extra": {"share": "lab"}}
        assert Setup.from_json(setup.as_json() | {"of a newer portal": 1}) == setup == Setup.checked(setup.as_json())

    @pytest.mark.parametrize(
        ("typed", "message"),
        [
            (["port"], "an object in braces, please"),
            ({"ports": 1}, "there is no ports; there are template, parameter_servers"),
            ({"port": "80"}, "port is of type int"),
            ({"rdma": True}, "rdma is of type int"),
            ({"shm_mib": None}, "shm_mib is of type int"),
            ({"extra": "lab"}, "extra is of type Mapping[str, str]"),
            ({"extra": {"share": 1}}, "extra is of type Mapping[str, str]"),
        ],
    )
    def test_that_is_invalid_is_rejected_with_the_key(self, typed: Any, message: str) -> None:
        with pytest.raises(ValueError) as raised:
            Setup.checked(typed)
        assert str(raised.value).startswith(message)


def test_run_is_identified_by_the_submission_in_its_annotations() -> None:
    run = one([job()], [pod(job(), RUNNING, 0)])
    assert run.ref.submission_id == job()["metadata"]["annotations"][SUBMISSION]
