"""From the objects of a gang or a service, as a cluster lists them, to one run; and what a single pod says of itself."""

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
    made = manifests.job(gang(), Options())
    made["metadata"] |= {"uid": "u0", "annotations": made["metadata"]["annotations"] | (notes or {})}
    return made | {"status": status}


def deployment(notes: dict[str, str] | None = None) -> dict[str, Any]:
    made = manifests.deployment(served(), Options())
    made["metadata"] |= {"uid": "u0", "annotations": made["metadata"]["annotations"] | (notes or {})}
    return made | {"status": {}}


def pod(owner: dict[str, Any], status: dict[str, Any], rank: int | None = None, **meta: Any) -> dict[str, Any]:
    """One that its controller made and the portal let go, `meta` changed."""
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
    owners: list[dict[str, Any]], listed: list[dict[str, Any]], said_ready: frozenset[str] = frozenset()
) -> Observed:
    [run] = job_status.runs(owners, listed, said_ready)
    return run


class TestAGang:
    def test_is_one_run_of_all_its_ranks(self) -> None:
        run = one([job()], [pod(job(), RUNNING, 1), pod(job(), RUNNING, 0)])
        assert (run.ref.name, run.ref.kind, run.phase, run.stopping) == ("w-7-1", "distributed", Phase.RUNNING, False)
        assert [rank.rank for rank in run.ranks] == [0, 1]

    def test_waits_for_what_its_controller_has_not_made_and_says_why_it_makes_none(self) -> None:
        run = one([job()], [pod(job(), RUNNING, 0)])
        assert (run.phase, [rank.phase for rank in run.ranks]) == (Phase.PENDING, [Phase.RUNNING, Phase.PENDING])
        conditions = [{"type": "Failed", "status": "True", "reason": "DeadlineExceeded"}]
        assert one([job(conditions=conditions)], []).reason == "DeadlineExceeded"

    def test_is_gated_once_every_rank_exists_and_one_still_waits(self) -> None:
        held = pod(job(), {"phase": "Pending"}, 1)
        held["spec"] |= {"schedulingGates": [{"name": manifests.GATE}]}
        assert not one([job()], [held]).gated
        assert one([job()], [held, pod(job(), RUNNING, 0)]).gated

    def test_that_was_stopped_has_ended_when_no_pod_is_left(self) -> None:
        run = one([job(STOPPED)], [])
        assert (run.phase, run.reason, run.stopping) == (Phase.FAILED, "Stopped", True)

    def test_whose_job_somebody_deleted_is_lost_and_known_by_its_pods(self) -> None:
        run = one([], [pod(job(), FAILED, 0), pod(job(), RUNNING, 1)])
        assert (run.ref.name, run.over, run.ranks[0].exit_code) == ("w-7-1", True, 3)
        assert one([], [pod(job(), FAILED, 0)]).phase is Phase.LOST

    def test_that_is_being_forgotten_is_no_run(self) -> None:
        assert job_status.runs([], [pod(job(), FAILED, 0, deletionTimestamp=T1, finalizers=[])]) == ()

    def test_says_what_the_youngest_pod_of_a_rank_says(self) -> None:
        listed = [pod(job(), RUNNING, 0, creationTimestamp=T1), pod(job(), FAILED, 0), pod(job(), RUNNING, 1)]
        assert one([job()], listed).phase is Phase.RUNNING


class TestAService:
    def test_runs_while_its_pod_does_and_between_two_starts(self) -> None:
        run = one([deployment()], [pod(deployment(), RUNNING)])
        assert (run.phase, run.ranks[0].ready, run.ref.kind) == (Phase.RUNNING, True, "service")
        assert one([deployment()], [pod(deployment(), FAILED)]).phase is Phase.RUNNING

    def test_waits_while_it_has_no_pod_or_no_node(self) -> None:
        assert one([deployment()], []).phase is Phase.PENDING
        since = [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "lastTransitionTime": T1}]
        homeless = pod(deployment(), {"phase": "Pending", "conditions": since})
        del homeless["spec"]["nodeName"]
        run = one([deployment()], [homeless])
        assert (run.phase, run.reason, run.displaced_at) == (Phase.PENDING, "Unschedulable", pod_status.time(T1))

    def test_that_was_stopped_has_ended_when_no_pod_is_left(self) -> None:
        assert one([deployment(STOPPED)], [pod(deployment(), RUNNING)]).stopping
        assert (one([deployment(STOPPED)], []).phase, one([deployment(STOPPED)], []).reason) == (
            Phase.FAILED,
            "Stopped",
        )

    def test_whose_deployment_somebody_deleted_stops_and_is_gone_with_its_last_pod(self) -> None:
        left = pod(deployment(), RUNNING, deletionTimestamp=T1)
        run = one([], [left])
        assert (run.ref.name, run.phase, run.stopping) == ("w-one-1", Phase.RUNNING, True)
        del left["spec"]["nodeName"]
        assert (one([], [left | {"status": {}}]).phase, one([], [left | {"status": {}}]).reason) == (
            Phase.PENDING,
            "Deleted",
        )
        assert job_status.runs([], []) == ()

    def test_is_ready_too_once_it_has_said_so(self) -> None:
        assert not one([deployment()], []).ready
        assert one([deployment()], [], frozenset({"s-1"})).ready

    def test_shows_its_newest_pod_that_is_not_leaving(self) -> None:
        leaving = pod(deployment(), RUNNING, creationTimestamp=T1, deletionTimestamp=T1)
        assert one([deployment()], [leaving, pod(deployment(), {"phase": "Pending"})]).phase is Phase.PENDING


