"""Changing a node's mode, from notice to verification. The cluster is a node object in memory; the tests simulate NVIDIA's
mig-manager and device plugin, which write labels and resources, by calling `mig_manager` and `device_plugin`."""

from __future__ import annotations

import contextlib
import copy
import datetime as dt
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from portal.access import Actor, NotVisible
from portal.errors import Invalid
from portal.models import AuditEntry, User
from quotas.models import Claim, ClaimState, Cluster, Node, OutsidePod, Pool
from quotas.planning import claims
from quotas.planning.run_pass import run_pass
from tests import builders as make
from workloads import sharing
from workloads.mode_lifecycle import Stage
from workloads.models import ModeChange
from workloads.nodes import inventory
from workloads.nodes.modes import actions, changes, previews
from workloads.nodes.modes.mig_layouts import layout_of
from workloads.nodes.modes.recipes import Target, named_layouts
from workloads.runtime.base import Unreachable
from workloads.status.status_line import being_changed

pytestmark = pytest.mark.django_db
DATA = Path(__file__).parents[2] / "cluster/data/kwok_gpu_nodes.yaml"
TABLE, NAME = "A100-80GB", "dgx-a100-80-whole-0"
BALANCED = named_layouts(TABLE)["all-balanced"]


class OneNode:
    """Driver and keeper of a cluster with one node, which is discovered like a Kubernetes node."""

    def __init__(self) -> None:
        documents = yaml.safe_load_all(DATA.read_text())
        self.node = copy.deepcopy(next(d for d in documents if d and d["metadata"]["name"] == NAME))
        self.configs: dict[str, dict[str, str]] = {}
        self.restarts = 0
        self.unreachable = False

    def _require_reachable(self) -> None:
        if self.unreachable:
            raise Unreachable("no response")

    def nodes(self) -> tuple[Any, ...]:
        self._require_reachable()
        found = sharing.discover(self.node)
        return (found,) if found else ()

    def labels(self, node: str) -> dict[str, str]:
        self._require_reachable()
        return dict(self.node["metadata"]["labels"])

    def set_labels(self, node: str, labels: Mapping[str, str | None]) -> None:
        self._require_reachable()
        for name, value in labels.items():
            if value is None:
                self.node["metadata"]["labels"].pop(name, None)
            else:
                self.node["metadata"]["labels"][name] = value

    def may_write(self, which: str) -> bool:
        return True

    def config(self, which: str) -> dict[str, str]:
        self._require_reachable()
        return dict(self.configs.get(which, {}))

    def write_config(self, which: str, data: Mapping[str, str]) -> None:
        self._require_reachable()
        self.configs[which] = {**self.configs.get(which, {}), **data}

    def restarted(self, which: str, node: str, since: dt.datetime) -> bool:
        self._require_reachable()
        self.restarts += 1
        return self.restarts > 1

    # simulated operands of NVIDIA's GPU Operator

    def mig_manager(self, state: str, instances: Mapping[str, int] | None = None, cards: int = 0) -> None:
        labels = self.node["metadata"]["labels"]
        labels["nvidia.com/mig.config.state"] = state
        if instances is None:
            return
        amounts = {f"nvidia.com/mig-{name}": str(count) for name, count in instances.items()}
        self._set_resources({"nvidia.com/gpu": str(cards), **amounts})
        labels["nvidia.com/mig.strategy"] = "mixed"

    def device_plugin(self, strategy: str, replicas: int, renamed: bool = True) -> None:
        labels = self.node["metadata"]["labels"]
        labels |= {"nvidia.com/gpu.sharing-strategy": strategy, "nvidia.com/gpu.replicas": str(replicas)}
        total = str(8 * replicas)
        self._set_resources(
            {"nvidia.com/gpu": "0", "nvidia.com/gpu.shared": total} if renamed else {"nvidia.com/gpu": total}
        )

    def _set_resources(self, amounts: Mapping[str, str]) -> None:
        for of in ("capacity", "allocatable"):
            plain = {k: v for k, v in self.node["status"][of].items() if not k.startswith("nvidia.com/")}
            self.node["status"][of] = plain | dict(amounts)


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> OneNode:
    machine = OneNode()
    make.cluster("gpu")
    monkeypatch.setattr(inventory, "driver_for", lambda _cluster: machine)
    for module in (changes, actions):
        monkeypatch.setattr(module, "keeper_for", lambda _cluster: machine)
    inventory.refresh(Cluster.objects.get())
    return machine


