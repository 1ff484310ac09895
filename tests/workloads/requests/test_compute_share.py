"""Memory and compute of a shared card: both can be requested, the larger share is charged, the pod gets what it requested."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from django.utils import timezone

from portal.access import Actor
from portal.models import Department, Role
from quotas.board.card_map import pool_overview
from quotas.board.invariants import violations
from quotas.board.usage_now import read
from quotas.engine.units import resized
from quotas.models import Card, Claim, Pool
from quotas.planning.run_pass import run_pass
from quotas.planning.snapshot import claim_of, load_snapshot
from tests import builders as make
from tests.workloads.requests.asking import asked
from workloads import sharing
from workloads.actions import request_of, submit
from workloads.clusters.run_spec import spec_of
from workloads.models import Attempt
from workloads.nodes import inventory
from workloads.requests.verdict import verdict_of
from workloads.requests.what_you_get import offer_of
from workloads.runtime.base import NodeInfo

pytestmark = pytest.mark.django_db
FIELD = Path(__file__).parents[2] / "sharing/field/hami-scaled-cores.yaml"


@pytest.fixture
def pool() -> Pool:
    pool = make.pool("t4", cards=1, sharing="hami", unit="MiB", units_per_card=15360, product="Tesla-T4")
    Card.objects.update(cores=100)
    return pool


@pytest.fixture
def vision(pool: Pool) -> Department:
    vision = make.department("vision")
    make.quota(vision, pool, 15360)
    return vision


def test_charge_is_the_larger_share_of_memory_and_compute(pool: Pool) -> None:
    assert asked(pool, units_per_pod=1024, cores_per_pod=90).charge == 13824
    assert asked(pool, units_per_pod=8192, cores_per_pod=10).charge == 8192
    assert asked(pool, units_per_pod=1, cores_per_pod=33).charge == 5069  # 5068.8, rounded up


def test_pod_gets_the_requested_memory_and_the_claim_has_both_dimensions(pool: Pool, vision: Department) -> None:
    actor = Actor(make.member(vision, Role.MEMBER))
    workload = submit(actor=actor, department=vision, request=asked(pool, units_per_pod=1024, cores_per_pod=90))
    run_pass(group_id=pool.group_id)
    attempt = Attempt.objects.select_related("workload__pool", "workload__department", "claim").get()
    engine = claim_of(attempt.claim)
    assert (engine.units_per_pod, engine.cores_per_pod) == (13824, 90)
    assert attempt.claim.state == "holding"
    spec = spec_of(attempt)
    assert (spec.units_per_pod, spec.cores_per_pod) == (1024, 90)
    again = request_of(workload)
    assert (again.units_per_pod, again.cores_per_pod, again.charge) == (1024, 90, 13824)


def test_compute_of_a_card_is_never_allocated_twice(pool: Pool, vision: Department) -> None:
    actor = Actor(make.member(vision, Role.MEMBER))
    for _ in range(3):
        submit(actor=actor, department=vision, request=asked(pool, units_per_pod=1024, cores_per_pod=40))
    run_pass(group_id=pool.group_id)
    claims = Attempt.objects.order_by("pk").values_list("claim__state", flat=True)
    assert sorted(claims) == ["holding", "holding", "pending"]


def test_remaining_memory_of_a_card_is_usable_when_its_compute_is_taken() -> None:
    """Two jobs take 90 % of the compute of one card each; the memory that a third job needs is still free beside them."""
    pool = make.pool("t4", cards=2, sharing="hami", unit="MiB", units_per_card=15360, product="Tesla-T4")
    Card.objects.update(cores=100)
    vision = make.department("vision")
    make.quota(vision, pool, 30720)
    actor = Actor(make.member(vision, Role.MEMBER))
    for memory, compute in ((1024, 90), (1024, 90), (3072, 5)):
        submit(actor=actor, department=vision, request=asked(pool, units_per_pod=memory, cores_per_pod=compute))
    run_pass(group_id=pool.group_id)
    claims = list(Claim.objects.order_by("pk"))
    assert [(claim.state, claim.units_per_pod, claim.on_card) for claim in claims] == [
        ("holding", 13824, 1024), ("holding", 13824, 1024), ("holding", 3072, 3072),
    ]  # fmt: skip
    [view] = pool_overview(read([pool]))
    assert sorted(cell.used for cell in view.rows[0].cells) == [1024, 4096], "the memory, not what is charged"
    assert list(violations()) == []
    Claim.objects.filter(pk=claims[2].pk).update(cores_per_pod=20)
    assert list(map(str, violations())) == ["card 0 of t4-n1 gives 110 percent of its compute and has 100"]


def test_request_for_a_mig_profile_is_charged_its_slices(vision: Department) -> None:
    mig = make.pool(
        "mig", cards=1, sharing="mig", unit="slice", units_per_card=8, mig="A100-80GB", product="NVIDIA-A100-SXM4-80GB"
    )
    make.quota(vision, mig, 8)
    request = asked(mig, profile="3g.40gb")  # units_per_pod keeps its default 1, as in requests of pipelines
    workload = submit(actor=Actor(make.member(vision, Role.MEMBER)), department=vision, request=request)
    assert (workload.asked_per_pod, workload.units_per_pod) == (4, 4)


class TestOversubscribedCompute:
    """HAMi with deviceCoreScaling 5: each card registers 500 percent."""

    @pytest.fixture
    def scaled(self, monkeypatch: pytest.MonkeyPatch) -> Pool:
        cluster = make.cluster("gpu")
        found = sharing.discover(yaml.safe_load(FIELD.read_text()))
        assert found is not None
        listed = (found,)

        class Driver:
            def nodes(self) -> tuple[NodeInfo, ...]:
                return listed

        monkeypatch.setattr(inventory, "driver_for", lambda _cluster: Driver())
        inventory.refresh(cluster)
        return Pool.objects.get()

    def test_pool_stores_the_registered_compute_of_its_cards(self, scaled: Pool) -> None:
        assert (scaled.units_per_card, scaled.card_cores) == (258787, 500)

    def test_charge_is_a_share_of_the_registered_compute_everywhere(self, scaled: Pool) -> None:
        request = asked(scaled, units_per_pod=1024, cores_per_pod=50)
        tenth = -(-258787 // 10)
        assert request.charge == tenth
        offer = offer_of(request)
        assert offer is not None
        assert "50 % of the compute" in offer.charge
        vision = make.department("vision")
        make.quota(vision, scaled, 258787, borrow_limit=0)
        actor = Actor(make.member(vision, Role.MEMBER))
        verdict = verdict_of(actor=actor, department=vision, request=request)
        assert verdict.title == "Starts now, from your own quota."
        for _ in range(10):
            submit(actor=actor, department=vision, request=request)
        run_pass(group_id=scaled.group_id)
        claims = Claim.objects.order_by("pk")
        assert {claim.units_per_pod for claim in claims} == {tenth}
        assert [claim.state for claim in claims].count("holding") == 9, "ten tenths rounded up are more than the card"
        snapshot = load_snapshot(scaled.group, now=timezone.now())
        assert snapshot.pools[0].cores_per_card == 500
        of_first = [c for c in snapshot.claims if c.id == claims[0].public_id]
        assert resized(of_first[0], 1024, snapshot.pools[0]).units_per_pod == tenth, "the engine charges the same"
        assert list(violations()) == []

    def test_pool_follows_when_the_cards_register_other_compute(self, scaled: Pool) -> None:
        Card.objects.update(cores=100)
        cluster = scaled.group.cluster
        inventory.refresh(cluster)  # the node still registers 500, which is stored again
        scaled.refresh_from_db()
        assert scaled.card_cores == 500
