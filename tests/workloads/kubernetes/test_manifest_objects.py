"""The objects that go with pods, and how an operator's options change them, without a cluster."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.workloads.kubernetes.test_gang_manifests import gang, served
from tests.workloads.kubernetes.test_manifests import container, env, spec
from workloads.kubernetes import manifests
from workloads.kubernetes.manifests import Options, files, namespace_limits
from workloads.kubernetes.manifests.namespaces import marks_of
from workloads.kubernetes.manifests.options import OF_CLUSTER, OF_SHARING
from workloads.runtime.base import Home, SharedVolume, VolumeRef, volume_of
from workloads.runtime.places import DEPARTMENT_VOLUME, USER_VOLUME

VOLUME = VolumeRef("w-one", "gqp-vision", "one", "vision", "alice@example.org")
SHARED = (SharedVolume("department", DEPARTMENT_VOLUME), SharedVolume("user-7", USER_VOLUME, "alice@example.org"))
COMMON_LABELS = {
    "app.kubernetes.io/instance": "east",
    "app.kubernetes.io/managed-by": "gpu-quota-portal",
    "gpu-quota-portal/department": "vision",
}


class TestAPod:
    def test_has_the_pull_secrets_and_runtime_class_of_the_operators_options(self) -> None:
        plain = manifests.pod(spec(), Options())["spec"]
        assert not {"imagePullSecrets", "runtimeClassName", "schedulerName"} & set(plain)
        manifest = manifests.pod(spec(), Options(image_pull_secrets=("harbor",), runtime_class="nvidia"))["spec"]
        assert (manifest["imagePullSecrets"], manifest["runtimeClassName"]) == ([{"name": "harbor"}], "nvidia")

    def test_uses_the_scheduler_of_its_sharing_system(self) -> None:
        request = spec(sharing="volcano", units_per_pod=1024, product="")
        assert manifests.pod(request, Options())["spec"]["schedulerName"] == "volcano"

    def test_without_a_command_runs_that_of_its_image(self) -> None:
        assert container(manifests.pod(spec(), Options()))["command"] == ["python", "train.py"]
        assert "command" not in container(manifests.pod(spec(command=()), Options()))

    def test_names_the_resource_claim_of_its_cards_which_is_created_with_it(self) -> None:
        manifest = manifests.pod(spec(sharing="dra"), Options(instance="east"))
        claims = [{"name": "gpu", "resourceClaimTemplateName": "w-one-1"}]
        assert manifest["spec"]["resourceClaims"] == claims
        assert container(manifest)["resources"]["claims"] == [{"name": "gpu"}]
        [beside] = manifests.beside(spec(sharing="dra"), Options(instance="east"))
        assert (beside["kind"], beside["metadata"]["name"]) == ("ResourceClaimTemplate", "w-one-1")
        assert beside["metadata"]["namespace"] == "gqp-vision"
        assert beside["metadata"]["labels"] == manifest["metadata"]["labels"]
        assert manifests.beside(spec(), Options()) == ()

    def test_mounts_shared_volumes_and_has_their_paths_as_variables(self) -> None:
        manifest = manifests.pod(spec(shared_volumes=SHARED), Options())
        claims = {v["name"]: v.get("persistentVolumeClaim") for v in manifest["spec"]["volumes"]}
        assert (claims["department"], claims["user"]) == ({"claimName": "department"}, {"claimName": "user-7"})
        mounts = {mount["name"]: mount["mountPath"] for mount in container(manifest)["volumeMounts"]}
        variables = env(manifest)
        assert (variables["PORTAL_DEPARTMENT_DIR"], variables["PORTAL_USER_DIR"]) == (
            mounts["department"],
            mounts["user"],
        )

    def test_of_a_gang_without_placement_only_loses_its_gate(self) -> None:
        body = manifests.pin(spec(kind="distributed", pods=2, units_per_pod=0, placement=()), 1, Options())["spec"]
        assert body == {"schedulingGates": None}


class TestAVolumeClaim:
    def test_of_a_working_directory_belongs_to_the_workload_and_not_to_an_attempt(self) -> None:
        manifest = manifests.claim(VOLUME, Options(instance="east", volume_size="5Gi"))
        assert manifest["metadata"]["name"] == "w-one"
        assert manifest["metadata"]["labels"] == COMMON_LABELS | {
            "gpu-quota-portal/workload": "one", "gpu-quota-portal/user": "alice-example.org",
        }  # fmt: skip
        assert manifest["spec"] == {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "5Gi"}}}

    def test_has_the_clusters_storage_class_unless_one_is_named(self) -> None:
        assert "storageClassName" not in manifests.claim(VOLUME, Options())["spec"]
        assert manifests.claim(VOLUME, Options(storage_class="fast"))["spec"]["storageClassName"] == "fast"

    @pytest.mark.parametrize(
        ("volume", "size", "marks"),
        [
            (SHARED[0], "1Ti", {"gpu-quota-portal/role": "department-volume"}),
            (SHARED[1], "9Gi", {"gpu-quota-portal/role": "user-volume", "gpu-quota-portal/user": "alice-example.org"}),
        ],
    )
    def test_that_outlives_workloads_has_its_own_size_and_no_workload_label(
        self, volume: SharedVolume, size: str, marks: dict[str, str]
    ) -> None:
        options = Options(instance="east", department_volume="1Ti", user_volume="9Gi", shared_storage_class="nfs")
        manifest = manifests.shared_claim(volume, spec(), options)
        assert manifest["metadata"] == {"name": volume.name, "namespace": "gqp-vision", "labels": COMMON_LABELS | marks}
        assert manifest["spec"] == {
            "accessModes": ["ReadWriteMany"],
            "resources": {"requests": {"storage": size}},
            "storageClassName": "nfs",
        }


class TestANamespace:
    def test_enforces_restricted_pods_unless_it_is_the_unrestricted_one(self) -> None:
        first = manifests.namespace("gqp-vision", "vision", Options(instance="east"))
        second = manifests.namespace("gqp-vision-p", "vision", Options(instance="east"), unrestricted=True)
        levels = [made["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] for made in (first, second)]
        assert levels == ["restricted", "privileged"]
        assert COMMON_LABELS.items() <= first["metadata"]["labels"].items() & second["metadata"]["labels"].items()

    def test_of_unrestricted_pods_has_an_additional_label(self) -> None:
        first, second = (marks_of("vision", Options(), unrestricted=which) for which in (False, True))
        assert first.items() < second.items()
        assert set(second) - set(first) == {"gpu-quota-portal/level"}

    def test_admits_a_portal_outside_the_cluster_by_its_address(self) -> None:
        options = Options(portal_namespace="", portal_addresses=("10.0.0.0/24",), ingress_namespaces=("nginx",))
        policy = namespace_limits.namespace_objects(Home("gqp-vision", "vision", {}), options)[2]
        *_own, ingress, portal = policy["spec"]["ingress"][0]["from"]
        assert ingress["namespaceSelector"]["matchLabels"] == {"kubernetes.io/metadata.name": "nginx"}
        assert portal == {"ipBlock": {"cidr": "10.0.0.0/24"}}
        assert len(_own) == 2

    def test_has_pods_whose_priority_class_never_preempts(self) -> None:
        manifest = namespace_limits.priority_class(Options(priority=7))
        assert (manifest["value"], manifest["preemptionPolicy"]) == (7, "Never")
        assert manifest["metadata"]["name"] == manifests.pod(spec(), Options())["spec"]["priorityClassName"]


class TestTheFilesPod:
    def test_requires_the_node_with_the_disk_or_prefers_the_nodes_of_runs(self) -> None:
        def affinity(node: str, *nodes: str) -> Any:
            volume = VolumeRef("w-one", "gqp-vision", "one", "vision", "alice", nodes)
            return files.pod(volume, Options(), "", node)["spec"]["affinity"]["nodeAffinity"]

        def on(name: str) -> dict[str, Any]:
            return {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [name]}]}

        assert affinity("n1", "n2") == {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [on("n1")]}
        }
        assert affinity("", "n2", "n3") == {
            "preferredDuringSchedulingIgnoredDuringExecution": [
                {"weight": 1, "preference": on(name)} for name in ("n2", "n3")
            ]
        }

    def test_is_distinguished_from_runs_and_from_pods_of_another_portal(self) -> None:
        manifest = files.pod(VOLUME, Options(instance="east"), "print()")
        assert manifest["metadata"]["name"] == files.name(VOLUME)
        assert files.is_helper(manifest, Options(instance="east"))
        assert not files.is_helper(manifest, Options(instance="west"))
        assert not files.is_helper(manifests.pod(spec(), Options(instance="east")), Options(instance="east"))
        assert not files.is_helper({"metadata": {}}, Options(instance="east"))

    def test_has_its_program_sees_no_card_and_has_a_deadline(self) -> None:
        manifest = files.pod(VOLUME, Options(files_image="registry.example/python"), "print()")
        assert env(manifest) == {"PROGRAM": "print()", "NVIDIA_VISIBLE_DEVICES": "void"}
        assert manifest["spec"]["activeDeadlineSeconds"] == files.DEADLINE
        assert container(manifest)["command"][-2:] == ["keep", str(files.IDLE)]
        assert container(manifest)["image"] == "registry.example/python"
        assert files.command("list", "a b")[-4:] == ("list", "/workdir", "a b", "")

    def test_mounts_the_same_volume_claim_as_the_run(self) -> None:
        volume = volume_of(spec())
        ours, theirs = files.pod(volume, Options(), ""), manifests.pod(spec(), Options())
        assert ours["spec"]["volumes"][0] == theirs["spec"]["volumes"][0]


class TestTheObjectsShownToUsers:
    """All objects of a run, in the order in which the driver creates them."""

    def test_of_a_job_are_its_pod(self) -> None:
        assert manifests.objects(spec(), Options()) == [manifests.pod(spec(), Options())]

    def test_of_a_notebook_are_its_pod_and_its_service(self) -> None:
        pod, service = manifests.objects(spec(kind="notebook", port=8888), Options())
        assert (pod["kind"], service["kind"]) == ("Pod", "Service")
        assert container(pod)["ports"] == [{"name": "http", "containerPort": 8888}]
        assert service["spec"]["ports"] == [{"name": "http", "port": 8888, "targetPort": 8888}]
        assert service["metadata"]["ownerReferences"] == [
            {"apiVersion": "v1", "kind": "Pod", "name": "w-one-1", "uid": "(given by the cluster)"}
        ]

    def test_of_a_gang_are_its_job_service_and_a_patch_for_each_rank(self) -> None:
        objects = manifests.objects(gang(), Options())
        assert [each.get("kind") for each in objects] == ["Job", "Service", None, None]
        assert objects[2:] == [manifests.pin(gang(), rank, Options()) for rank in (0, 1)]

    def test_of_a_service_include_an_ingress_only_where_the_cluster_has_one(self) -> None:
        inside = manifests.objects(served(), Options())
        assert [each["kind"] for each in inside] == ["Deployment", "Service"]
        assert manifests.url_of("one", Options()) == ""
        options = Options(service_domain="gpu.example.org", ingress_class="nginx", tls_secret="wild")
        *_, ingress = manifests.objects(served(), options)
        assert ingress["spec"]["ingressClassName"] == "nginx"
        assert ingress["spec"]["tls"] == [{"hosts": ["one.gpu.example.org"], "secretName": "wild"}]


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        ({"volume_size": 50}, "option volume_size must be a string"),
        ({"run_as": True}, "option run_as must be a whole number"),
        ({"volume": "nfs"}, "option volume must be one of pvc, emptyDir"),
        ({"gpu_mem_unit": "GB"}, "option gpu_mem_unit must be one of GiB, MiB"),
        ({"volcano_memory_factor": 0}, "option volcano_memory_factor must be from 1 to "),
        ({"pins": {"n1": "kay"}}, "option pins.n1 must be one of "),
        ({"products": {"n1": "NVIDIA L20"}}, "option products.n1: "),
        ({"products": {"n1": 20}}, "option products.n1 must be a string"),
        ({"cards": {"n1": 0}}, "option cards.n1: give a number of cards from 1 to 256"),
        ({"cards": {"n1": True}}, "option cards.n1 must be a whole number"),
        ({"cards": {"n1": "4"}}, "option cards.n1 must be a whole number"),
        ({"cards": [4]}, "option cards must be an object"),
        ({"tolerations": [5]}, "option tolerations[0] must be an object"),
        ({"tolerations": [{"key": "a"}, {"key": 5}]}, "option tolerations[1].key must be a string"),
        (
            {"tolerations": [{"operator": "Exists", "tolerationSeconds": "5"}]},
            "option tolerations[0].tolerationSeconds must be",
        ),
        ({"tolerations": [{"key": "a", "keys": "b"}]}, "option tolerations[0].keys is not known"),
        (
            {"tolerations": [{"key": "a", "operator": "In"}]},
            "option tolerations[0].operator must be one of Equal, Exists",
        ),
        (
            {"tolerations": [{"key": "a", "effect": "Never"}]},
            "option tolerations[0].effect must be one of NoSchedule, ",
        ),
        ({"tolerations": [{"value": "a"}]}, "option tolerations[0].key is needed"),
        ({"image_pull_secrets": ["a", 1]}, "option image_pull_secrets[1] must be a string"),
        ({"image_pull_secrets": ["A b"]}, "option image_pull_secrets[0] must be a name as Kubernetes has them"),
        ({"ingress_namespaces": [None]}, "option ingress_namespaces[0] must be a string"),
        ({"egress_addresses": [5]}, "option egress_addresses[0] must be a string"),
        ({"portal_addresses": ["10.0.0.0/8", "x"]}, "option portal_addresses[1]: 'x' is not a network"),
        ({"health_xids": [[79]]}, "option health_xids[0] must be a whole number"),
        ({"health_conditions": {"Gpu*": 1}}, "option health_conditions.Gpu* must be a string"),
        ({"pins": {"n1": ["kai"]}}, "option pins.n1 must be a string"),
        ({"storage_class": "a\0"}, "option storage_class must be one line"),
        ({"priority": 10**400}, "option priority must be from "),
        ({"run_as": 0}, "option run_as must be from 1"),
        ({"volume_size": "50GiB"}, "option volume_size must be a size such as 50Gi"),
        ({"volume_size": ""}, "option volume_size must be a size such as 50Gi, not empty"),
        ({"gateway": "a/b/c"}, "option gateway must be a Gateway as namespace/name"),
        ({"plugin_config": "config"}, "option plugin_config must be a namespace and a name"),
        ({"access_mode": "RWX"}, "option access_mode must be one of ReadWriteOnce"),
    ],
)
def test_invalid_option_is_rejected_with_its_name(typed: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError) as raised:
        Options.from_operator(typed)
    assert str(raised.value).startswith(message)


ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@given(st.dictionaries(st.sampled_from(sorted({*OF_CLUSTER, *OF_SHARING})), ANY_JSON, max_size=2))
def test_options_are_either_rejected_or_result_in_manifests(typed: dict[str, Any]) -> None:
    """Options that were accepted do not fail later, when a worker creates a pod with them."""
    try:
        options = Options.from_operator(typed)
    except ValueError:
        return
    manifests.pod(spec(), options)
    manifests.claim(volume_of(spec()), options)


def test_default_values_and_complete_options_are_accepted() -> None:
    defaults = {key: getattr(Options(), key) for key in OF_CLUSTER}
    assert Options.from_operator(defaults) == Options()
    tolerations = [{"operator": "Exists"}, {"key": "a/b", "value": "c", "effect": "NoExecute", "tolerationSeconds": 5}]
    secrets, sizes = {"image_pull_secrets": ["a", "b.c"]}, {"department_volume": "1.5Ti", "volume_size": "1"}
    fit = {"tolerations": tolerations, "gateway": "infra/public", "storage_class": ""} | secrets | sizes
    assert len(Options.from_operator(fit).tolerations) == 2


def test_options_of_sharing_systems_are_read_together_with_the_others() -> None:
    read = Options.from_json({"pins": {"n1": "kai"}, "cards": {"SharedGPU=true": 4}, "volume": "emptyDir"})
    assert (read.sharing.pins, read.sharing.cards, read.volume) == ({"n1": "kai"}, {"SharedGPU=true": 4}, "emptyDir")
