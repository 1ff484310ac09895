"""Mode changes on a real API server, with the rights of rbac.nodeChanges in deploy/helm. KWOK's nodes have no operands:
the test simulates mig-manager, the device plugin and its DaemonSet by writing what they write."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from tests.clusters import realcluster
from tests.clusters.beds import eventually
from tests.clusters.realcluster import CHART, ROOT, Admin
from workloads.kubernetes.driver import Connection, KubernetesCluster
from workloads.nodes.modes.recipes import ConfigEntry, Target, is_as_wanted, named_layouts, recipe, with_entry
from workloads.runtime.base import Refused

pytestmark = pytest.mark.cluster
RIGHTS = ("cluster.yaml", "node-changes.yaml", "node-changes-configuration.yaml")
MERGE = "application/merge-patch+json"
PLUGIN = {"app": "nvidia-device-plugin-daemonset"}


@pytest.fixture
def node(admin: Admin) -> Iterator[str]:
    """A separate node with eight whole A100, as NVIDIA's operands describe them."""
    data = yaml.safe_load_all((ROOT / "tests/cluster/data/kwok_gpu_nodes.yaml").read_text())
    document = next(d for d in data if d and d["metadata"]["name"] == "dgx-a100-80-whole-0")
    name = document["metadata"]["name"] = realcluster.unique("mode")
    document["metadata"].get("labels", {}).pop("kubernetes.io/hostname", None)
    assert admin.call("POST", "/api/v1/nodes", document)["kind"] == "Node"
    status = {"status": {of: document["status"][of] for of in ("capacity", "allocatable")}}
    admin.call("PATCH", f"/api/v1/nodes/{name}/status", status, MERGE)
    yield name
    admin.call("DELETE", f"/api/v1/nodes/{name}")


@pytest.fixture
def driver(admin: Admin) -> Iterator[KubernetesCluster]:
    """A driver with all these rights."""
    rules = [rule for file in RIGHTS for rule in yaml.safe_load((CHART / "rights" / file).read_text())]
    admin.call("POST", "/api/v1/namespaces", {"metadata": {"name": "gpu-operator"}})
    maps = f"gpu-operator/{realcluster.unique('plugin')}"
    with admin.account(rules) as account:
        options = {"plugin_config": maps, "tolerations": [{"key": "kwok.x-k8s.io/node", "operator": "Exists"}]}
        driver = KubernetesCluster(realcluster.unique("modes"), Connection(account, options))
        yield driver
        admin.call("DELETE", f"/api/v1/namespaces/gpu-operator/configmaps/{maps.partition('/')[2]}")
        driver.api.close()


def listed_node(driver: KubernetesCluster, name: str) -> Any:
    return next(info for info in driver.nodes() if info.name == name)


def offer(admin: Admin, name: str, amounts: dict[str, str]) -> None:
    """Sets the node's resources as the device plugin makes the kubelet report them."""
    status = {"status": dict.fromkeys(("capacity", "allocatable"), amounts)}
    admin.call("PATCH", f"/api/v1/nodes/{name}/status", status, MERGE)


def test_mig_change_is_followed_from_pending_to_success(admin: Admin, driver: KubernetesCluster, node: str) -> None:
    layouts = (named_layouts("A100-80GB")["all-balanced"],) * 8
    target = Target("mig", config="all-balanced", layouts=layouts, mig="A100-80GB")
    keeper = driver.keeper()
    labels = recipe(target, keeper.labels(node)).labels
    assert labels == {"nvidia.com/mig.config": "all-balanced"}
    keeper.set_labels(node, labels)
    state = "nvidia.com/mig.config.state"
    offer(admin, node, {"nvidia.com/gpu": "0"})
    keeper.set_labels(node, {state: "pending"})
    info = listed_node(driver, node)
    assert (info.sharing, info.held_back) == ("mig", "mig.config.state is pending")
    offer(admin, node, {"nvidia.com/mig-1g.10gb": "16", "nvidia.com/mig-2g.20gb": "8", "nvidia.com/mig-3g.40gb": "8"})
    keeper.set_labels(node, {state: "success"})
    info = listed_node(driver, node)
    assert is_as_wanted(
        target, system=info.sharing, held_back=info.held_back, labels=info.labels, instances=info.instances,
        units_per_card=8,
    )  # fmt: skip


def test_time_slicing_is_verified_after_the_plugin_pod_has_restarted(
    admin: Admin, driver: KubernetesCluster, node: str
) -> None:
    keeper, target = driver.keeper(), Target("timeslicing", replicas=4)
    wanted = recipe(target, keeper.labels(node))
    assert isinstance(wanted.entry, ConfigEntry)
    assert keeper.config("plugin") == {}
    keeper.write_config("plugin", with_entry(wanted.entry, {}))
    assert keeper.config("plugin") == {wanted.entry.key: wanted.entry.text}
    old = plugin_pod(admin, node)
    since = dt.datetime.now(dt.UTC) + dt.timedelta(seconds=1)
    assert not keeper.restarted("plugin", node, since), "the old pod still reads the configuration mounted at its start"
    eventually(lambda: admin.call("GET", old).get("code") == 404)
    eventually(lambda: dt.datetime.now(dt.UTC) > since)
    fresh = plugin_pod(admin, node)
    eventually(lambda: keeper.restarted("plugin", node, since))
    keeper.set_labels(node, wanted.labels)
    keeper.set_labels(node, {"nvidia.com/gpu.sharing-strategy": "time-slicing", "nvidia.com/gpu.replicas": "4"})
    offer(admin, node, {"nvidia.com/gpu": "0", "nvidia.com/gpu.shared": "32"})
    info = listed_node(driver, node)
    assert (info.sharing, info.units_per_card, info.held_back) == ("timeslicing", 4, "")
    keeper.set_labels(node, {"nvidia.com/device-plugin.config": None})
    assert "nvidia.com/device-plugin.config" not in keeper.labels(node)
    admin.call("DELETE", fresh, {"gracePeriodSeconds": 0})


def plugin_pod(admin: Admin, node: str) -> str:
    """Creates a pod as the plugin's DaemonSet does, and returns its path."""
    name = realcluster.unique("plugin")
    body = {
        "metadata": {"name": name, "labels": PLUGIN},
        "spec": {
            "nodeName": node,
            "containers": [{"name": "main", "image": "none"}],
            "tolerations": [{"operator": "Exists"}],
        },
    }
    assert admin.call("POST", "/api/v1/namespaces/gpu-operator/pods", body)["kind"] == "Pod"
    return f"/api/v1/namespaces/gpu-operator/pods/{name}"


def test_missing_right_is_named_in_the_refusal(admin: Admin, portal_account: str, node: str) -> None:
    driver = KubernetesCluster(realcluster.unique("modes"), Connection(portal_account, {}))

    def refused() -> str:
        try:
            driver.keeper().set_labels(node, {"x": "y"})
        except Refused as error:
            return error.detail
        return ""

    assert "cannot patch resource" in eventually(refused)
    driver.api.close()
