"""CPU and memory of the machine that a request asks beside its cards: what is above a card's share is charged, borrowed, and
comes back; nobody's guarantee is empty because others took all CPU."""

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
    made = make.pool("a100", cards=16, nodes=2, cpu_per_card=32_000, memory_per_card=256_000, notice=60, grace=10)
    Node.objects.update(cpu_milli=256_000, memory_mib=2_048_000)
    return made


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


def ask(department: Department, pool: Pool, **changes: object) -> Workload:
    actor = Actor(make.member(department, Role.MEMBER))
    workload = submit(actor=actor, department=department, request=asked(pool, **changes))
    run_pass(group_id=pool.group_id)
    return workload


def test_two_jobs_that_take_all_cpu_give_it_back_to_the_owner_of_the_cards(
    pool: Pool, vision: Department, owner: Department
) -> None:
    for _ in range(2):
        ask(vision, pool, cpu_milli=255_000)
    held = Claim.objects.filter(state="holding")
    assert [(claim.units_per_pod, claim.on_card, claim.borrowed) for claim in held] == [(8, 1, 6), (8, 1, 8)]
    train = ask(owner, pool, units_per_pod=8, cpu_milli=64_000)
    claim = Claim.objects.get(workload=train.public_id)
    assert (claim.decision, claim.own, len(claim.waiting_on)) == ("reclaim", 8, 1)
    assert claim.promised_at is not None
    assert (claim.promised_at - timezone.now()).total_seconds() <= 70
    for plan_pass in PlanPass.objects.all():
        assert replay.replay(plan_pass).same


def test_the_pod_gets_the_one_card_that_it_asked_for(pool: Pool, vision: Department) -> None:
    workload = ask(vision, pool, cpu_milli=48_000)
    attempt = Attempt.objects.select_related("workload__pool", "workload__department", "claim").get()
    assert attempt.claim.units_per_pod == 2
    spec = spec_of(attempt)
    assert (spec.units_per_pod, spec.cpu_milli) == (1, 48_000)
    assert [len(place["cards"]) for place in attempt.claim.placement] == [1]
    again = request_of(workload)
    assert (again.units_per_pod, again.charge) == (1, 2)


def test_who_asks_for_more_is_told_what_comes_with_a_card_and_what_it_is_charged(
    pool: Pool, vision: Department
) -> None:
    actor = Actor(make.member(vision, Role.MEMBER))
    told = verdict_of(actor=actor, department=vision, request=asked(pool, cpu_milli=96_000))
    assert (told.facts.own, told.facts.borrowed) == (2, 1)
    said = "96 CPU is more than 1 card includes (32 CPU per card): each pod is charged 3 cards."
    assert any(line.startswith(said) for line in told.lines)
    assert "Recallable" in told.contract
    much = verdict_of(actor=actor, department=vision, request=asked(pool, memory_mib=300_000))
    assert any("293 GiB is more than 1 card includes (250 GiB per card)" in line for line in much.lines)
    means = offer_of(asked(pool, cpu_milli=96_000))
    assert means is not None
    assert means.charge.startswith("Charged to quota: 3 cards, because the requested CPU and memory")
    fair = verdict_of(actor=actor, department=vision, request=asked(pool, cpu_milli=32_000))
    assert not any("is more than" in line for line in fair.lines)


def test_a_refusal_says_why_it_counts_as_more_than_was_asked(pool: Pool, vision: Department) -> None:
    with pytest.raises(Impossible) as refused:
        ask(vision, pool, cpu_milli=96_000, preemptible=False)
    said = refused.value.detail
    assert "does not allow 3 cards" in said
    assert "96 CPU is more than 1 card includes (32 CPU per card): each pod is charged 3 cards." in said
    with pytest.raises(Impossible) as refused:
        ask(vision, pool, units_per_pod=3, preemptible=False)
    assert "includes" not in refused.value.detail


def test_a_part_of_a_card_brings_its_part_and_a_mig_profile_too(vision: Department) -> None:
    parts = make.pool("t4", cards=2, sharing="hami", unit="MiB", units_per_card=15_360, cpu_per_card=12_000)
    assert asked(parts, units_per_pod=5_120, cpu_milli=4_000).charge == 5_120
    assert asked(parts, units_per_pod=5_120, cpu_milli=6_000).charge == 7_680
    cut = make.pool("mig", cards=1, sharing="mig", unit="slice", units_per_card=8, mig="A100-80GB", cpu_per_card=32_000)
    request = asked(cut, profile="1g.10gb", cpu_milli=8_000)
    assert (request.charge, request.on_card) == (2, 1)
    make.quota(vision, cut, 8)
    workload = ask(vision, cut, profile="1g.10gb", cpu_milli=8_000)
    claim = Claim.objects.get(workload=workload.public_id)
    assert (claim.state, claim.units_per_pod, claim.on_card) == ("holding", 2, 1)


def test_work_that_must_not_be_stopped_has_its_share_only(pool: Pool, vision: Department) -> None:
    with pytest.raises(Impossible):
        ask(vision, pool, cpu_milli=96_000, preemptible=False)
    ask(vision, pool, cpu_milli=64_000, preemptible=False)


def test_the_operator_says_how_much_comes_with_a_card_and_whether_anybody_is_charged(pool: Pool) -> None:
    boss = Actor(make.user(is_operator=True))
    rules = PoolRules(notice=60, grace=10, min_runtime=0, max_reclaims=3, beside_percent=50)
    changed = set_pool_rules(actor=boss, pool=pool, rules=rules, expected_version=pool.version)
    assert asked(changed, cpu_milli=32_000).charge == 2
    changed.beside_percent = 0
    assert asked(changed, cpu_milli=320_000).charge == 1


def test_the_form_says_what_comes_with_a_card(pool: Pool, vision: Department, client: Client) -> None:
    client.force_login(make.member(vision, Role.MEMBER))
    page = client.get(reverse("workloads:new", args=["vision"])).content.decode()
    assert "Each card includes 32 CPU and 250 GiB of memory" in page


def test_the_page_of_a_workload_tells_what_it_got_and_what_it_is_charged(
    pool: Pool, vision: Department, client: Client
) -> None:
    workload = ask(vision, pool, cpu_milli=48_000)
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
def test_the_form_starts_with_no_more_than_comes_with_the_amount(fields: Any, cpu: Any, memory: int) -> None:
    shown = first_machine(Pool(**{"unit": "card", "units_per_card": 1, **fields}))
    assert shown == {"cpu": cpu, "memory_mib": memory}
