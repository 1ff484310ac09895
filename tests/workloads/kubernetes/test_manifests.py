"""RunSpec → Kubernetes objects, and pods back → Observed."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from workloads.kubernetes import manifests, pod_status
from workloads.kubernetes.manifests import Options, Unsupported
from workloads.runtime.base import Phase, PodPlacement, RunRef, RunSpec

OPTIONS = Options(instance="east")


def spec(**changes: Any) -> RunSpec:
    options: dict[str, Any] = {
        "ref": RunRef("w-one-1", "gqp-vision", "s-1"),
        "workload_id": "one",
        "attempt": 1,
        "kind": "job",
        "department": "vision",
        "user": "alice@example.org",
        "image": "registry.example/train:3",
        "command": ("python", "train.py"),
        "env": {"EPOCHS": "3"},
        "pods": 1,
        "cpu_milli": 4000,
        "memory_mib": 16384,
        "sharing": "whole",
        "product": "NVIDIA-A100-SXM4-80GB",
        "units_per_pod": 2,
        "profile": None,
        "placement": (PodPlacement(0, "n1", (0, 1)),),
        "grace": 120,
        "max_runtime": 3600,
        "volume": "w-one",
        "ready_url": "https://portal.example/ready/",
        "ready_token": "r",
    }
    return RunSpec(**(options | changes))


def container(manifest: dict[str, Any]) -> dict[str, Any]:
    return dict(manifest["spec"]["containers"][0])


def env(manifest: dict[str, Any]) -> dict[str, str]:
    return {entry["name"]: entry["value"] for entry in container(manifest)["env"] if "value" in entry}


def terms(manifest: dict[str, Any]) -> list[dict[str, Any]]:
    """The node selector terms of its required node affinity."""
    required = manifest["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    return list(required["nodeSelectorTerms"])


class TestPod:
    def test_requests_the_granted_resources_on_the_planned_node(self) -> None:
        manifest = manifests.pod(spec(), OPTIONS)
        assert container(manifest)["resources"] == {
            "requests": {"cpu": "4000m", "memory": "16384Mi"},
            "limits": {"cpu": "4000m", "memory": "16384Mi", "nvidia.com/gpu": "2"},
        }
        term, _ = terms(manifest)
        assert term["matchFields"][0]["values"] == ["n1"]
        assert "nodeName" not in manifest["spec"]
        product = {"key": "nvidia.com/gpu.product", "operator": "In", "values": ["NVIDIA-A100-SXM4-80GB"]}
        assert product in term["matchExpressions"]

    def test_that_shares_a_resource_claim_only_prefers_the_planned_node(self) -> None:
        manifest = manifests.pod(spec(sharing="dra", units_per_pod=1, extra={"share": "lab"}), OPTIONS)
        (preferred,) = manifest["spec"]["affinity"]["nodeAffinity"].pop(
            "preferredDuringSchedulingIgnoredDuringExecution"
        )
        assert preferred["preference"]["matchFields"][0]["values"] == ["n1"]
        assert manifest["spec"]["affinity"] == {"nodeAffinity": {}}, "the device of the claim may be on another node"

    def test_is_never_restarted_and_leaves_its_deadline_to_the_portal(self) -> None:
        manifest = manifests.pod(spec(), OPTIONS)["spec"]
        assert manifest["restartPolicy"] == "Never"
        assert manifest["terminationGracePeriodSeconds"] == 120
        assert "activeDeadlineSeconds" not in manifest

    def test_is_restricted_and_has_no_token(self) -> None:
        manifest = manifests.pod(spec(), OPTIONS)
        assert manifest["spec"]["automountServiceAccountToken"] is False
        assert manifest["spec"]["securityContext"]["runAsNonRoot"] is True
        assert container(manifest)["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
        }

    def test_names_its_user_in_labels_and_verbatim_in_annotations(self) -> None:
        meta = manifests.pod(spec(), OPTIONS)["metadata"]
        assert meta["labels"]["gpu-quota-portal/user"] == "alice-example.org"
        assert meta["annotations"]["gpu-quota-portal/user"] == "alice@example.org"
        wanted = dict(part.split("=") for part in manifests.selector(OPTIONS).split(","))
        assert wanted.items() <= meta["labels"].items()

    def test_is_selected_only_by_its_own_portal(self) -> None:
        meta = manifests.pod(spec(), OPTIONS)["metadata"]
        assert manifests.is_selected(meta, OPTIONS)
        assert not manifests.is_selected(meta, Options(instance="west"))
        assert not manifests.is_selected({"name": "w-one-1"}, OPTIONS)

    def test_needs_no_product_label_on_a_node_whose_product_is_an_option(self) -> None:
        """Such a node may have no such label, and the affinity names the node itself."""
        named = Options.from_json({"products": {"n1": "NVIDIA-A100-SXM4-80GB"}})
        request = spec(sharing="timeslicing", product="NVIDIA-A100-SXM4-80GB-SHARED", units_per_pod=1)
        (term,) = terms(manifests.pod(request, named))
        assert term == {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}
        assert len(terms(manifests.pod(request, OPTIONS))) == 2

    def test_has_the_node_selector_of_its_pool(self) -> None:
        manifest = manifests.pod(spec(node_selector={"rack": "a"}), OPTIONS)
        assert manifest["spec"]["nodeSelector"] == {"rack": "a"}
        assert "nodeSelector" not in manifests.pod(spec(), OPTIONS)["spec"]

    def test_cannot_see_cards_that_it_did_not_request(self) -> None:
        assert env(manifests.pod(spec(units_per_pod=0), OPTIONS))["NVIDIA_VISIBLE_DEVICES"] == "void"

    def test_has_variables_of_the_portal_that_users_cannot_override(self) -> None:
        variables = env(
            manifests.pod(spec(env={"PORTAL_WORKLOAD": "lie", "PORTAL_WORKDIR": "/", "HOME": "/me"}), OPTIONS)
        )
        assert (variables["PORTAL_WORKLOAD"], variables["PORTAL_WORKDIR"], variables["HOME"]) == (
            "one",
            "/workdir",
            "/workdir",
        )

    def test_refers_to_its_secrets_and_contains_none(self) -> None:
        request = dataclasses.replace(
            spec(), secret_env={"KEY": "xyzzy", "PORTAL_WORKLOAD": "a lie"}, ready_token="open-sesame"
        )
        manifest = manifests.pod(request, OPTIONS)
        assert "xyzzy" not in str(manifest)
        by_reference = {
            e["name"]: e["valueFrom"]["secretKeyRef"] for e in container(manifest)["env"] if "valueFrom" in e
        }
        kept = manifests.secret(request, {"uid": "u"}, OPTIONS)
        assert kept["metadata"]["name"] == request.ref.name
        assert set(by_reference) == set(kept["stringData"])
        assert {ref["name"] for ref in by_reference.values()} == {request.ref.name}
        assert kept["stringData"]["KEY"] == "xyzzy"
        assert kept["stringData"]["PORTAL_WORKLOAD"] == request.workload_id

    def test_without_secret_variables_has_no_secret(self) -> None:
        assert manifests.secret(spec(), {"uid": "u"}, OPTIONS) is None
        assert not [e for e in container(manifests.pod(spec(), OPTIONS))["env"] if "secretKeyRef" in str(e)]

    def test_reads_the_time_of_reclaim_from_its_own_annotation(self) -> None:
        manifest = manifests.pod(spec(), OPTIONS)
        (item,) = next(v for v in manifest["spec"]["volumes"] if v["name"] == "notices")["downwardAPI"]["items"]
        assert item["fieldRef"]["fieldPath"] == "metadata.annotations['gpu-quota-portal/reclaim-at']"
        assert env(manifest)["PORTAL_RECLAIM_AT_FILE"] == f"{manifests.NOTICES}/{item['path']}"

    def test_has_its_working_directory_on_the_kind_of_volume_of_the_options(self) -> None:
        kept = manifests.pod(spec(), OPTIONS)["spec"]["volumes"][0]
        assert kept["persistentVolumeClaim"] == {"claimName": "w-one"}
        lost = manifests.pod(spec(), Options(volume="emptyDir"))["spec"]["volumes"][0]
        assert lost["emptyDir"] == {}

    @pytest.mark.parametrize(
        ("changes", "reason"),
        [
            ({"sharing": "nobody"}, "no module serves the sharing system nobody"),
            ({"env": {"LD_PRELOAD": "x.so"}}, "LD_PRELOAD"),
        ],
    )
    def test_that_is_impossible_is_unsupported_with_the_reason(self, changes: dict[str, Any], reason: str) -> None:
        with pytest.raises(Unsupported, match=reason):
            manifests.pod(spec(**changes), OPTIONS)

    def test_is_the_same_for_the_same_input(self) -> None:
        assert manifests.pod(spec(), OPTIONS) == manifests.pod(spec(), OPTIONS)


@pytest.mark.parametrize("text", ["a" * 80, "李雷", "-x-", "a b/c", ""])
def test_any_text_becomes_a_valid_label(text: str) -> None:
    label = manifests.label(text)
    assert len(label) <= 63
    assert label == "" or (label[0].isalnum() and label[-1].isalnum())


def test_unknown_option_is_rejected_with_the_known_ones() -> None:
    assert Options.from_json({"tolerations": [{"key": "x"}]}).tolerations == ({"key": "x"},)
    with pytest.raises(ValueError, match=r"unknown option storage; known: .*storage_class"):
        Options.from_json({"storage": "fast"})


def outcome_of(status: dict[str, Any], **metadata: Any) -> tuple[Phase, str, int | None]:
    """Phase, reason and exit code of a pod with this status."""
    manifest = manifests.pod(spec(), OPTIONS)
    manifest["spec"]["nodeName"] = metadata.pop("node", "n1")
    manifest["metadata"]["annotations"] |= metadata.pop("annotations", {})
    manifest["metadata"] |= {"uid": "u1"} | metadata
    manifest["status"] = status
    run = pod_status.observed(manifest)
    return run.phase, run.reason, run.exit_code


def ended(code: int, reason: str = "Error", at: str = "2031-01-01T00:00:10Z") -> list[dict[str, Any]]:
    times = {"startedAt": "2031-01-01T00:00:00Z", "finishedAt": at}
    return [{"name": "main", "state": {"terminated": {"exitCode": code, "reason": reason, **times}}}]


EVICTED = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI",
           "lastTransitionTime": "2031-01-01T00:00:10Z"}  # fmt: skip


class TestObserved:
    @pytest.mark.parametrize(
        ("status", "metadata", "expected"),
        [
            ({"phase": "Pending"}, {}, (Phase.PENDING, "", None)),
            ({"phase": "Running"}, {}, (Phase.RUNNING, "", None)),
            ({"phase": "Succeeded", "containerStatuses": ended(0, "Completed")}, {}, (Phase.SUCCEEDED, "Completed", 0)),
            ({"phase": "Failed", "containerStatuses": ended(7)}, {}, (Phase.FAILED, "Error", 7)),
            ({"phase": "Failed", "containerStatuses": ended(137, "OOMKilled")}, {}, (Phase.FAILED, "OOMKilled", 137)),
            # the cluster removed it: not a failure of the command
            ({"phase": "Failed", "reason": "Evicted"}, {}, (Phase.LOST, "Evicted", None)),
            ({"phase": "Failed", "reason": "UnexpectedAdmissionError"}, {}, (Phase.LOST, "UnexpectedAdmissionError", None)),
            ({"phase": "Failed", "reason": "NodeShutdown", "containerStatuses": ended(137)}, {},
             (Phase.LOST, "NodeShutdown", None)),
            (
                {"phase": "Failed", "containerStatuses": ended(143),
                 "conditions": [{"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}]},
                {},
                (Phase.LOST, "PreemptionByScheduler", None),
            ),
            # the node was removed, and pod garbage collection wrote the end
            (
                {"phase": "Failed",
                 "conditions": [{"type": "DisruptionTarget", "status": "True", "reason": "DeletionByPodGC"}]},
                {"deletionTimestamp": "2031-01-01T00:00:40Z", "deletionGracePeriodSeconds": 0},
                (Phase.LOST, "DeletionByPodGC", None),
            ),
            # deleted while it ran; deleted after it had failed by itself
            (
                {"phase": "Failed", "containerStatuses": ended(143, at="2031-01-01T00:00:12Z")},
                {"deletionTimestamp": "2031-01-01T00:00:40Z", "deletionGracePeriodSeconds": 30},
                (Phase.LOST, "Deleted", None),
            ),
            # the kubelet's last step of a deletion, which writes its time again: a second after the container's end
            (
                {"phase": "Failed", "containerStatuses": ended(143, at="2031-01-01T00:00:39Z")},
                {"deletionTimestamp": "2031-01-01T00:00:40Z", "deletionGracePeriodSeconds": 0},
                (Phase.LOST, "Deleted", None),
            ),
            (
                {"phase": "Failed", "containerStatuses": ended(7, at="2031-01-01T00:00:05Z")},
                {"deletionTimestamp": "2031-01-01T00:00:40Z", "deletionGracePeriodSeconds": 30},
                (Phase.FAILED, "Error", 7),
            ),
            # it handled SIGTERM and exited with any code: the work is not done, and has not failed
            *(
                (
                    {"phase": "Failed" if code else "Succeeded", "containerStatuses": ended(code, at="2031-01-01T00:00:12Z"),
                     "conditions": [EVICTED]},
                    {"deletionTimestamp": "2031-01-01T00:00:40Z", "deletionGracePeriodSeconds": 30},
                    (Phase.LOST, "EvictionByEvictionAPI", None),
                )
                for code in (0, 3)
            ),
            (
                {"phase": "Succeeded", "containerStatuses": ended(0, at="2031-01-01T00:00:39Z")},
                {"deletionTimestamp": "2031-01-01T00:00:40Z", "deletionGracePeriodSeconds": 0},
                (Phase.LOST, "Deleted", None),
            ),
            # it had ended before it was deleted
            (
                {"phase": "Succeeded", "containerStatuses": ended(0, "Completed", at="2031-01-01T00:00:05Z"),
                 "conditions": [EVICTED]},
                {"deletionTimestamp": "2031-01-01T00:00:40Z", "deletionGracePeriodSeconds": 30},
                (Phase.SUCCEEDED, "Completed", 0),
            ),
            (
                {"phase": "Failed", "containerStatuses": ended(137, "OOMKilled", at="2031-01-01T00:00:05Z")},
                {"deletionTimestamp": "2031-01-01T00:00:40Z", "deletionGracePeriodSeconds": 30},
                (Phase.FAILED, "OOMKilled", 137),
            ),
            # stopped by the portal
            (
                {"phase": "Failed", "reason": "DeadlineExceeded", "containerStatuses": ended(3)},
                {"annotations": {manifests.STOPPED_AT: "2031-01-01T00:00:09Z"}},
                (Phase.FAILED, "Stopped", 3),
            ),
            (
                {"phase": "Succeeded", "containerStatuses": ended(0, "Completed")},
                {"annotations": {manifests.STOPPED_AT: "2031-01-01T00:00:09Z"}},
                (Phase.SUCCEEDED, "Stopped", 0),
            ),
            # the pod's end was written a moment before its container's
            (
                {"phase": "Failed", "reason": "DeadlineExceeded",
                 "containerStatuses": [{"state": {"running": {"startedAt": "2031-01-01T00:00:00Z"}}}]},
                {"annotations": {manifests.STOPPED_AT: "2031-01-01T00:00:09Z"}},
                (Phase.RUNNING, "Stopped", None),
            ),
            (
                {"phase": "Failed", "reason": "DeadlineExceeded",
                 "containerStatuses": [{"state": {"waiting": {"reason": "ErrImagePull"}}}]},
                {"annotations": {manifests.STOPPED_AT: "2031-01-01T00:00:09Z"}},
                (Phase.FAILED, "Stopped", None),
            ),
            # waiting, and why
            (
                {"phase": "Pending", "containerStatuses": [{"state": {"waiting": {"reason": "ImagePullBackOff"}}}]},
                {},
                (Phase.PENDING, "ImagePullBackOff", None),
            ),
            (
                {"phase": "Pending", "containerStatuses": [{"state": {"waiting": {"reason": "ContainerCreating"}}}]},
                {},
                (Phase.PENDING, "", None),
            ),
            (
                {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]},
                {"node": ""},
                (Phase.PENDING, "Unschedulable", None),
            ),
            ({"phase": "Pending"}, {"node": "", "deletionTimestamp": "2031-01-01T00:00:40Z"}, (Phase.LOST, "Deleted", None)),
        ],
    )  # fmt: skip
    def test_phase_reason_and_exit_code_follow_from_the_status_of_the_pod(
        self, status: dict[str, Any], metadata: dict[str, Any], expected: tuple[Phase, str, int | None]
    ) -> None:
        assert outcome_of(status, **metadata) == expected

    def test_times_and_cards_are_read(self) -> None:
        manifest = manifests.pod(spec(), OPTIONS)
        state = {"running": {"startedAt": "2031-01-01T00:00:00Z"}}
        device = [{"name": "nvidia.com/gpu", "resources": [{"resourceID": "GPU-1"}, {"resourceID": "GPU-2"}]}]
        manifest["status"] = {
            "phase": "Running",
            "containerStatuses": [{"state": state, "allocatedResourcesStatus": device}],
        }
        run = pod_status.observed(manifest)
        assert run.started_at is not None
        assert (run.started_at.isoformat(), run.finished_at) == ("2031-01-01T00:00:00+00:00", None)
        assert run.cards == ("GPU-1", "GPU-2")

    def test_container_that_never_started_has_no_start(self) -> None:
        manifest = manifests.pod(spec(), OPTIONS)
        manifest["metadata"]["uid"] = "u1"
        manifest["status"] = {"phase": "Failed", "containerStatuses": ended(128, "StartError")}
        manifest["status"]["containerStatuses"][0]["state"]["terminated"]["startedAt"] = "1970-01-01T00:00:00Z"
        run = pod_status.observed(manifest)
        assert (run.phase, run.reason, run.exit_code, run.started_at) == (Phase.FAILED, "StartError", 128, None)
        assert run.finished_at is not None
