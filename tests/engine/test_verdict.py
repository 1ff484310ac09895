"""What a request, a quota or a recall would do, before anybody does it."""

import pytest

from quotas.engine.explain import Reader, advice, advices, decision_sentence, sentence
from quotas.engine.reasons import (
    REASONS,
    AboveCeiling,
    BackoffUntil,
    LentOutReturning,
    NotEnough,
    NotLent,
    WaitingForGang,
)
from quotas.engine.types import Placed
from quotas.engine.what_if import Headline, verdict
from tests.engine.builders import a_department, a_pool, a_snapshot, answers, holding, nodes, pending


def test_starts_from_own_quota_with_the_numbers_of_the_department() -> None:
    claims = [holding("h", "vision", 5)]
    seen = verdict(a_snapshot(a_pool(nodes=nodes(8)), [a_department("vision", 8)], claims), pending("w", "vision", 2))
    assert seen.headline is Headline.STARTS_OWN
    assert (seen.guaranteed, seen.in_use, seen.in_use_after, seen.own) == (8, 5, 7, 2)
    assert seen.placement == (Placed(0, "n1", (0, 1)),)


def test_starts_borrowing_says_from_whom_and_how_it_comes_back() -> None:
    departments = [a_department("vision", 2), a_department("nlp", 6)]
    seen = verdict(a_snapshot(a_pool(8), departments, [], notice=600, grace=120), pending("w", "vision", 4))
    assert seen.headline is Headline.STARTS_BORROWING
    assert (seen.own, seen.borrowed, seen.from_, seen.notice, seen.grace) == (2, 2, {"nlp": 2}, 600, 120)


def test_starts_by_says_when_and_who_returns_what() -> None:
    departments = [a_department("vision", 4), a_department("nlp", 4)]
    snapshot = a_snapshot(a_pool(8), departments, [holding("h", "nlp", 4), holding("i", "nlp", 4)], notice=600)
    seen = verdict(snapshot, pending("w", "vision", 4))
    assert (seen.headline, seen.by, seen.returning) == (Headline.STARTS_BY, 600, {"nlp": 4})


def test_waits_says_the_position_and_who_is_ahead() -> None:
    departments = [a_department("vision", 4, borrow_limit=4)]
    claims = [holding("h", "vision", 8), pending("sweep", "vision", 4)]
    seen = verdict(a_snapshot(a_pool(8, nominal=12), departments, claims), pending("w", "vision", 2, submitted_at=0))
    assert (seen.headline, seen.position, seen.ahead) == (Headline.WAITS, 2, ("sweep",))


def test_cannot_says_the_largest_that_can() -> None:
    departments = [a_department("vision", 8, borrow_limit=4), a_department("nlp", 12)]
    seen = verdict(a_snapshot(a_pool(20), departments, []), pending("w", "vision", 16))
    assert (seen.headline, seen.largest) == (Headline.CANNOT, 12)


def test_a_verdict_needs_a_pending_claim_with_an_id_of_its_own() -> None:
    snapshot = a_snapshot(a_pool(8), [a_department("vision", 8)], [holding("h", "vision", 2)])
    with pytest.raises(ValueError, match="not pending"):
        verdict(snapshot, holding("w", "vision", 1))
    with pytest.raises(ValueError, match="there already"):
        verdict(snapshot, pending("h", "vision", 1))


# Sentences ------------------------------------------------------------------------------------------------------------


def test_every_reason_has_a_sentence_and_an_advice() -> None:
    assert all(kind.sentence and kind.advice for kind in REASONS.values())


def test_each_advice_is_given_once_and_less_is_not_advised_where_it_is_offered() -> None:
    short, above = NotEnough("a100", 2), AboveCeiling(4)
    assert advices([short, short, above]) == [NotEnough.advice, AboveCeiling.advice]
    assert advices([short, BackoffUntil(9)], str.upper, less_is_offered=True) == [
        "OR WAIT UNTIL ANOTHER WORKLOAD ENDS.", "NO ACTION NEEDED: IT IS RETRIED AUTOMATICALLY.",
    ]  # fmt: skip


def test_sentences_carry_the_numbers_as_the_reader_writes_them() -> None:
    reader = Reader(time=lambda t: f"{t // 60}:00", units=lambda n: f"{n} cards", claim=str.upper, pool=str.title)
    assert sentence(NotEnough("a100", 2), reader=reader) == "Not enough free capacity: A100 is short of 2 cards."
    returning = LentOutReturning(("w1", "w2"), 720)
    assert sentence(returning, reader=reader) == "The capacity is lent out and returns by 12:00: W1, W2."
    assert sentence(WaitingForGang(1, 2)) == "All pods start together: only 1 of 2 fit now."
    assert sentence(NotLent("nlp", 4), str.lower) == "nlp keeps 4 of its idle quota and does not lend it."
    assert advice(returning) == "No action needed: it starts then."


def test_every_decision_has_a_sentence() -> None:
    departments = [a_department("a", 2, borrow_limit=3), a_department("b", 4)]
    claims = [
        holding("h", "b", 3),
        holding("mine", "a", 3, priority=9),
        pending("first", "b", 1),
        pending("second", "b", 4),
        pending("third", "a", 2),
        pending("fourth", "a", 9),
    ]
    decided = answers(a_snapshot(a_pool(7), departments, claims))
    assert {id: decision_sentence(decision) for id, decision in decided.items()} == {
        "first": "Starts now, from guaranteed quota.",
        "second": "Waiting, first in the queue.",
        "third": "Waiting at position 2, behind second.",
        "fourth": "Cannot run as requested; the largest request that can run is 5.",
    }
    borrowing = answers(a_snapshot(a_pool(9), departments, [pending("w", "a", 4)]))["w"]
    assert decision_sentence(borrowing) == "Starts now, with 2 borrowed from unassigned capacity."
    reclaim = answers(a_snapshot(a_pool(6), departments, [holding("h", "a", 5), pending("w", "b", 4)], notice=60))["w"]
    assert decision_sentence(reclaim) == "Starts by 60 at the latest, after h have been released."


def test_what_draws_from_a_recall_takes_no_more_of_its_department() -> None:
    """Four of six are called back: a claim for one of them leaves the department where it stands."""
    claims = [holding("back", "vision", 4, pods=0, started_at=-50), holding("train", "vision", 2)]
    snapshot = a_snapshot(a_pool(8), [a_department("vision", 6)], claims)
    found = verdict(snapshot, pending("mine", "vision", 1))
    assert (found.in_use, found.in_use_after, found.guaranteed, found.own) == (6, 6, 6, 1)
