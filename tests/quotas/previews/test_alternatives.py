"""Alternative victims on a decision's page: names only of work visible to the reader, numbers only if all of it is."""

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
    """vision reclaims 2 cards: nlp's young-llm is preempted, because speech's old-asr has run for 5 hours."""
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
    preemptor = make.claim(vision, pool, 2, name="train-cats", user=people["valentin"])
    run_pass(group_id=pool.group_id)
    decision = Decision.objects.get(claim=preemptor)
    assert [victim.name for victim in decision.victims.all()] == ["young-llm"]
    return {"pool": pool, "decision": decision, "young": young, **people}


def alternatives_page(client: Client, user: User, decision: Decision, status: int = 200) -> str:
    client.force_login(user)
    response = client.get(f"/decisions/{decision.public_id}/alternatives/")
    assert response.status_code == status
    return response.content.decode()


def test_each_side_sees_names_of_its_own_work_and_only_the_operator_sees_numbers(
    client: Client, world: dict[str, Any]
) -> None:
    decision = world["decision"]
    for username in ("valentin", "ned"):
        text = alternatives_page(client, world[username], decision)
        assert "More computing time would be lost." in text
        assert "GPU-hours" not in text
        assert "Speech (2 cards)" in text
        assert "old-asr" not in text
    assert "young-llm" in alternatives_page(client, world["ned"], decision)
    assert "young-llm" not in alternatives_page(client, world["valentin"], decision)
    everything = alternatives_page(client, world["root"], decision)
    assert "Instead of young-llm (2 cards): old-asr (2 cards)" in everything
    assert "More computing time would be lost: 10.1 GPU-hours instead of 2.1 GPU-hours." in everything


def test_users_who_are_not_affected_get_404(client: Client, world: dict[str, Any]) -> None:
    alternatives_page(client, world["sam"], world["decision"], 404)
    alternatives_page(client, world["sue"], world["decision"], 404)  # her work was not recalled
    client.logout()
    url = f"/decisions/{world['decision'].public_id}/alternatives/"
    assert client.get(url).headers["Location"].startswith("/login/")


def test_page_says_so_when_no_other_workload_can_make_room(client: Client, world: dict[str, Any]) -> None:
    pool: Pool = world["pool"]
    only = make.pool("t4", cards=2, notice=60, grace=5)
    vision, nlp = world["decision"].department, world["young"].department
    make.quota(vision, only, 2)
    make.claim(nlp, only, 2)
    run_pass(group_id=only.group_id)
    preemptor = make.claim(vision, only, 1)
    run_pass(group_id=only.group_id)
    text = alternatives_page(client, world["root"], Decision.objects.get(claim=preemptor))
    assert "No other workload can make room: the request would wait." in text
    assert pool.group_id != only.group_id


def test_decision_without_victims_has_no_alternatives(client: Client, world: dict[str, Any]) -> None:
    started = Decision.objects.get(claim=world["young"], kind="admit")
    assert "<li" not in alternatives_page(client, world["ned"], started)
    client.force_login(world["ned"])
    assert "/alternatives/" not in client.get(f"/decisions/{started.public_id}/").content.decode()


def test_removed_or_corrupt_snapshot_is_reported(client: Client, world: dict[str, Any]) -> None:
    PlanPass.objects.update(snapshot=b"torn")
    assert "can no longer be read" in alternatives_page(client, world["root"], world["decision"])
    PlanPass.objects.update(snapshot=b"")
    assert "no longer kept" in alternatives_page(client, world["root"], world["decision"])


def test_alternatives_in_large_snapshots_are_computed_on_request(
    client: Client, world: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    client.force_login(world["root"])
    url = f"/decisions/{world['decision'].public_id}/"
    assert 'hx-trigger="load"' in client.get(url).content.decode()
    monkeypatch.setattr(pages, "AT_ONCE", 1)
    assert "Alternatives to this choice" in client.get(url).content.decode()
    requested: list[int] = []
    monkeypatch.setattr(alternatives, "PLANNED", 6)
    found = alternatives.alternatives
    monkeypatch.setattr(alternatives, "alternatives", lambda *given: (requested.append(given[3]), found(*given))[1])
    alternatives_page(client, world["root"], world["decision"])
    assert requested == [2]  # three claims
