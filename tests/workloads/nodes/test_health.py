"""From what a cluster reports to quarantines, with all that follows for the work there."""

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
def look(db: None, monkeypatch: pytest.MonkeyPatch) -> Any:
    cluster = make.cluster("gpu")

    def look(*nodes: Any, after: dt.timedelta = dt.timedelta()) -> None:
        monkeypatch.setattr(inventory, "driver_for", lambda _cluster: Listing(*nodes))
        now = timezone.now() + after
        monkeypatch.setattr(inventory.timezone, "now", lambda: now)
        inventory.refresh(Cluster.objects.get(pk=cluster.pk))

    return look


def places() -> list[tuple[str, int | None, str, bool]]:
    rows = Quarantine.objects.select_related("node").order_by("pk")
    return [(row.node.name, row.card, row.sign, row.is_in_force) for row in rows]


def test_a_fault_of_the_node_comes_and_goes(look: Any) -> None:
    look(whole("n1"), whole("n2"))
    look(replace(whole("n1"), faults=(FAULT,)), whole("n2"))
    assert places() == [("n1", None, "node/condition/GpuMemWatch", True)]
    assert not Node.objects.get(name="n1").takes_pods
    assert Node.objects.get(name="n2").takes_pods
    look(whole("n1"), whole("n2"))
    look(whole("n1"), whole("n2"), after=2 * AWAY)
    assert places() == [("n1", None, "node/condition/GpuMemWatch", False)]
    assert Node.objects.get(name="n1").takes_pods


def test_a_node_that_is_not_listed_keeps_its_quarantine(look: Any) -> None:
    look(replace(whole("n1"), faults=(FAULT,)))
    look()
    look(after=2 * AWAY)
    assert [in_force for *_, in_force in places()] == [True]


def test_an_unhealthy_card_is_quarantined_and_waits_when_it_is_well_again(look: Any) -> None:
    look(whole("n1"))
    look(whole("n1", healthy=7))
    assert places() == [("n1", 7, "card/unhealthy", True)]
    look(whole("n1"))
    assert Card.objects.get(index=7).healthy
    assert not Card.objects.get(index=7).is_usable
    look(whole("n1"), after=2 * AWAY)
    assert Card.objects.get(index=7).is_usable


def test_on_kubernetes_a_card_counts_again_when_its_plugin_offers_it(look: Any) -> None:
    look(whole("n1"))
    Cluster.objects.update(kind=ClusterKind.KUBERNETES)
    look(whole("n1", healthy=7))
    look(whole("n1"))
    assert places() == [("n1", 7, "card/unhealthy", False)]
    assert Card.objects.get(index=7).is_usable


@pytest.mark.parametrize("state", [{"drained": True}, {"present": False}, {"held_back": "cordoned"}])
def test_cards_of_a_node_somebody_works_on_are_not_judged(look: Any, state: dict[str, Any]) -> None:
    look(whole("n1"))
    node = replace(whole("n1", healthy=6), held_back=state.get("held_back", ""))
    if "drained" in state:
        Node.objects.update(drained=True)
    look(*(() if "present" in state else (node,)))
    assert places() == []


def test_a_node_that_is_cut_otherwise_keeps_the_quarantine_of_its_card(look: Any) -> None:
    """A change of mode writes the cards anew."""
    look(whole("n1"))
    row = quarantines.quarantine(
        actor=Actor(make.user("op", is_operator=True)), node=Node.objects.get(), card=3, why="x"
    )
    Card.objects.all().delete()
    look(whole("n1"))
    assert list(Card.objects.filter(quarantined=True).values_list("index", flat=True)) == [row.card]


def wait_to_run(bed: Bed, cards: int) -> Any:
    job = bed.submit(bed.alice, bed.vision, FOREVER, cards=cards)
    bed.until(lambda: bed.state(job) == "running")
    return job


def test_real_work_is_told_stopped_and_queued_again_and_nothing_is_counted(bed: Bed) -> None:
    Pool.objects.update(max_reclaims=0)
    bed.pool.refresh_from_db()
    job = wait_to_run(bed, 1)
    [place] = job.attempts.get().claim.placement
    operator = Actor(make.user("op", is_operator=True))
    node = Node.objects.select_related("cluster").get()
    quarantines.quarantine(actor=operator, node=node, card=place["cards"][0], why="XID 79")
    bed.until(lambda: bed.state(job) == "recalled")
    said = situation_of(operator, job, job.attempts.select_related("claim", "cluster").get())
    assert said.sentence == f"n1, card {place['cards'][0]} is quarantined: save your work now."
    assert said.details[0] == "Reason: XID 79."
    bed.until(lambda: bed.state(job) == "running" and job.attempts.count() == 2)
    first, second = job.attempts.all()
    assert (first.outcome, first.reason, job.reclaims, job.restarts) == ("recalled", "out_of_service", 0, 0)
    assert second.claim.backoff_until is None
    assert second.claim.placement[0]["cards"] != place["cards"]
    lines = [notices.sentence(i.kind, i.data) for i in InboxItem.objects.filter(user=bed.alice).order_by("id")]
    assert "which is quarantined (XID 79)" in lines[0]
    assert "queued again" in lines[1]


def test_what_crashes_on_quarantined_hardware_has_not_failed(bed: Bed) -> None:
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


def test_an_ended_quarantine_lets_the_work_go_on(bed: Bed) -> None:
    Pool.objects.update(notice=600)
    bed.pool.refresh_from_db()
    job = wait_to_run(bed, 2)
    operator = Actor(make.user("op", is_operator=True))
    row = quarantines.quarantine(
        actor=operator, node=Node.objects.select_related("cluster").get(), card=None, why="a false alarm"
    )
    bed.until(lambda: bed.state(job) == "recalled")
    quarantines.put_back(actor=operator, row=row)
    bed.until(lambda: bed.state(job) == "running")
    assert Claim.objects.get().state == ClaimState.HOLDING
    assert job.attempts.get().reclaim_at is None


def test_leaving_for_a_change_of_mode_is_not_counted_either(bed: Bed) -> None:
    Pool.objects.update(max_reclaims=0)
    bed.pool.refresh_from_db()
    job = wait_to_run(bed, 1)
    claim = job.attempts.get().claim
    change = ModeChange.objects.create(
        node=Node.objects.get(), target={"mode": "mig"}, labels={}, stage="draining",
        before={"labels": {}, "drained": False, "sharing": "whole", "instances": {}, "held_back": ""},
    )  # fmt: skip
    ModeChange.objects.filter(pk=change.pk).update(deadlines=announce([claim], {}, now=timezone.now()))
    bed.until(lambda: job.attempts.count() == 2)
    assert (bed.state(job) != "failed", job.reclaims, job.attempts.first().reason) == (True, 0, "out_of_service")
