"""Previews of a request (what would happen, before it is submitted), and the sentences of decisions and reasons."""

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


def test_preview_of_a_start_from_own_quota_has_the_numbers_of_the_department() -> None:
    claims = [holding("h", "vision", 5)]
    preview = verdict(
        a_snapshot(a_pool(nodes=nodes(8)), [a_department("vision", 8)], claims), pending("w", "vision", 2)
    )
    assert preview.headline is Headline.STARTS_OWN
    assert (preview.guaranteed, preview.in_use, preview.in_use_after, preview.own) == (8, 5, 7, 2)
    assert preview.placement == (Placed(0, "n1", (0, 1)),)


def test_preview_of_a_start_that_borrows_names_lenders_notice_and_grace() -> None:
    departments = [a_department("vision", 2), a_department("nlp", 6)]
    preview = verdict(a_snapshot(a_pool(8), departments, [], notice=600, grace=120), pending("w", "vision", 4))
    assert preview.headline is Headline.STARTS_BORROWING
    assert (preview.own, preview.borrowed, preview.from_, preview.notice, preview.grace) == (2, 2, {"nlp": 2}, 600, 120)


def test_preview_of_a_reclaim_names_the_time_and_who_returns_how_much() -> None:
    departments = [a_department("vision", 4), a_department("nlp", 4)]
    snapshot = a_snapshot(a_pool(8), departments, [holding("h", "nlp", 4), holding("i", "nlp", 4)], notice=600)
    preview = verdict(snapshot, pending("w", "vision", 4))
    assert (preview.headline, preview.by, preview.returning) == (Headline.STARTS_BY, 600, {"nlp": 4})


def test_preview_of_waiting_names_the_position_and_the_claims_ahead() -> None:
    departments = [a_department("vision", 4, borrow_limit=4)]
    claims = [holding("h", "vision", 8), pending("sweep", "vision", 4)]
    preview = verdict(a_snapshot(a_pool(8, nominal=12), departments, claims), pending("w", "vision", 2, submitted_at=0))
    assert (preview.headline, preview.position, preview.ahead) == (Headline.WAITS, 2, ("sweep",))


def test_preview_of_an_impossible_request_names_the_largest_that_can_run() -> None:
    departments = [a_department("vision", 8, borrow_limit=4), a_department("nlp", 12)]
    preview = verdict(a_snapshot(a_pool(20), departments, []), pending("w", "vision", 16))
    assert (preview.headline, preview.largest) == (Headline.CANNOT, 12)


def test_preview_needs_a_pending_claim_with_a_new_id() -> None:
    snapshot = a_snapshot(a_pool(8), [a_department("vision", 8)], [holding("h", "vision", 2)])
    with pytest.raises(ValueError, match="not pending"):
        verdict(snapshot, holding("w", "vision", 1))
    with pytest.raises(ValueError, match="there already"):
        verdict(snapshot, pending("h", "vision", 1))


# Sentences ------------------------------------------------------------------------------------------------------------


def test_every_reason_has_a_sentence_and_advice() -> None:
    assert all(kind.sentence and kind.advice for kind in REASONS.values())


def test_advice_is_given_once_and_not_to_request_less_where_less_is_offered() -> None:
    short, above = NotEnough("a100", 2), AboveCeiling(4)
    assert advices([short, short, above]) == [NotEnough.advice, AboveCeiling.advice]
    assert advices([short, BackoffUntil(9)], str.upper, less_is_offered=True) == [
        "OR WAIT UNTIL ANOTHER WORKLOAD ENDS.", "NO ACTION NEEDED: IT IS RETRIED AUTOMATICALLY.",
    ]  # fmt: skip


def test_sentences_format_numbers_and_names_for_their_reader() -> None:
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


def test_claim_that_draws_from_a_recall_adds_no_usage_to_its_department() -> None:
    """Four of six units are recalled: a claim for one of them does not change the usage of the department."""
    claims = [holding("back", "vision", 4, pods=0, started_at=-50), holding("train", "vision", 2)]
    snapshot = a_snapshot(a_pool(8), [a_department("vision", 6)], claims)
    preview = verdict(snapshot, pending("mine", "vision", 1))
    assert (preview.in_use, preview.in_use_after, preview.guaranteed, preview.own) == (6, 6, 6, 1)