@pytest.fixture
def operator() -> Actor:
    return Actor(make.user("op", is_operator=True))


def the_node() -> Node:
    return Node.objects.select_related("cluster").get()


def pool() -> Pool:
    return Pool.objects.get(sharing="whole")


def to_mig(config: str = "all-balanced") -> Target:
    return Target("mig", config=config, layouts=(named_layouts(TABLE)[config],) * 8, mig=TABLE)


def tick(after: float = 0) -> ModeChange:
    changes.advance_all(now=timezone.now() + dt.timedelta(seconds=after))
    return ModeChange.objects.latest("pk")


def running_claim(units: int = 2, **fields: Any) -> Claim:
    vision = make.department()
    make.quota(vision, pool(), 2)
    place = [{"pod": 0, "node": NAME, "cards": list(range(units))}]
    return make.holding(vision, pool(), own=units, placement=place, notice=600, grace=60, **fields)


def test_workloads_on_the_node_get_notice_and_no_new_ones_start_there(cluster: OneNode, operator: Actor) -> None:
    claim = running_claim()
    change = actions.start(actor=operator, node=the_node(), target=to_mig())
    claim.refresh_from_db()
    assert (claim.state, claim.preempted_for) == (ClaimState.LEAVING, None)
    assert claim.leave_by is not None
    assert 595 <= (claim.leave_by - timezone.now()).total_seconds() <= 600
    assert the_node().drained
    assert being_changed(claim) == NAME, "its page can name the node whose mode is being changed"
    waiting = make.claim(claim.department, pool(), 1)
    run_pass(group_id=pool().group_id)
    waiting.refresh_from_db()
    claim.refresh_from_db()
    assert waiting.state == ClaimState.PENDING
    assert claim.state == ClaimState.LEAVING, "the planning pass does not withdraw the notice"
    assert tick().stage == Stage.DRAINING
    assert change.deadline is not None


def test_new_capacity_counts_only_once_the_node_offers_it(cluster: OneNode, operator: Actor) -> None:
    actions.start(actor=operator, node=the_node(), target=to_mig())
    assert tick().stage == Stage.VERIFYING
    assert cluster.labels(NAME)["nvidia.com/mig.config"] == "all-balanced"
    cluster.mig_manager("pending", {}, cards=0)
    assert tick().stage == Stage.VERIFYING
    assert "mig.config.state is pending" in the_node().held_back
    cluster.mig_manager("success", {"1g.10gb": 16, "2g.20gb": 8, "3g.40gb": 8})
    assert tick().stage == Stage.DONE
    node = the_node()
    assert (node.drained, node.sharing, node.held_back) == (False, "mig", "")
    assert Pool.objects.get(sharing="mig").nominal == 64
    assert pool().nominal == 0
    stages = AuditEntry.objects.filter(action__startswith="node.mode").order_by("pk").values_list("action", flat=True)
    assert list(stages) == [
        "node.mode_change_asked", "node.mode_applying", "node.mode_verifying", "node.mode_done",
    ]  # fmt: skip


def test_failed_mode_change_is_reverted(cluster: OneNode, operator: Actor) -> None:
    before = cluster.labels(NAME)
    actions.start(actor=operator, node=the_node(), target=to_mig())
    tick()
    cluster.mig_manager("pending", {}, cards=0)
    tick()
    cluster.mig_manager("failed")
    assert tick().stage == Stage.REVERTING
    assert cluster.labels(NAME)["nvidia.com/mig.config"] == before["nvidia.com/mig.config"]
    cluster.mig_manager("success", {}, cards=8)
    change = tick()
    assert change.stage == Stage.REVERTED
    assert "fault" in change.message
    assert not the_node().drained


def test_state_label_left_by_an_earlier_change_is_not_taken_as_the_result(cluster: OneNode, operator: Actor) -> None:
    cluster.mig_manager("failed")
    inventory.refresh(Cluster.objects.get())
    actions.start(actor=operator, node=the_node(), target=to_mig())
    assert tick().stage == Stage.VERIFYING, "mig-manager has not looked yet"
    assert tick(after=61).stage == Stage.REVERTED, (
        "the label stays as it was: reverted to the former mode, which had failed too"
    )


