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
    run_setup = Setup(template=template, parameter_servers=1, **setup)
    return spec(
        kind="distributed",
        pods=2,
        placement=places,
        setup=run_setup,
        ref=RunRef("w-7-1", "gqp-vision", "s-7", "distributed"),
    )


def served(**changes: Any) -> RunSpec:
    return spec(kind="service", port=8000, token="t", setup=Setup(port=8000, **changes))


class TestJob:
    def test_prevents_its_controller_from_restarting_or_deleting_ranks(self) -> None:
        body = manifests.job(gang(), Options())["spec"]
        assert (body["completionMode"], body["completions"], body["parallelism"]) == ("Indexed", 2, 2)
        assert (body["backoffLimitPerIndex"], body["podReplacementPolicy"]) == (0, "Failed")
        assert "backoffLimit" not in body
        assert body["template"]["spec"]["restartPolicy"] == "Never"
        assert body["template"]["metadata"]["finalizers"] == [manifests.FINALIZER]

    def test_is_gated_and_each_rank_gets_its_own_node_and_variables(self) -> None:
        manifest = manifests.job(gang(), Options())["spec"]["template"]["spec"]
        assert manifest["schedulingGates"] == [{"name": GATE}]
        assert "affinity" not in manifest
        pins = [manifests.pin(gang(), rank, Options()) for rank in (0, 1)]
        nodes = [
            pin["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
            [0]["matchFields"][0]["values"]
            for pin in pins
        ]  # fmt: skip
        assert nodes == [["n1"], ["n2"]]
        assert [pin["spec"]["schedulingGates"] for pin in pins] == [None, None]
        variables = {each["name"]: each for each in manifest["containers"][0]["env"]}
        path = variables["RANK"]["valueFrom"]["fieldRef"]["fieldPath"]
        assert [path.split("'")[1] in pin["metadata"]["annotations"] for pin in pins] == [True, True]
        assert variables["MASTER_ADDR"]["value"] == "w-7-1-0.w-7-1"

    def test_of_mpi_mounts_its_hostfile(self) -> None:
        manifest = manifests.job(gang("mpi"), Options())["spec"]["template"]
        [notices] = [volume for volume in manifest["spec"]["volumes"] if volume["name"] == "notices"]
        assert [item["path"] for item in notices["downwardAPI"]["items"]] == ["reclaim-at", "hostfile", "mpi"]
        assert any("w-7-1-1.w-7-1 slots=" in text for text in manifest["metadata"]["annotations"].values())

    def test_has_a_dns_name_for_every_rank_before_it_is_ready(self) -> None:
        manifest = manifests.service(gang(), OWNER, Options())
        assert (manifest["spec"]["clusterIP"], manifest["spec"]["publishNotReadyAddresses"]) == ("None", True)
        assert manifest["metadata"]["ownerReferences"] == [OWNER]

    def test_requests_rdma_only_where_the_cluster_offers_it(self) -> None:
        manifest = manifests.job(gang(rdma=2), Options(rdma_resource="rdma/hca"))
        [container] = manifest["spec"]["template"]["spec"]["containers"]
        assert container["resources"]["limits"]["rdma/hca"] == "2"
        with pytest.raises(Unsupported, match="rdma_resource"):
            manifests.job(gang(rdma=2), Options())


class TestService:
    def test_has_one_pod_that_never_exists_twice_at_a_time(self) -> None:
        manifest = manifests.deployment(served(ready_path="/healthz"), Options())
        assert (manifest["spec"]["replicas"], manifest["spec"]["strategy"]) == (1, {"type": "Recreate"})
        body = manifest["spec"]["template"]["spec"]
        assert body["restartPolicy"] == "Always"
        assert body["containers"][0]["readinessProbe"]["httpGet"] == {"path": "/healthz", "port": "http"}
        assert "finalizers" not in manifest["spec"]["template"]["metadata"]

    def test_without_a_path_is_ready_when_its_port_is_open(self) -> None:
        [container] = manifests.deployment(served(), Options())["spec"]["template"]["spec"]["containers"]
        assert container["readinessProbe"]["tcpSocket"] == {"port": "http"}

    @pytest.mark.parametrize(("seconds", "expected"), [(5, True), (0, False)])
    def test_gets_a_ready_file_only_where_the_cluster_is_probed_for_it(self, seconds: int, expected: bool) -> None:
        manifest = manifests.deployment(served(), Options(ready_probe_seconds=seconds))["spec"]["template"]["spec"]
        names = {variable["name"] for variable in manifest["containers"][0]["env"]}
        assert ("PORTAL_READY_FILE" in names, "PORTAL_READY_URL" in names) == (expected, True)

    @pytest.mark.parametrize(
        ("options", "kind"),
        [({"ingress_class": "nginx"}, "Ingress"), ({"gateway": "infra/public"}, "HTTPRoute")],
    )
    def test_is_exposed_through_the_ingress_or_gateway_of_the_cluster(self, options: dict[str, str], kind: str) -> None:
        found = Options.from_json({"service_domain": "gpu.example.org"} | options)
        manifest = manifests.route(served(), OWNER, found)
        assert manifest is not None
        assert manifest["kind"] == kind
        host = f"{served().workload_id}.gpu.example.org"
        assert host in str(manifest["spec"])
        assert manifests.url_of(served().workload_id, found) == f"https://{host}/"

    def test_is_not_exposed_unless_the_cluster_has_an_ingress_or_gateway(self) -> None:
        assert manifests.route(served(), OWNER, Options()) is None
        with pytest.raises(ValueError, match="service_domain needs one of"):
            Options.from_json({"service_domain": "gpu.example.org"})
