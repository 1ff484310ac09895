"""The objects of gangs and services, without a cluster."""

from __future__ import annotations

from typing import Any

import pytest

from tests.workloads.kubernetes.test_manifests import spec
from workloads.kubernetes import manifests
from workloads.kubernetes.manifests import GATE, Options, Unsupported
from workloads.runtime.base import PodPlacement, RunRef, RunSpec
from workloads.runtime.setups import Setup

OWNER = {"apiVersion": "batch/v1", "kind": "Job", "name": "w-7-1", "uid": "u-1"}


def gang(template: str = "torch", **setup: Any) -> RunSpec:
    places = (PodPlacement(0, "n1", (0,)), PodPlacement(1, "n2", (3,)))
    made = Setup(template=template, parameter_servers=1, **setup)
    return spec(
        kind="distributed",
        pods=2,
        placement=places,
        setup=made,
        ref=RunRef("w-7-1", "gqp-vision", "s-7", "distributed"),
    )


def served(**changes: Any) -> RunSpec:
    return spec(kind="service", port=8000, token="t", setup=Setup(port=8000, **changes))


class TestJob:
    def test_lets_no_controller_start_a_rank_twice_or_delete_the_others(self) -> None:
        body = manifests.job(gang(), Options())["spec"]
        assert (body["completionMode"], body["completions"], body["parallelism"]) == ("Indexed", 2, 2)
        assert (body["backoffLimitPerIndex"], body["podReplacementPolicy"]) == (0, "Failed")
        assert "backoffLimit" not in body
        assert body["template"]["spec"]["restartPolicy"] == "Never"
        assert body["template"]["metadata"]["finalizers"] == [manifests.FINALIZER]

    def test_waits_behind_a_gate_and_each_rank_gets_its_own_node_and_variables(self) -> None:
        made = manifests.job(gang(), Options())["spec"]["template"]["spec"]
        assert made["schedulingGates"] == [{"name": GATE}]
        assert "affinity" not in made
        pins = [manifests.pin(gang(), rank, Options()) for rank in (0, 1)]
        nodes = [
            pin["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
            [0]["matchFields"][0]["values"]
            for pin in pins
        ]  # fmt: skip
        assert nodes == [["n1"], ["n2"]]
        assert [pin["spec"]["schedulingGates"] for pin in pins] == [None, None]
        told = {each["name"]: each for each in made["containers"][0]["env"]}
        path = told["RANK"]["valueFrom"]["fieldRef"]["fieldPath"]
        assert [path.split("'")[1] in pin["metadata"]["annotations"] for pin in pins] == [True, True]
        assert told["MASTER_ADDR"]["value"] == "w-7-1-0.w-7-1"

    def test_of_mpi_has_its_hostfile_as_a_file(self) -> None:
        made = manifests.job(gang("mpi"), Options())["spec"]["template"]
        [notices] = [volume for volume in made["spec"]["volumes"] if volume["name"] == "notices"]
        assert [item["path"] for item in notices["downwardAPI"]["items"]] == ["reclaim-at", "hostfile", "mpi"]
        assert any("w-7-1-1.w-7-1 slots=" in text for text in made["metadata"]["annotations"].values())

    def test_has_a_name_for_every_rank_before_it_is_ready(self) -> None:
        made = manifests.service(gang(), OWNER, Options())
        assert (made["spec"]["clusterIP"], made["spec"]["publishNotReadyAddresses"]) == ("None", True)
        assert made["metadata"]["ownerReferences"] == [OWNER]

    def test_asks_for_rdma_only_where_it_is_offered(self) -> None:
        made = manifests.job(gang(rdma=2), Options(rdma_resource="rdma/hca"))
        [container] = made["spec"]["template"]["spec"]["containers"]
        assert container["resources"]["limits"]["rdma/hca"] == "2"
        with pytest.raises(Unsupported, match="rdma_resource"):
            manifests.job(gang(rdma=2), Options())


class TestService:
    def test_is_one_pod_that_is_never_there_twice(self) -> None:
        made = manifests.deployment(served(ready_path="/healthz"), Options())
        assert (made["spec"]["replicas"], made["spec"]["strategy"]) == (1, {"type": "Recreate"})
        body = made["spec"]["template"]["spec"]
        assert body["restartPolicy"] == "Always"
        assert body["containers"][0]["readinessProbe"]["httpGet"] == {"path": "/healthz", "port": "http"}
        assert "finalizers" not in made["spec"]["template"]["metadata"]

    def test_without_a_path_is_ready_when_it_listens(self) -> None:
        [container] = manifests.deployment(served(), Options())["spec"]["template"]["spec"]["containers"]
        assert container["readinessProbe"]["tcpSocket"] == {"port": "http"}

    @pytest.mark.parametrize(("seconds", "told"), [(5, True), (0, False)])
    def test_is_told_its_ready_file_where_somebody_looks_for_it(self, seconds: int, told: bool) -> None:
        made = manifests.deployment(served(), Options(ready_probe_seconds=seconds))["spec"]["template"]["spec"]
        names = {variable["name"] for variable in made["containers"][0]["env"]}
        assert ("PORTAL_READY_FILE" in names, "PORTAL_READY_URL" in names) == (told, True)

    @pytest.mark.parametrize(
        ("options", "kind"),
        [({"ingress_class": "nginx"}, "Ingress"), ({"gateway": "infra/public"}, "HTTPRoute")],
    )
    def test_is_led_to_as_the_cluster_says(self, options: dict[str, str], kind: str) -> None:
        found = Options.from_json({"service_domain": "gpu.example.org"} | options)
        made = manifests.route(served(), OWNER, found)
        assert made is not None
        assert made["kind"] == kind
        host = f"{served().workload_id}.gpu.example.org"
        assert host in str(made["spec"])
        assert manifests.url_of(served().workload_id, found) == f"https://{host}/"

    def test_has_no_way_in_from_outside_unless_the_cluster_has_one(self) -> None:
        assert manifests.route(served(), OWNER, Options()) is None
        with pytest.raises(ValueError, match="service_domain needs one of"):
            Options.from_json({"service_domain": "gpu.example.org"})
