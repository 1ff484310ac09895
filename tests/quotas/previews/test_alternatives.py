"""Who would have gone instead, on a decision's page: the numbers where they are the reader's, and no other's names."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from portal.models import Role, User
from quotas.models import Claim, Decision, PlanPass, Pool
from quotas.planning.run_pass import run_pass
from quotas.previews import alternatives
from quotas.views import decisions as pages
from tests import builders as make

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def world() -> dict[str, Any]:
    """vision calls 2 cards back: nlp's young-llm went, since speech's old-asr had run for 5 hours."""
    pool = make.pool("a100", cards=4, notice=60, grace=5)
    vision, nlp, speech = (make.department(name) for name in ("vision", "nlp", "speech"))
    make.quota(vision, pool, 4)
    people = {
        name: make.member(of, Role.MEMBER, name) for name, of in (("valentin", vision), ("ned", nlp), ("sue", speech))
    }
    people |= {"sam": make.member(make.department("other"), Role.MEMBER, "sam")}
    people |= {"root": make.user("root", is_operator=True)}
    young = make.claim(nlp, pool, 2, name="young-llm", user=people["ned"])
    old = make.claim(speech, pool, 2, name="old-asr", user=people["sue"])
    run_pass(group_id=pool.group_id)
    Claim.objects.filter(pk=old.pk).update(started_at=timezone.now() - dt.timedelta(hours=5))
    Claim.objects.filter(pk=young.pk).update(started_at=timezone.now() - dt.timedelta(hours=1))
    asker = make.claim(vision, pool, 2, name="train-cats", user=people["valentin"])
    run_pass(group_id=pool.group_id)
    decision = Decision.objects.get(claim=asker)
    assert [victim.name for victim in decision.victims.all()] == ["young-llm"]
    return {"pool": pool, "decision": decision, "young": young, **people}


def part(client: Client, user: User, decision: Decision, status: int = 200) -> str:
    client.force_login(user)
    response = client.get(f"/decisions/{decision.public_id}/alternatives/")
    assert response.status_code == status
    return response.content.decode()


def test_each_side_reads_names_of_its_own_and_numbers_where_all_are(client: Client, world: dict[str, Any]) -> None:
    decision = world["decision"]
    for who in ("valentin", "ned"):
        text = part(client, world[who], decision)
        assert "More computing time would be lost." in text
        assert "GPU-hours" not in text
        assert "Speech (2 cards)" in text
        assert "old-asr" not in text
    assert "young-llm" in part(client, world["ned"], decision)
    assert "young-llm" not in part(client, world["valentin"], decision)
    everything = part(client, world["root"], decision)
    assert "Instead of young-llm (2 cards): old-asr (2 cards)" in everything
    assert "More computing time would be lost: 10.1 GPU-hours instead of 2.1 GPU-hours." in everything


def test_who_is_not_concerned_finds_nothing(client: Client, world: dict[str, Any]) -> None:
    part(client, world["sam"], world["decision"], 404)
    part(client, world["sue"], world["decision"], 404)  # her work was not told to go
    client.logout()
    url = f"/decisions/{world['decision'].public_id}/alternatives/"
    assert client.get(url).headers["Location"].startswith("/login/")


def test_without_anybody_else_it_waits(client: Client, world: dict[str, Any]) -> None:
    pool: Pool = world["pool"]
    only = make.pool("t4", cards=2, notice=60, grace=5)
    vision, nlp = world["decision"].department, world["young"].department
    make.quota(vision, only, 2)
    make.claim(nlp, only, 2)
    run_pass(group_id=only.group_id)
    asker = make.claim(vision, only, 1)
    run_pass(group_id=only.group_id)
    text = part(client, world["root"], Decision.objects.get(claim=asker))
    assert "No other workload can make room: the request would wait." in text
    assert pool.group_id != only.group_id


def test_a_decision_that_told_nobody_has_none(client: Client, world: dict[str, Any]) -> None:
    started = Decision.objects.get(claim=world["young"], kind="admit")
    assert "<li" not in part(client, world["ned"], started)
    client.force_login(world["ned"])
    assert "/alternatives/" not in client.get(f"/decisions/{started.public_id}/").content.decode()


def test_a_snapshot_that_is_gone_or_torn_says_so(client: Client, world: dict[str, Any]) -> None:
    PlanPass.objects.update(snapshot=b"torn")
    assert "can no longer be read" in part(client, world["root"], world["decision"])
    PlanPass.objects.update(snapshot=b"")
    assert "no longer kept" in part(client, world["root"], world["decision"])


def test_large_snapshots_are_planned_when_asked_for(
    client: Client, world: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    client.force_login(world["root"])
    url = f"/decisions/{world['decision'].public_id}/"
    assert 'hx-trigger="load"' in client.get(url).content.decode()
    monkeypatch.setattr(pages, "AT_ONCE", 1)
    assert "Alternatives to this choice" in client.get(url).content.decode()
    asked: list[int] = []
    monkeypatch.setattr(alternatives, "PLANNED", 6)
    found = alternatives.alternatives
    monkeypatch.setattr(alternatives, "alternatives", lambda *given: (asked.append(given[3]), found(*given))[1])
    part(client, world["root"], world["decision"])
    assert asked == [2]  # three claims
