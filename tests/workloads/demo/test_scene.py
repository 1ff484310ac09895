"""The scene for the five minutes of docs/getting-started.md: set up at the start, and still the same half an hour later."""

from __future__ import annotations

import datetime as dt
import re
from pathlib import Path
from typing import Any

import pytest
from django.conf import LazySettings
from django.utils import timezone

from portal.access import Actor
from portal.models import Department, User
from quotas.board.usage import department_usage
from quotas.models import Claim, Pool, Quota
from quotas.planning.claims import release
from quotas.planning.run_pass import run_pass
from tests import builders as make
from tests.architecture.sources import ROOT
from workloads.actions import submit
from workloads.demo.load import submit_load
from workloads.demo.seed import seed
from workloads.models import Image, Kind
from workloads.requests.request import WorkloadRequest
from workloads.requests.verdict import verdict_of

pytestmark = pytest.mark.django_db(transaction=True)
STEPS = (ROOT / "docs" / "getting-started.md").read_text().split("## Five minutes")[1].split("\n## ")[0]


@pytest.fixture
def pool(settings: LazySettings, tmp_path: Path) -> Pool:
    settings.DATA_DIR, settings.EMBEDDED, settings.DEBUG = tmp_path, True, True
    seed()
    submit_load()
    return Pool.objects.get(slug="a100")


def visions_request(pool: Pool, cards: int) -> dict[str, Any]:
    """A request for so many cards as alice or olivia of Computer Vision submit it."""
    request = WorkloadRequest(
        kind=Kind.JOB, name=f"train-{cards}", pool=pool, image=Image.objects.get(name="demo/training:1"),
        command=("train",), units_per_pod=cards, cpu_milli=2000, memory_mib=8192, max_runtime=4 * 3600,
    )  # fmt: skip
    vision = Department.objects.get(slug="vision")
    return {"actor": Actor(User.objects.get(username="alice")), "department": vision, "request": request}


def claim_states(pool: Pool) -> dict[str, str]:
    claims = Claim.objects.filter(pool=pool).exclude(state="released").exclude(name__startswith="train")
    return dict(claims.values_list("name", "state"))


def let_time_pass(pool: Pool, minutes: int) -> None:
    """Moves the times of all claims back by these minutes, and plans the pool again."""
    for claim in Claim.objects.all():
        for name in ("submitted_at", "queued_at", "started_at"):
            before = getattr(claim, name)
            setattr(claim, name, before and before - dt.timedelta(minutes=minutes))
        claim.save()
    run_pass(group_id=pool.group_id)


@pytest.mark.parametrize("minutes", [0, 30])
def test_vision_starts_one_card_at_once_and_reclaims_four_from_biology(pool: Pool, minutes: int) -> None:
    let_time_pass(pool, minutes)
    assert [name for name, state in sorted(claim_states(pool).items()) if state == "pending"] == [
        "fold-c",
        "grasp-ablation",
    ]
    first = visions_request(pool, 1)
    assert verdict_of(**first).title == "Starts now, from your own quota."
    submit(**first)
    run_pass(group_id=pool.group_id)
    let_time_pass(pool, minutes)
    now = next(row for row in department_usage(first["department"], [pool]))
    assert (now.guaranteed, now.own, now.lent, now.idle) == (8, 2, 6, 0)
    four = visions_request(pool, 4)
    assert "when Computational Biology has returned 4 cards" in verdict_of(**four).title
    submit(**four)
    run_pass(group_id=pool.group_id)
    assert [name for name, state in sorted(claim_states(pool).items()) if state == "leaving"] == ["fold-a", "fold-b"]
    later = timezone.now() + dt.timedelta(minutes=1)
    for claim in Claim.objects.filter(state="leaving"):
        release(claim, now=timezone.now())
        make.claim(claim.department, pool, 2, name=claim.name, submitted_at=claim.submitted_at, backoff_until=later,
                   cpu_milli=claim.cpu_milli, memory_mib=claim.memory_mib, max_runtime=claim.max_runtime)  # fmt: skip
    run_pass(group_id=pool.group_id)
    release(Claim.objects.get(name="train-4", state="holding"), now=timezone.now())  # the reader stops it at once
    run_pass(group_id=pool.group_id)
    assert claim_states(pool)["fold-c"] == "holding"
    run_pass(group_id=pool.group_id, now=later)
    assert claim_states(pool)["fold-a"] == "holding"


def test_numbers_in_the_tour_match_the_seed(pool: Pool) -> None:
    text = " ".join(STEPS.split())
    own = Quota.objects.get(pool=pool, department__slug="vision")
    assert f"{own.guaranteed} guaranteed, 1 in use" in text
    assert f"{own.guaranteed} guaranteed, 2 used, the other {own.guaranteed - 2} lent" in text
    assert f"allows at most {own.guaranteed + (own.borrow_limit or 0)} cards" in text
    assert f"request that can run is {pool.nominal // 2}" in text
    assert f"{pool.notice} s notice and {pool.grace} s grace" in text
    promised = sum(Quota.objects.filter(pool=pool).values_list("guaranteed", flat=True))
    assert f"promise Computer Vision {own.guaranteed + 1} cards" in text
    assert f"{promised + 1} would be promised of {pool.nominal}" in text
    assert re.findall(r"`(fold-.)`", text)[:3] == ["fold-a", "fold-b", "fold-c"]