def test_change_without_result_is_reverted_and_a_revert_without_result_keeps_the_node_drained(
    cluster: OneNode, operator: Actor
) -> None:
    actions.start(actor=operator, node=the_node(), target=to_mig())
    tick()
    cluster.mig_manager("pending", {}, cards=0)
    assert tick(after=29 * 60).stage == Stage.VERIFYING
    assert tick(after=31 * 60).stage == Stage.REVERTING
    change = tick(after=62 * 60)
    assert change.stage == Stage.FAILED
    assert the_node().drained, "neither the new nor the former mode: an operator has to look"


def test_cancelling_during_the_drain_withdraws_all_recalls(cluster: OneNode, operator: Actor) -> None:
    claim = running_claim()
    change = actions.start(actor=operator, node=the_node(), target=to_mig())
    tick()
    actions.cancel(actor=operator, change=change)
    assert tick().stage == Stage.CANCELLED
    claim.refresh_from_db()
    assert (claim.state, claim.leave_by) == (ClaimState.HOLDING, None)
    assert not the_node().drained
    assert cluster.labels(NAME)["nvidia.com/mig.config"] == "all-disabled", "nothing was written"
    with pytest.raises(actions.TooLate):
        actions.cancel(actor=operator, change=change)


def test_cancelling_after_the_labels_were_written_reverts_them(cluster: OneNode, operator: Actor) -> None:
    change = actions.start(actor=operator, node=the_node(), target=to_mig())
    tick()
    actions.cancel(actor=operator, change=change)
    assert tick().stage == Stage.REVERTED  # mig-manager has not begun: the node is as it was
    assert cluster.labels(NAME)["nvidia.com/mig.config"] == "all-disabled"


def test_change_waits_for_the_end_of_non_preemptible_workloads(cluster: OneNode, operator: Actor) -> None:
    claim = running_claim(preemptible=False)
    actions.start(actor=operator, node=the_node(), target=to_mig())
    change = tick(after=24 * 3600)
    assert (change.stage, change.deadline) == (Stage.DRAINING, None)
    claim.refresh_from_db()
    assert claim.state == ClaimState.HOLDING
    claims.release(claim, now=timezone.now())
    assert tick().stage == Stage.VERIFYING


def test_change_waits_for_pods_outside_quota_and_never_stops_them(
    cluster: OneNode, operator: Actor, client: Client
) -> None:
    stranger = OutsidePod.objects.create(node=the_node(), pool=pool(), uid="u", namespace="legacy", name="a", units=2)
    change = actions.start(actor=operator, node=the_node(), target=to_mig())
    change = tick(after=86_400)
    assert (change.stage, change.deadline) == (Stage.DRAINING, None)
    assert change.written_at is None
    assert cluster.labels(NAME).get("nvidia.com/mig.config") != "all-balanced"
    client.force_login(User.objects.get(username="op"))
    page = client.get(reverse("workloads:mode_change", args=[change.public_id])).content.decode()
    assert "1 pod outside the quota uses cards of this node" in page
    stranger.delete()
    assert tick().stage == Stage.VERIFYING


def test_change_to_time_slicing_writes_config_restarts_plugin_labels_node_and_verifies(
    cluster: OneNode, operator: Actor
) -> None:
    cluster.configs["plugin"] = {"default": "version: v1\n"}
    actions.start(actor=operator, node=the_node(), target=Target("timeslicing", replicas=4))
    assert tick().stage == Stage.APPLYING
    assert set(cluster.configs["plugin"]) == {"default", "timeslicing-4-renamed"}
    assert "nvidia.com/device-plugin.config" not in cluster.labels(NAME), "its plugin has not read it yet"
    assert tick().stage == Stage.VERIFYING
    assert cluster.labels(NAME)["nvidia.com/device-plugin.config"] == "timeslicing-4-renamed"
    cluster.device_plugin("time-slicing", 4)
    assert tick().stage == Stage.DONE
    assert Pool.objects.get(sharing="timeslicing").nominal == 32


