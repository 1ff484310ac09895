"""From faults that a cluster reports to quarantines, and what happens to workloads on quarantined hardware."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from typing import Any

import pytest
from django.utils import timezone

from portal.access import Actor
from portal.models import InboxItem
from portal.notify import notices
from quotas.health import quarantines
from quotas.health.signs import AWAY
from quotas.models import Card, Claim, ClaimState, Cluster, ClusterKind, Node, Pool, Quarantine
from quotas.rules.draining import announce
from tests import builders as make
from tests.workloads.conftest import Bed
from tests.workloads.nodes.test_inventory import Listing, whole
from workloads.models import ModeChange
from workloads.nodes import inventory
from workloads.runtime.base import Fault, Note
from workloads.status.status_line import situation_of

FAULT = Fault("node/condition/GpuMemWatch", Note("node condition %(condition)s is %(status)s: %(message)s",
              {"condition": "GpuMemWatch", "status": "True", "message": "DBE"}))  # fmt: skip
FOREVER = "import time\nwhile True: time.sleep(0.05)\n"


@pytest.fixture
def refresh(db: None, monkeypatch: pytest.MonkeyPatch) -> Any:
    cluster = make.cluster("gpu")

    def refresh(*nodes: Any, after: dt.timedelta = dt.timedelta()) -> None:
        monkeypatch.setattr(inventory, "driver_for", lambda _cluster: Listing(*nodes))
        now = timezone.now() + after
        monkeypatch.setattr(inventory.timezone, "now", lambda: now)
        inventory.refresh(Cluster.objects.get(pk=cluster.pk))

    return refresh


def quarantine_rows() -> list[tuple[str, int | None, str, bool]]:
    rows = Quarantine.objects.select_related("node").order_by("pk")
    return [(row.node.name, row.card, row.sign, row.is_in_force) for row in rows]


def test_node_fault_quarantines_the_node_until_the_fault_is_gone(refresh: Any) -> None:
    refresh(whole("n1"), whole("n2"))
    refresh(replace(whole("n1"), faults=(FAULT,)), whole("n2"))
    assert quarantine_rows() == [("n1", None, "node/condition/GpuMemWatch", True)]
    assert not Node.objects.get(name="n1").takes_pods
    assert Node.objects.get(name="n2").takes_pods
    refresh(whole("n1"), whole("n2"))
    refresh(whole("n1"), whole("n2"), after=2 * AWAY)
    assert quarantine_rows() == [("n1", None, "node/condition/GpuMemWatch", False)]
    assert Node.objects.get(name="n1").takes_pods


def test_node_missing_from_the_listing_keeps_its_quarantine(refresh: Any) -> None:
    refresh(replace(whole("n1"), faults=(FAULT,)))
    refresh()
    refresh(after=2 * AWAY)
    assert [in_force for *_, in_force in quarantine_rows()] == [True]


def test_unhealthy_card_is_quarantined_and_usable_again_some_time_after_recovery(refresh: Any) -> None:
    refresh(whole("n1"))
    refresh(whole("n1", healthy=7))
    assert quarantine_rows() == [("n1", 7, "card/unhealthy", True)]
    refresh(whole("n1"))
    assert Card.objects.get(index=7).healthy
    assert not Card.objects.get(index=7).is_usable
    refresh(whole("n1"), after=2 * AWAY)
    assert Card.objects.get(index=7).is_usable


def test_on_kubernetes_a_card_is_usable_as_soon_as_its_plugin_offers_it(refresh: Any) -> None:
    refresh(whole("n1"))
    Cluster.objects.update(kind=ClusterKind.KUBERNETES)
    refresh(whole("n1", healthy=7))
    refresh(whole("n1"))
    assert quarantine_rows() == [("n1", 7, "card/unhealthy", False)]
    assert Card.objects.get(index=7).is_usable


@pytest.mark.parametrize("state", [{"drained": True}, {"present": False}, {"held_back": "cordoned"}])
def test_cards_are_not_quarantined_while_their_node_is_in_maintenance(refresh: Any, state: dict[str, Any]) -> None:
    refresh(whole("n1"))
    node = replace(whole("n1", healthy=6), held_back=state.get("held_back", ""))
    if "drained" in state:
        Node.objects.update(drained=True)
    refresh(*(() if "present" in state else (node,)))
    assert quarantine_rows() == []


def test_card_quarantine_survives_a_mode_change_of_its_node(refresh: Any) -> None:
    """A mode change deletes the card rows and writes new ones."""
    refresh(whole("n1"))
    row = quarantines.quarantine(
        actor=Actor(make.user("op", is_operator=True)), node=Node.objects.get(), card=3, why="x"
    )
    Card.objects.all().delete()
    refresh(whole("n1"))
    assert list(Card.objects.filter(quarantined=True).values_list("index", flat=True)) == [row.card]


def submit_and_wait_until_running(bed: Bed, cards: int) -> Any:
    workload = bed.submit(bed.alice, bed.vision, FOREVER, cards=cards)
    bed.until(lambda: bed.state(workload) == "running")
    return workload


def test_workload_on_a_quarantined_card_is_recalled_and_requeued_without_counting_a_recall(bed: Bed) -> None:
    Pool.objects.update(max_reclaims=0)
    bed.pool.refresh_from_db()
    job = submit_and_wait_until_running(bed, 1)
    [place] = job.attempts.get().claim.placement
    operator = Actor(make.user("op", is_operator=True))
    node = Node.objects.select_related("cluster").get()
    quarantines.quarantine(actor=operator, node=node, card=place["cards"][0], why="XID 79")
    bed.until(lambda: bed.state(job) == "recalled")
    situation = situation_of(operator, job, job.attempts.select_related("claim", "cluster").get())
    assert situation.sentence == f"n1, card {place['cards'][0]} is quarantined: save your work now."
    assert situation.details[0] == "Reason: XID 79."
    bed.until(lambda: bed.state(job) == "running" and job.attempts.count() == 2)
    first, second = job.attempts.all()
    assert (first.outcome, first.reason, job.reclaims, job.restarts) == ("recalled", "out_of_service", 0, 0)
    assert second.claim.backoff_until is None
    assert second.claim.placement[0]["cards"] != place["cards"]
    lines = [notices.sentence(i.kind, i.data) for i in InboxItem.objects.filter(user=bed.alice).order_by("id")]
    assert "which is quarantined (XID 79)" in lines[0]
    assert "queued again" in lines[1]


def test_crash_on_quarantined_hardware_counts_as_lost_not_failed(bed: Bed) -> None:
    Pool.objects.update(notice=600)
    bed.pool.refresh_from_db()
    crashes_later = (
        "import pathlib, time\nwhile not pathlib.Path('crash').exists(): time.sleep(0.05)\nraise SystemExit(1)\n"
    )
    job = bed.submit(bed.alice, bed.vision, crashes_later)
    bed.until(lambda: bed.state(job) == "running")
    operator = Actor(make.user("op", is_operator=True))
    card = job.attempts.get().claim.placement[0]["cards"][0]
    node = Node.objects.select_related("cluster").get()
    quarantines.quarantine(actor=operator, node=node, card=card, why="XID 79")
    bed.until(lambda: bed.state(job) == "recalled")
    (bed.folder(job) / "crash").touch()
    bed.until(lambda: job.attempts.count() == 2)
    first = job.attempts.first()
    assert (first.outcome, first.reason, first.exit_code, bed.state(job) != "failed") == (
        "lost",
        "out_of_service",
        1,
        True,
    )


def test_recall_is_withdrawn_when_the_quarantine_ends(bed: Bed) -> None:
    Pool.objects.update(notice=600)
    bed.pool.refresh_from_db()
    job = submit_and_wait_until_running(bed, 2)
    operator = Actor(make.user("op", is_operator=True))
    row = quarantines.quarantine(
        actor=operator, node=Node.objects.select_related("cluster").get(), card=None, why="a false alarm"
    )
    bed.until(lambda: bed.state(job) == "recalled")
    quarantines.put_back(actor=operator, row=row)
    bed.until(lambda: bed.state(job) == "running")
    assert Claim.objects.get().state == ClaimState.HOLDING
    assert job.attempts.get().reclaim_at is None


def test_recall_for_a_mode_change_is_not_counted_either(bed: Bed) -> None:
    Pool.objects.update(max_reclaims=0)
    bed.pool.refresh_from_db()
    job = submit_and_wait_until_running(bed, 1)
    claim = job.attempts.get().claim
    change = ModeChange.objects.create(
        node=Node.objects.get(), target={"mode": "mig"}, labels={}, stage="draining",
        before={"labels": {}, "drained": False, "sharing": "whole", "instances": {}, "held_back": ""},
    )  # fmt: skip
    ModeChange.objects.filter(pk=change.pk).update(deadlines=announce([claim], {}, now=timezone.now()))
    bed.until(lambda: job.attempts.count() == 2)
    assert (bed.state(job) != "failed", job.reclaims, job.attempts.first().reason) == (True, 0, "out_of_service")
