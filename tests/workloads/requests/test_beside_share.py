"""CPU and memory of the node that a request asks for in addition to its cards: more than a card's share is charged as
additional cards, so that nobody can make the guarantee of others useless by taking all CPU."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from portal.access import Actor
from portal.models import Department, Role
from quotas.models import Claim, Node, PlanPass, Pool
from quotas.planning import replay
from quotas.planning.run_pass import run_pass
from quotas.rules.policies import PoolRules, set_pool_rules
from tests import builders as make
from tests.workloads.requests.asking import asked
from workloads.actions import request_of, submit
from workloads.clusters.run_spec import spec_of
from workloads.models import Attempt, Workload
from workloads.requests.form import first_machine
from workloads.requests.verdict import Impossible, verdict_of
from workloads.requests.what_you_get import offer_of

pytestmark = pytest.mark.django_db


@pytest.fixture
def pool() -> Pool:
    pool = make.pool("a100", cards=16, nodes=2, cpu_per_card=32_000, memory_per_card=256_000, notice=60, grace=10)
    Node.objects.update(cpu_milli=256_000, memory_mib=2_048_000)
    return pool


@pytest.fixture
def vision(pool: Pool) -> Department:
    vision = make.department("vision")
    make.quota(vision, pool, 2)
    return vision


@pytest.fixture
def owner(pool: Pool) -> Department:
    owner = make.department("owner")
    make.quota(owner, pool, 8)
    return owner


def submit_and_plan(department: Department, pool: Pool, **changes: object) -> Workload:
    actor = Actor(make.member(department, Role.MEMBER))
    workload = submit(actor=actor, department=department, request=asked(pool, **changes))
    run_pass(group_id=pool.group_id)
    return workload


def test_owner_of_the_cards_reclaims_from_jobs_that_borrow_all_cpu(
    pool: Pool, vision: Department, owner: Department
) -> None:
    for _ in range(2):
        submit_and_plan(vision, pool, cpu_milli=255_000)
    held = Claim.objects.filter(state="holding")
    assert [(claim.units_per_pod, claim.on_card, claim.borrowed) for claim in held] == [(8, 1, 6), (8, 1, 8)]
    train = submit_and_plan(owner, pool, units_per_pod=8, cpu_milli=64_000)
    claim = Claim.objects.get(workload=train.public_id)
    assert (claim.decision, claim.own, len(claim.waiting_on)) == ("reclaim", 8, 1)
    assert claim.promised_at is not None
    assert (claim.promised_at - timezone.now()).total_seconds() <= 70
    for plan_pass in PlanPass.objects.all():
        assert replay.replay(plan_pass).same


def test_pod_gets_the_requested_card_although_two_are_charged(pool: Pool, vision: Department) -> None:
    workload = submit_and_plan(vision, pool, cpu_milli=48_000)
    attempt = Attempt.objects.select_related("workload__pool", "workload__department", "claim").get()
    assert attempt.claim.units_per_pod == 2
    spec = spec_of(attempt)
    assert (spec.units_per_pod, spec.cpu_milli) == (1, 48_000)
    assert [len(place["cards"]) for place in attempt.claim.placement] == [1]
    again = request_of(workload)
    assert (again.units_per_pod, again.charge) == (1, 2)


def test_verdict_explains_the_charge_for_cpu_and_memory_above_a_cards_share(pool: Pool, vision: Department) -> None:
    actor = Actor(make.member(vision, Role.MEMBER))
    verdict = verdict_of(actor=actor, department=vision, request=asked(pool, cpu_milli=96_000))
    assert (verdict.facts.own, verdict.facts.borrowed) == (2, 1)
    explanation = "96 CPU is more than 1 card includes (32 CPU per card): each pod is charged 3 cards."
    assert any(line.startswith(explanation) for line in verdict.lines)
    assert "Recallable" in verdict.contract
    large = verdict_of(actor=actor, department=vision, request=asked(pool, memory_mib=300_000))
    assert any("293 GiB is more than 1 card includes (250 GiB per card)" in line for line in large.lines)
    offer = offer_of(asked(pool, cpu_milli=96_000))
    assert offer is not None
    assert offer.charge.startswith("Charged to quota: 3 cards, because the requested CPU and memory")
    fair = verdict_of(actor=actor, department=vision, request=asked(pool, cpu_milli=32_000))
    assert not any("is more than" in line for line in fair.lines)


def test_charge_is_explained_by_the_resource_with_the_larger_share(pool: Pool, vision: Department) -> None:
    actor = Actor(make.member(vision, Role.MEMBER))
    by_memory = "750 GiB is more than 1 card includes (250 GiB per card): each pod is charged 3 cards."
    by_cpu = "96 CPU is more than 1 card includes (32 CPU per card): each pod is charged 3 cards."
    for cpu, memory, explanation in ((40_000, 768_000, by_memory), (96_000, 300_000, by_cpu)):
        request = asked(pool, cpu_milli=cpu, memory_mib=memory)
        verdict = verdict_of(actor=actor, department=vision, request=request)
        assert [line for line in verdict.lines if line.startswith(explanation)], verdict.lines


def test_refusal_explains_why_the_request_is_charged_more_cards(pool: Pool, vision: Department) -> None:
    with pytest.raises(Impossible) as error:
        submit_and_plan(vision, pool, cpu_milli=96_000, preemptible=False)
    detail = error.value.detail
    assert "does not allow 3 cards" in detail
    assert "96 CPU is more than 1 card includes (32 CPU per card): each pod is charged 3 cards." in detail
    with pytest.raises(Impossible) as error:
        submit_and_plan(vision, pool, units_per_pod=3, preemptible=False)
    assert "includes" not in error.value.detail


def test_parts_of_cards_and_mig_profiles_include_a_proportional_cpu_share(vision: Department) -> None:
    parts = make.pool("t4", cards=2, sharing="hami", unit="MiB", units_per_card=15_360, cpu_per_card=12_000)
    assert asked(parts, units_per_pod=5_120, cpu_milli=4_000).charge == 5_120
    assert asked(parts, units_per_pod=5_120, cpu_milli=6_000).charge == 7_680
    cut = make.pool("mig", cards=1, sharing="mig", unit="slice", units_per_card=8, mig="A100-80GB", cpu_per_card=32_000)
    request = asked(cut, profile="1g.10gb", cpu_milli=8_000)
    assert (request.charge, request.on_card) == (2, 1)
    make.quota(vision, cut, 8)
    workload = submit_and_plan(vision, cut, profile="1g.10gb", cpu_milli=8_000)
    claim = Claim.objects.get(workload=workload.public_id)
    assert (claim.state, claim.units_per_pod, claim.on_card) == ("holding", 2, 1)


def test_non_preemptible_workloads_are_limited_to_the_share_of_their_guarantee(pool: Pool, vision: Department) -> None:
    with pytest.raises(Impossible):
        submit_and_plan(vision, pool, cpu_milli=96_000, preemptible=False)
    submit_and_plan(vision, pool, cpu_milli=64_000, preemptible=False)


def test_operator_sets_how_much_a_card_includes_or_turns_the_charge_off(pool: Pool) -> None:
    operator = Actor(make.user(is_operator=True))
    rules = PoolRules(notice=60, grace=10, min_runtime=0, max_reclaims=3, beside_percent=50)
    changed = set_pool_rules(actor=operator, pool=pool, rules=rules, expected_version=pool.version)
    assert asked(changed, cpu_milli=32_000).charge == 2
    changed.beside_percent = 0
    assert asked(changed, cpu_milli=320_000).charge == 1


def test_form_says_what_each_card_includes(pool: Pool, vision: Department, client: Client) -> None:
    client.force_login(make.member(vision, Role.MEMBER))
    page = client.get(reverse("workloads:new", args=["vision"])).content.decode()
    assert "Each card includes 32 CPU and 250 GiB of memory" in page


def test_workload_page_shows_requested_and_charged_cards(pool: Pool, vision: Department, client: Client) -> None:
    workload = submit_and_plan(vision, pool, cpu_milli=48_000)
    client.force_login(make.member(vision, Role.MEMBER))
    page = client.get(reverse("workloads:detail", args=["vision", workload.public_id])).content.decode()
    assert "1 card, charged 2 cards" in page


@pytest.mark.parametrize(
    ("fields", "cpu", "memory"),
    [
        ({}, 4, 16 * 1024),
        ({"cpu_per_card": 16_000, "memory_per_card": 128 * 1024}, 4, 16 * 1024),
        ({"cpu_per_card": 1_550, "memory_per_card": 7_000}, Decimal("1.5"), 6912),
        ({"cpu_per_card": 8_000, "memory_per_card": 32 * 1024, "unit": "replica", "units_per_card": 4}, 2, 8 * 1024),
        ({"cpu_per_card": 3_000, "memory_per_card": 9 * 1024, "unit": "MiB", "units_per_card": 16_384}, 3, 9 * 1024),
        ({"cpu_per_card": 30, "memory_per_card": 100}, Decimal("0.1"), 256),
    ],
)
def test_form_starts_with_at_most_what_the_amount_includes(fields: Any, cpu: Any, memory: int) -> None:
    shown = first_machine(Pool(**{"unit": "card", "units_per_card": 1, **fields}))
    assert shown == {"cpu": cpu, "memory_mib": memory}