def test_change_continues_when_an_unreachable_cluster_responds_again(cluster: OneNode, operator: Actor) -> None:
    change = actions.start(actor=operator, node=the_node(), target=to_mig())
    cluster.unreachable = True
    change = tick()
    assert (change.stage, change.message) == (Stage.APPLYING, "no response")
    cluster.unreachable = False
    assert tick().stage == Stage.VERIFYING


def test_only_operators_can_change_modes_and_only_one_change_per_node_at_a_time(
    cluster: OneNode, operator: Actor
) -> None:
    with pytest.raises(NotVisible):
        actions.start(actor=Actor(make.user("eve")), node=the_node(), target=to_mig())
    actions.start(actor=operator, node=the_node(), target=to_mig())
    with pytest.raises(actions.ChangeUnderWay):
        actions.start(actor=operator, node=the_node(), target=to_mig())


@pytest.mark.parametrize(
    ("target", "field"),
    [
        (Target("mig", layouts=(layout_of({"3g.40gb": 2, "1g.10gb": 1}),) * 8, mig=TABLE), "layouts"),
        (Target("mig", layouts=(BALANCED,) * 3, mig=TABLE), "layouts"),
        (Target("mig", layouts=(BALANCED,) * 8, mig="A30"), "mode"),
        (Target("timeslicing", replicas=1), "replicas"),
        (Target("mps", replicas=1000), "replicas"),
        (Target("banana"), "mode"),
    ],
)
def test_impossible_target_is_refused_before_any_workload_gets_notice(
    cluster: OneNode, operator: Actor, target: Target, field: str
) -> None:
    claim = running_claim()
    with pytest.raises(Invalid) as error:
        actions.start(actor=operator, node=the_node(), target=target)
    assert error.value.field == field
    claim.refresh_from_db()
    assert (claim.state, the_node().drained) == (ClaimState.HOLDING, False)


class Killed(BaseException):
    pass


@pytest.mark.parametrize("at", range(12))
def test_process_killed_at_any_cluster_call_is_resumed_by_the_next_tick(
    cluster: OneNode, operator: Actor, at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = {"left": at}

    def kill_in(name: str) -> None:
        original = getattr(cluster, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            calls["left"] -= 1
            if calls["left"] == -1:
                raise Killed
            return original(*args, **kwargs)

        monkeypatch.setattr(cluster, name, call)

    actions.start(actor=operator, node=the_node(), target=Target("timeslicing", replicas=4))
    for name in ("labels", "set_labels", "config", "write_config", "restarted", "nodes"):
        kill_in(name)
    for turn in range(8):
        with contextlib.suppress(Killed):
            changes.advance_all()
        if turn == 4:
            cluster.device_plugin("time-slicing", 4)
    assert ModeChange.objects.get().stage == Stage.DONE
    assert list(cluster.configs["plugin"]) == ["timeslicing-4-renamed"]


def test_proposal_serves_the_queue_and_its_preview_lists_the_workloads_to_recall(
    cluster: OneNode, operator: Actor
) -> None:
    cluster.mig_manager("success", {"1g.10gb": 56})
    inventory.refresh(Cluster.objects.get())
    slices = Pool.objects.get(sharing="mig")
    vision = make.department("vision")
    make.quota(vision, slices, 40)
    for _ in range(3):
        make.claim(vision, slices, 4, profile="3g.40gb")
    running = make.claim(
        vision, slices, 1, ClaimState.HOLDING, profile="1g.10gb", placement=[{"pod": 0, "node": NAME, "cards": []}]
    )
    node = the_node()
    assert [(d.profile, d.inside, d.other) for d in previews.demand_on(node, TABLE)] == [
        ("1g.10gb", 1, 0), ("3g.40gb", 3, 0),
    ]  # fmt: skip
    per_card = previews.proposal_for(node, TABLE, each_its_own=True)
    assert (per_card.inside, len(per_card.changed)) == (13, 2), "two cards change their layout, six keep it"
    uniform = previews.proposal_for(node, TABLE, each_its_own=False)
    assert (uniform.config, uniform.inside) == ("all-balanced", 13)
    preview = previews.preview(node, Target("mig", layouts=per_card.layouts, mig=TABLE), cluster)  # type: ignore[arg-type]
    assert [each.claim.public_id for each in preview.leavers] == [running.public_id]
    assert preview.entry is not None
    assert any(line.startswith("+") and "3g.40gb" in line for line in preview.diff)
