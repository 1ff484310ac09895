"""Quarantine of nodes and cards: whose work is recalled, who is notified, when it ends, and what its history keeps."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from django.db import IntegrityError, transaction
from django.utils import timezone

from portal.access import Actor, NotVisible
from portal.errors import Invalid
from portal.infra.versions import Conflict
from portal.models import AuditEntry, Department, InboxItem
from quotas.board import usage_now
from quotas.health import quarantines
from quotas.health.quarantines import Answer
from quotas.health.signs import AWAY, Sign
from quotas.models import Card, Claim, ClaimState, ClusterKind, Node, Pool, Quarantine
from quotas.planning.run_pass import run_pass
from quotas.planning.snapshot import load_snapshot
from tests import builders as make

pytestmark = pytest.mark.django_db
XID = Sign("node/condition/SysLogsXIDError")
WHY = {"message": "node condition %(condition)s is %(status)s", "params": {"condition": "X", "status": "True"}}


@pytest.fixture
def pool() -> Pool:
    return make.pool("a100", cards=8, nodes=2, notice=600, grace=60)


@pytest.fixture
def vision(pool: Pool) -> Department:
    vision = make.department("vision")
    make.quota(vision, pool, 8)
    return vision


@pytest.fixture
def operator() -> Actor:
    return Actor(make.user("op", is_operator=True))


def node() -> Node:
    return Node.objects.select_related("cluster").get(name="a100-n1")


def on(node: str, *cards: int) -> list[dict[str, Any]]:
    return [{"pod": 0, "node": node, "cards": list(cards)}]


def holding(vision: Department, pool: Pool, *cards: int, **fields: Any) -> Claim:
    given = {"placement": on("a100-n1", *cards), "notice": 600, "grace": 60} | fields
    return make.holding(vision, pool, own=len(cards), **given)


def messages_of(user: Any) -> list[tuple[str, bool]]:
    """Kind, and whether it is mailed, of each message in order."""
    rows = InboxItem.objects.filter(user=user).order_by("pk")
    return [(row.kind, row.mail_due_at is not None) for row in rows]


def judged(*signs: Sign, now: dt.datetime, looked_at: tuple[int | None, ...] = (None,)) -> int:
    answers = {node().pk: Answer(dict.fromkeys(signs, WHY), looked_at)}
    return quarantines.judge(node().cluster, "node", answers, now=now)


def state(claim: Claim) -> str:
    claim.refresh_from_db()
    return claim.state


def present(pool: Pool) -> int:
    """Units present, which the board and the engine must count alike."""
    board = usage_now.read([pool]).present(pool.pk)
    [planned] = load_snapshot(pool.group, now=timezone.now()).pools
    assert sum(card.units for each in planned.nodes or () for card in each.cards) == board
    return board


def test_sign_quarantines_the_node_and_recalls_its_work_despite_the_minimum_runtime(
    pool: Pool, vision: Department
) -> None:
    root = make.user("root", is_operator=True)
    here = holding(vision, pool, 0, 1, min_runtime=10**6)
    elsewhere = holding(vision, pool, 0, placement=on("a100-n2", 0))
    now = timezone.now()
    assert judged(XID, now=now) == 1
    assert (node().quarantined, node().takes_pods, present(pool)) == (True, False, 4)
    assert (state(here), here.leave_by) == (ClaimState.LEAVING, now + dt.timedelta(seconds=600))
    assert state(elsewhere) == ClaimState.HOLDING
    row = Quarantine.objects.get()
    assert row.deadlines == {here.public_id: here.leave_by.isoformat()}
    assert quarantines.that_stops(here) == row
    assert quarantines.that_stops(elsewhere) is None
    assert AuditEntry.objects.filter(action="node.quarantined", target="a100-n1", actor=None).count() == 1
    assert [item.kind for item in InboxItem.objects.filter(user=root)] == ["node.quarantined"]
    assert judged(XID, now=now + dt.timedelta(minutes=1)) == 0, "the same sign again changes nothing"


def test_quarantine_ends_once_the_sign_is_absent_long_enough_and_leaving_work_stays(
    pool: Pool, vision: Department
) -> None:
    now = timezone.now()
    claim = holding(vision, pool, 0, notice=3600)
    judged(XID, now=now)
    judged(now=now)
    judged(XID, now=now + AWAY / 2)  # it flaps
    judged(now=now + AWAY / 2)
    judged(now=now + AWAY)
    assert node().quarantined
    judged(now=now + 2 * AWAY)
    row = Quarantine.objects.get()
    assert (node().quarantined, row.ended_at, row.sign_over_at, row.deadlines) == (
        False,
        now + 2 * AWAY,
        now + 2 * AWAY,
        {},
    )
    assert (state(claim), claim.leave_by, quarantines.that_stops(claim)) == (ClaimState.HOLDING, None, None)
    judged(XID, now=now + 3 * AWAY)
    assert Quarantine.objects.count() == 2, "a second time is a second row of the history"


def test_sign_overruled_by_an_operator_is_ignored_until_it_has_been_absent(
    pool: Pool, vision: Department, operator: Actor
) -> None:
    now = timezone.now()
    claim = holding(vision, pool, 0)
    judged(XID, now=now)
    row = quarantines.put_back(actor=operator, row=Quarantine.objects.get())
    assert (row.is_overruled, row.ended_by, state(claim)) == (True, operator.user, ClaimState.HOLDING)
    judged(XID, now=now + AWAY)
    assert not node().quarantined
    judged(now=now + 2 * AWAY)
    judged(now=now + 3 * AWAY)
    judged(XID, now=now + 4 * AWAY)
    assert node().quarantined, "it is a new fault"
    with pytest.raises(quarantines.HasEnded):
        quarantines.put_back(actor=operator, row=row)


def test_quarantine_of_one_card_recalls_only_its_work(pool: Pool, vision: Department, operator: Actor) -> None:
    on_it, beside = holding(vision, pool, 0, 1), holding(vision, pool, 2)
    seen = quarantines.versions.mark(quarantines.in_force(node()))
    row = quarantines.quarantine(actor=operator, node=node(), card=1, why=" fan is loud ", seen=seen)
    assert (row.why, row.card, present(pool)) == ("fan is loud", 1, 7)
    assert (state(on_it), state(beside)) == (ClaimState.LEAVING, ClaimState.HOLDING)
    with pytest.raises(quarantines.AlreadyQuarantined):
        quarantines.quarantine(actor=operator, node=node(), card=1, why="again")
    with pytest.raises(Conflict):
        quarantines.quarantine(actor=operator, node=node(), card=2, why="an old page", seen=seen)
    waiting = make.claim(vision, pool, 4)
    run_pass(group_id=pool.group_id)
    waiting.refresh_from_db()
    assert waiting.state == ClaimState.HOLDING
    assert waiting.placement[0]["node"] == "a100-n2", "the node with the card has only three left"


def test_work_is_recalled_until_the_quarantines_of_both_card_and_node_end(
    pool: Pool, vision: Department, operator: Actor
) -> None:
    claim = holding(vision, pool, 0)
    card = quarantines.quarantine(actor=operator, node=node(), card=0, why="ECC")
    judged(XID, now=timezone.now())
    quarantines.put_back(actor=operator, row=card)
    assert state(claim) == ClaimState.LEAVING
    whole = Quarantine.objects.get(card=None)
    assert quarantines.that_stops(claim) == whole, "the quarantine of the node still applies"
    quarantines.put_back(actor=operator, row=whole)
    assert state(claim) == ClaimState.HOLDING
    assert not Card.objects.filter(quarantined=True).exists()


def test_non_preemptible_work_is_not_stopped_and_its_user_is_notified_once(
    pool: Pool, vision: Department, operator: Actor
) -> None:
    author = make.member(vision)
    claim = holding(vision, pool, 0, preemptible=False, user=author)
    row = quarantines.quarantine(actor=operator, node=node(), card=None, why="XID 79")
    assert quarantines.keep(now=timezone.now()) == 0
    assert (state(claim), row.deadlines) == (ClaimState.HOLDING, {claim.public_id: None})
    [item] = InboxItem.objects.filter(user=author)
    assert (item.kind, item.data["place"], item.data["why"]["params"]) == (
        "workload.on_quarantined", "a100-n1", {"why": "XID 79"},
    )  # fmt: skip


def test_claims_that_hold_there_later_are_recalled_at_the_next_tick_by_the_first_deadline(
    pool: Pool, vision: Department, operator: Actor
) -> None:
    """Such as a claim whose preemption was under way when the quarantine began and has been withdrawn since."""
    claim = holding(vision, pool, 0)
    quarantines.quarantine(actor=operator, node=node(), card=None, why="XID 79")
    claim.refresh_from_db()
    first = claim.leave_by
    Claim.objects.filter(pk=claim.pk).update(state=ClaimState.HOLDING, leave_by=None)
    late = holding(vision, pool, 1)
    assert quarantines.keep(now=timezone.now()) == 1
    assert (state(claim), claim.leave_by, state(late)) == (ClaimState.LEAVING, first, ClaimState.LEAVING)
    assert quarantines.keep(now=timezone.now()) == 0


def test_quarantine_ends_at_the_time_that_the_operator_set(pool: Pool, vision: Department, operator: Actor) -> None:
    until = timezone.now() + dt.timedelta(hours=1)
    row = quarantines.quarantine(actor=operator, node=node(), card=None, why="new fan", until=until)
    assert quarantines.keep(now=until - dt.timedelta(seconds=1)) == 0
    assert quarantines.keep(now=until) == 1
    row.refresh_from_db()
    assert (row.ended_at, row.ended_by, node().quarantined) == (until, None, False)


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"why": " "}, "why"),
        ({"why": "x" * 501}, "why"),
        ({"why": "bell \x07"}, "why"),
        ({"card": 9}, "card"),
        ({"until": timezone.now() - dt.timedelta(days=1)}, "until"),
    ],
)
def test_bad_input_is_refused_with_its_field_and_changes_nothing(
    pool: Pool, operator: Actor, fields: dict[str, Any], field: str
) -> None:
    with pytest.raises(Invalid) as error:
        quarantines.quarantine(actor=operator, node=node(), **({"card": None, "why": "ECC"} | fields))
    assert error.value.field == field
    assert not Quarantine.objects.exists()


def test_single_card_cannot_be_quarantined_where_the_cluster_chooses_cards(
    pool: Pool, vision: Department, operator: Actor
) -> None:
    type(pool.group.cluster).objects.update(kind=ClusterKind.KUBERNETES)
    claim = holding(vision, pool, 0)
    with pytest.raises(Invalid, match="Quarantine the whole node"):
        quarantines.quarantine(actor=operator, node=node(), card=0, why="ECC")
    answers = {node().pk: Answer({Sign("card/unhealthy", 0): WHY}, {0})}
    quarantines.judge(node().cluster, "card", answers, now=timezone.now())
    assert (present(pool), state(claim)) == (7, ClaimState.HOLDING), "it is not known which claim uses the card"


def test_only_operators_can_begin_or_end_a_quarantine(pool: Pool, vision: Department, operator: Actor) -> None:
    member = Actor(make.member(vision))
    with pytest.raises(NotVisible):
        quarantines.quarantine(actor=member, node=node(), card=None, why="mine")
    row = quarantines.quarantine(actor=operator, node=node(), card=None, why="ECC")
    with pytest.raises(NotVisible):
        quarantines.put_back(actor=member, row=row)


def test_database_allows_one_row_per_place_and_sign(pool: Pool) -> None:
    Quarantine.objects.create(node=node(), sign="node/x")
    with pytest.raises(IntegrityError), transaction.atomic():
        Quarantine.objects.create(node=node(), sign="node/x")
    Quarantine.objects.create(node=node(), sign="node/x", card=0)


# Operators ------------------------------------------------------------------------------------------------------------


def test_operators_are_notified_once_when_it_begins_and_once_when_it_ends(pool: Pool, operator: Actor) -> None:
    """By inbox and mail, however often the rule checks; an operator is not notified of what they do themselves."""
    other = make.user("other", is_operator=True, email="other@example.org")
    now = timezone.now()
    for minutes in range(4):
        judged(XID, now=now + dt.timedelta(minutes=minutes))
    assert messages_of(other) == [("node.quarantined", True)]
    for minutes in (4, 5, 15, 16, 17):
        judged(now=now + dt.timedelta(minutes=minutes))
    assert messages_of(other) == [("node.quarantined", True), ("node.quarantine_ended", True)]
    row = quarantines.quarantine(actor=operator, node=node(), card=3, why="fan")
    quarantines.put_back(actor=operator, row=row)
    assert [kind for kind, _mailed in messages_of(other)[2:]] == ["node.quarantined", "node.quarantine_ended"]
    assert [kind for kind, _mailed in messages_of(operator.user)] == ["node.quarantined", "node.quarantine_ended"]


def test_quarantine_and_its_notification_are_written_in_one_transaction(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    make.user("oscar", is_operator=True)

    class Killed(BaseException):
        pass

    def killed(*_who: Any, **_facts: Any) -> None:
        raise Killed

    monkeypatch.setattr("quotas.health.quarantines.notices.send", killed)
    with pytest.raises(Killed):
        judged(XID, now=timezone.now())
    monkeypatch.undo()
    assert not Quarantine.objects.exists()
    judged(XID, now=timezone.now())
    assert InboxItem.objects.filter(kind="node.quarantined").count() == 1