def test_strangers_are_no_runs() -> None:
    stranger = {"metadata": {"name": "x", "labels": None}, "spec": {}, "status": {}}
    assert job_status.runs([stranger], [stranger]) == ()
    assert not job_status.is_owned(stranger)
    assert job_status.is_owned(job())
    assert not job_status.is_owned(manifests.pod(spec(), Options()))


class TestAPod:
    def test_is_where_it_is_or_where_the_plan_wants_it(self) -> None:
        made = manifests.pod(spec(), Options())
        assert pod_status.node_of(made) == "n1"
        assert pod_status.node_of(made | {"spec": made["spec"] | {"nodeName": "n9"}}) == "n9"
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
    def test_says_since_when_no_node_has_a_place_for_it(self, condition: dict[str, str], since: str | None) -> None:
        found = pod_status.unschedulable_since({"status": {"conditions": [condition | {"lastTransitionTime": T1}]}})
        assert found == pod_status.time(since)

    def test_that_a_gate_holds_back_is_on_its_way(self) -> None:
        gated = {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}
        other = {"type": "Ready", "status": "False", "reason": "Unschedulable"}
        assert pod_status.waiting_for({"status": {"conditions": [other, gated]}}) == ("", "")

    def test_that_is_out_of_memory_says_so_whoever_deleted_it(self) -> None:
        killed = {"exitCode": 137, "reason": "OOMKilled", "finishedAt": T1, "message": "oom"}
        made = manifests.pod(spec(), Options())
        made["metadata"]["uid"] = "u1"
        made["status"] = {"phase": "Failed", "containerStatuses": [{"state": {"terminated": killed}}]}
        run = pod_status.observed(made)
        assert (run.phase, run.reason, run.message) == (Phase.FAILED, "OOMKilled", "oom")

    def test_that_failed_for_a_reason_of_its_own_says_it(self) -> None:
        made = manifests.pod(spec(), Options())
        made["metadata"]["uid"] = "u1"
        made["status"] = {"phase": "Failed", "reason": "StartError", "message": "no such file"}
        run = pod_status.observed(made)
        assert (run.phase, run.reason, run.message) == (Phase.FAILED, "StartError", "no such file")


def test_a_node_offers_only_what_has_a_system_and_cards() -> None:
    cards = (CardInfo(0, 1),)
    beside = Offer("whole", "A100", "card", 1, cards)
    node = NodeInfo("n1", "mig", "A100", "slice", 8, (), beside=(beside,))
    assert node.offers == (beside,)


class TestASetup:
    def test_is_written_without_what_has_its_default_and_read_back(self) -> None:
        made = Setup(template="torch", rdma=2, extra={"share": "lab"})
        assert made.as_json() == {"template": "torch", "rdma": 2, "extra": {"share": "lab"}}
        assert Setup.from_json(made.as_json() | {"of a newer portal": 1}) == made == Setup.checked(made.as_json())

    @pytest.mark.parametrize(
        ("typed", "said"),
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
    def test_that_cannot_be_names_the_key(self, typed: Any, said: str) -> None:
        with pytest.raises(ValueError) as raised:
            Setup.checked(typed)
        assert str(raised.value).startswith(said)


def test_what_another_portal_wrote_is_known_by_its_submission() -> None:
    run = one([job()], [pod(job(), RUNNING, 0)])
    assert run.ref.submission_id == job()["metadata"]["annotations"][SUBMISSION]
