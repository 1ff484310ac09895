"""Every mode change that the demo offers, on each of its nodes: carried out, and reverted if it fails."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from portal.access import Actor
from portal.models import JobRun
from quotas.models import Cluster, Node
from tests import builders as make
from workloads import tasks
from workloads.demo.nodes import NODES
from workloads.mode_lifecycle import Stage
from workloads.models import ModeChange
from workloads.nodes import inventory
from workloads.nodes.modes import actions, changes
from workloads.nodes.modes.declared import DeclaredKeeper, name_of
from workloads.nodes.modes.forms import ModeForm
from workloads.nodes.modes.previews import BEST_EACH, modes_of, target_of
from workloads.nodes.modes.recipes import MODES, Target

pytestmark = pytest.mark.django_db
NAMES = [name_of(node) for node in NODES]


@pytest.fixture
def operator(settings: Any, tmp_path: Any) -> Actor:
    settings.DATA_DIR, settings.DEBUG = tmp_path, True
    inventory.refresh(make.cluster("demo", options={"nodes": NODES}))
    return Actor(make.user("op", is_operator=True))


@pytest.fixture
def browser(operator: Actor) -> Client:
    client = Client()
    assert operator.user is not None
    client.force_login(operator.user, backend="django.contrib.auth.backends.ModelBackend")
    return client


def the_node(name: str) -> Node:
    return Node.objects.select_related("cluster").get(name=name)


def offered(node: Node, mode: str) -> list[dict[str, Any]]:
    """Everything that the form lets an operator choose for a mode."""
    if mode in ("timeslicing", "mps"):
        return [{"mode": mode, "replicas": n, "rename": renamed} for n in (2, 10) for renamed in (True, False)]
    if mode == "mig":
        choices = ModeForm(node=node, may_write_mig=True).fields["config"].choices  # type: ignore[attr-defined]
        return [{"mode": mode, "config": key} for key, _title in choices]
    return [{"mode": mode}]


def change(operator: Actor, name: str, target: Target) -> ModeChange:
    actions.start(actor=operator, node=the_node(name), target=target)
    changes.advance_all()
    return ModeChange.objects.latest("pk")


def shape(name: str) -> tuple[Any, ...]:
    node = the_node(name)
    cards = sorted(node.cards.values_list("index", "units", "cores", "healthy"))
    return node.sharing, node.product, node.instances, node.labels, node.held_back, node.drained, cards


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", NAMES)
def test_every_node_can_change_to_every_mode_and_back(operator: Actor, name: str, mode: str) -> None:
    assert set(modes_of(the_node(name))) >= set(MODES) - {"mig"}
    if mode not in modes_of(the_node(name)):
        assert name.startswith("t4"), "a T4 has no MIG"
        return
    for choice in offered(the_node(name), mode):
        done = change(operator, name, target_of(the_node(name), **choice))
        assert (done.stage, done.message) == (Stage.DONE, ""), choice
        node = the_node(name)
        assert (node.sharing, node.drained) == (mode, False)
        assert not node.held_back
        back = change(operator, name, Target("whole"))
        assert (back.stage, the_node(name).sharing) == (Stage.DONE, "whole"), choice


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", NAMES)
def test_failed_mode_change_restores_the_node(
    operator: Actor, name: str, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if mode not in modes_of(the_node(name)):
        return
    before = shape(name)
    monkeypatch.setattr(changes, "is_as_wanted", lambda *args, **kwargs: False)
    started = change(operator, name, target_of(the_node(name), **offered(the_node(name), mode)[0]))
    assert started.stage == Stage.VERIFYING
    changes.advance_all(now=timezone.now() + dt.timedelta(minutes=31))
    ended = ModeChange.objects.get()
    assert ended.stage == Stage.REVERTED, ended.message
    assert shape(name) == before


def test_mode_page_of_each_node_shows_the_pending_changes(browser: Client) -> None:
    for node in Node.objects.all():
        for mode in modes_of(node):
            choice = {"mode": mode, "replicas": "4", "rename": "on", "config": BEST_EACH}
            answer = browser.get(f"/operator/nodes/{node.pk}/mode/", choice)
            assert answer.status_code == 200, (node.name, mode)
            assert "Changes to be written" in answer.content.decode()


class TestUnexpectedError:
    @pytest.fixture
    def broken(self, operator: Actor, monkeypatch: pytest.MonkeyPatch) -> ModeChange:
        """A change that raises an exception whenever it writes labels."""

        def fails(*args: Any) -> None:
            raise KeyError("name")

        monkeypatch.setattr(DeclaredKeeper, "set_labels", fails)
        return actions.start(actor=operator, node=the_node("dgx-1"), target=Target("hami"))

    def test_is_shown_on_pages_and_recorded_for_the_job(
        self, broken: ModeChange, browser: Client, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with pytest.raises(changes.StageFailed, match="dgx-1: KeyError: 'name'"):
            tasks.change_modes(tick=True)
        broken.refresh_from_db()
        assert (broken.stage, broken.message) == (Stage.APPLYING, "internal error: KeyError: 'name'")
        assert "KeyError" in browser.get(f"/operator/mode-changes/{broken.public_id}/").content.decode()
        assert "KeyError" in JobRun.objects.get(job="workloads.modes").error
        assert "KeyError" in browser.get("/operator/").content.decode()

    def test_does_not_extend_the_deadline_after_which_the_node_is_reverted(
        self, broken: ModeChange, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        before = shape("dgx-1")[:3]
        for minutes in (0, 11):
            with pytest.raises(changes.StageFailed):
                changes.advance_all(now=timezone.now() + dt.timedelta(minutes=minutes))
        broken.refresh_from_db()
        assert broken.stage == Stage.REVERTED, "nothing had been written"
        assert "KeyError" in broken.message
        assert (shape("dgx-1")[:3], the_node("dgx-1").drained) == (before, False)

    def test_while_reverting_ends_in_failed_and_leaves_the_node_drained(
        self, broken: ModeChange, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        no_keepers: dict[str, Any] = {}
        monkeypatch.setattr(changes, "keeper_for", lambda cluster: no_keepers["keeper"])
        for minutes in (0, 11, 42):
            with pytest.raises(changes.StageFailed):
                changes.advance_all(now=timezone.now() + dt.timedelta(minutes=minutes))
        broken.refresh_from_db()
        assert broken.stage == Stage.FAILED
        assert "KeyError: 'keeper'" in broken.message
        assert the_node("dgx-1").drained, "an operator has to look at it"

    def test_while_waiting_for_non_preemptible_work_cancels_the_change(
        self, operator: Actor, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        pool, vision = the_node("dgx-1").cards.all()[0].pool, make.department("vision")
        assert pool is not None
        make.quota(vision, pool, 1)
        place = [{"pod": 0, "node": "dgx-1", "cards": [0]}]
        make.holding(vision, pool, own=1, workload="w1", preemptible=False, placement=place)
        waiting = actions.start(actor=operator, node=the_node("dgx-1"), target=Target("hami"))
        assert waiting.deadline is None

        def fails(*args: Any, **kwargs: Any) -> None:
            raise RuntimeError("no")

        monkeypatch.setattr(changes, "_drain", fails)
        for minutes in (0, 6):
            with pytest.raises(changes.StageFailed):
                changes.advance_all(now=timezone.now() + dt.timedelta(minutes=minutes))
        waiting.refresh_from_db()
        assert (waiting.stage, the_node("dgx-1").drained) == (Stage.CANCELLED, False)
        assert "RuntimeError" in waiting.message

    def test_on_one_node_does_not_block_another(self, operator: Actor, monkeypatch: pytest.MonkeyPatch) -> None:
        original = DeclaredKeeper.set_labels

        def fails(self: DeclaredKeeper, node: str, labels: Any) -> None:
            if node == "dgx-1":
                raise RuntimeError("no")
            original(self, node, labels)

        monkeypatch.setattr(DeclaredKeeper, "set_labels", fails)
        for name in ("dgx-1", "dgx-2"):
            actions.start(actor=operator, node=the_node(name), target=Target("hami"))
        with pytest.raises(changes.StageFailed, match="dgx-1"):
            changes.advance_all()
        assert the_node("dgx-2").sharing == "hami"

    def test_leaves_the_change_cancellable(
        self, broken: ModeChange, operator: Actor, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with pytest.raises(changes.StageFailed):
            changes.advance_all()
        monkeypatch.undo()
        actions.cancel(actor=operator, change=broken)
        changes.advance_all()
        assert ModeChange.objects.get().stage == Stage.REVERTED


def test_sharing_by_memory_needs_the_gpu_memory_of_the_node(operator: Actor) -> None:
    options = Cluster.objects.get().options
    options["nodes"][0]["labels"].pop("nvidia.com/gpu.memory")
    Cluster.objects.update(options=options)
    inventory.refresh(Cluster.objects.get())
    stopped = change(operator, "dgx-1", Target("hami"))
    assert stopped.stage == Stage.APPLYING
    assert "nvidia.com/gpu.memory" in stopped.message
