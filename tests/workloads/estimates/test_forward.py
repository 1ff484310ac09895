"""Estimated starts of waiting claims: small queues that can be worked out by hand, and properties of every queue."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random
from statistics import correlation
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quotas.engine.types import Claim, ClaimId, ClaimState, Department, DepartmentId, Placed, Quota, Settings, Snapshot
from workloads.estimates.forward import HORIZON, PLAYS, Estimate, Estimates, NoEstimate, estimates
from workloads.estimates.runtimes import ENOUGH, TOGETHER, Chances, Class, Runtimes, Traits
from workloads.replay.demand import Job
from workloads.replay.traces import GPU, rules_of

HOUR, NOW = 3600, 1_000_000
NOTICE, GRACE = 600, 120
KIND = Traits("ann", "vision", "python", "job", 1)


def traits(user: str = "ann", department: str = "vision") -> Traits:
    return replace(KIND, user=user, department=department)


def runtimes(*durations: int) -> Runtimes:
    known = Runtimes()
    for duration in durations:
        known.learn(KIND, duration)
    return known


def claim(id: str, units: int, department: str = "vision", started: int | None = None, **more: Any) -> Claim:
    state = ClaimState.PENDING if started is None else ClaimState.HOLDING
    at = NOW - 60 if started is None else started
    return Claim(ClaimId(id), DepartmentId(department), GPU, units, state, at, started_at=started, **more)


def world(*claims: Claim, **guaranteed: int) -> Snapshot:
    rules = rules_of(
        {DepartmentId(id): units for id, units in guaranteed.items()}, 0, Settings(notice=NOTICE, grace=GRACE)
    )
    return replace(rules, now=NOW, claims=claims)


def of(snapshot: Snapshot, known: Runtimes) -> Estimates:
    return estimates(snapshot, {each.id: traits(department=each.department) for each in snapshot.claims}, known)


def test_claim_behind_a_workload_of_two_hours_starts_when_it_ends() -> None:
    full = world(claim("runs", 4, started=NOW - HOUR), claim("waits", 4), vision=4)
    found = of(full, runtimes(*[2 * HOUR] * ENOUGH))["waits"]
    assert found == Estimate(NOW + HOUR, NOW + HOUR, NOW + HOUR, PLAYS, basis=Class.USER_AND_IMAGE)


def test_range_is_as_wide_as_the_known_runtimes_differ() -> None:
    full = world(claim("runs", 4, started=NOW), claim("waits", 4), vision=4)
    found = of(full, runtimes(*[HOUR] * 20, *[3 * HOUR] * 20))["waits"]
    assert isinstance(found, Estimate)
    assert (found.low, found.high) == (NOW + HOUR, NOW + 3 * HOUR)


def test_workload_past_usual_runtimes_is_expected_to_end_like_earlier_long_ones() -> None:
    full = world(claim("runs", 4, started=NOW - 5 * HOUR), claim("waits", 4), vision=4)
    found = of(full, runtimes(*[HOUR] * 50, *[6 * HOUR] * ENOUGH))["waits"]
    assert found == Estimate(NOW + HOUR, NOW + HOUR, NOW + HOUR, PLAYS, basis=Class.USER_AND_IMAGE)


def test_claim_within_guarantee_starts_after_the_borrowers_notice_and_grace() -> None:
    lent = world(claim("lent", 4, "nlp", started=NOW - HOUR), claim("mine", 4), vision=4, nlp=0)
    found = of(lent, runtimes(*[50 * HOUR] * ENOUGH))["mine"]
    assert isinstance(found, Estimate)
    assert found.low == found.high
    assert NOW + NOTICE + GRACE <= found.median <= NOW + NOTICE + GRACE + 60


def drained(*claims: Claim, **guaranteed: int) -> Snapshot:
    """A world on nodes of 4 cards, the last of which is drained."""
    whole = rules_of(
        {DepartmentId(id): units for id, units in guaranteed.items()}, 4, Settings(notice=NOTICE, grace=GRACE)
    )
    (pool,) = whole.pools
    assert pool.nodes is not None
    lost = replace(pool, nodes=pool.nodes[:-1], nominal=sum(guaranteed.values()))
    return replace(whole, now=NOW, claims=claims, pools=(lost,))


def on(node: str, each: Claim) -> Claim:
    return replace(each, placement=(Placed(0, node, (0, 1, 2, 3)),))


@pytest.mark.parametrize(("drained_since", "runs_since"), [(NOW - HOUR, NOW), (NOW, NOW - HOUR)])
def test_workload_on_a_drained_node_frees_nothing_when_it_ends(drained_since: int, runs_since: int) -> None:
    lost, present = on("n2", claim("drained", 4, started=drained_since)), on("n1", claim("runs", 4, started=runs_since))
    found = of(drained(lost, present, claim("waits", 4), vision=8), runtimes(*[2 * HOUR] * ENOUGH))["waits"]
    assert isinstance(found, Estimate)
    assert (found.low, found.high) == (runs_since + 2 * HOUR, runs_since + 2 * HOUR)


def test_workload_on_a_drained_node_takes_nothing_from_others_beside_a_recall() -> None:
    """Of 8 present cards a recall holds 4. Of two claims of its department, one draws from it, the other starts on the rest."""
    recall = Claim(
        ClaimId("recall"), DepartmentId("vision"), GPU, 4, ClaimState.HOLDING, NOW - HOUR, pods=0, preemptible=False,
        started_at=NOW - HOUR,
    )  # fmt: skip
    gone = on("n3", claim("drained", 4, "nlp", started=NOW - HOUR))
    world = drained(recall, gone, claim("one", 4), claim("other", 4), vision=8, nlp=4)
    known = {each.id: traits(department=each.department) for each in world.claims if not each.is_recall}
    found = estimates(world, known, runtimes(*[9 * HOUR] * ENOUGH))
    assert [each.median for each in found.values() if isinstance(each, Estimate)] == [NOW, NOW]


def test_second_claim_in_the_queue_waits_for_the_first() -> None:
    queue = world(
        claim("runs", 4, started=NOW), claim("first", 4), replace(claim("second", 4), submitted_at=NOW - 30), vision=4
    )
    found = of(queue, runtimes(*[HOUR] * ENOUGH))
    first, second = found["first"], found["second"]
    assert isinstance(first, Estimate)
    assert isinstance(second, Estimate)
    assert second.median - first.median == HOUR


def test_maximum_runtime_is_used_if_runtimes_are_unknown() -> None:
    full = world(claim("runs", 4, started=NOW - HOUR, max_runtime=3 * HOUR), claim("waits", 4), vision=4)
    found = of(full, Runtimes())["waits"]
    end = NOW + 2 * HOUR
    assert found == Estimate(end, end, end, PLAYS, end, Class.LIMIT)


def test_latest_start_is_when_all_running_work_reaches_its_maximum_runtime() -> None:
    full = world(claim("runs", 4, started=NOW - HOUR, max_runtime=9 * HOUR), claim("waits", 4), vision=4)
    found = of(full, runtimes(*[2 * HOUR] * ENOUGH))["waits"]
    assert found == Estimate(NOW + HOUR, NOW + HOUR, NOW + HOUR, PLAYS, NOW + 8 * HOUR, Class.USER_AND_IMAGE)


def test_estimate_names_the_class_of_runtimes_it_is_based_on() -> None:
    known, full = (
        runtimes(*[2 * HOUR] * ENOUGH),
        world(claim("runs", 4, "nlp", started=NOW), claim("waits", 4), nlp=4, vision=0),
    )
    others = {each.id: traits("bob", each.department) for each in full.claims}
    found = estimates(full, others, known)["waits"]
    assert isinstance(found, Estimate)
    assert found.basis is Class.KIND


class ClosingWindow:
    """A calendar: from `at` on, the department `vision` lends nothing and takes back what it has lent."""

    def __init__(self, snapshot: Snapshot, at: int) -> None:
        self.snapshot, self.at = snapshot, at

    def turns(self) -> list[int]:
        return [self.at]

    def departments(self, now: int) -> tuple[Department, ...]:
        kept = Quota(guaranteed=4, lend_limit=0 if now >= self.at else None, lend_limit_most=4)
        return tuple(
            replace(each, quotas={GPU: kept}) if each.id == "vision" else each for each in self.snapshot.departments
        )

    def due(self, snapshot: Snapshot) -> list[tuple[Claim, int]]:
        return []


def test_lending_windows_close_within_a_play() -> None:
    """The waiting claim could borrow after three hours; in the second case the window has closed by then."""
    full = world(claim("runs", 4, "nlp", started=NOW), claim("waits", 4, "nlp"), vision=4, nlp=0)
    ids, known = {each.id: KIND for each in full.claims}, runtimes(*[3 * HOUR] * ENOUGH)
    open_, closed = (
        estimates(full, ids, known, calendar=lambda at=at: ClosingWindow(full, NOW + at))["waits"]
        for at in (5 * HOUR, 2 * HOUR)
    )
    assert isinstance(open_, Estimate)
    assert open_.median == NOW + 3 * HOUR
    assert closed == NoEstimate("beyond_horizon")


def test_recall_holds_its_units_until_its_end() -> None:
    recall = Claim(
        ClaimId("recall"), DepartmentId("vision"), GPU, 4, ClaimState.HOLDING, NOW - HOUR, pods=0, preemptible=False,
        own_only=True, started_at=NOW - HOUR,
    )  # fmt: skip
    full = world(recall, claim("waits", 4, "nlp"), vision=4, nlp=0)
    found = estimates(full, {ClaimId("waits"): KIND}, Runtimes(), ends={recall.id: NOW + 2 * HOUR})["waits"]
    assert isinstance(found, Estimate)
    assert found.median == NOW + 2 * HOUR


def test_there_is_no_estimate_without_known_runtimes_or_beyond_the_horizon() -> None:
    full = world(claim("runs", 4, started=NOW), claim("waits", 4), vision=4)
    assert of(full, Runtimes())["waits"] == NoEstimate("runtimes_unknown")
    assert of(full, runtimes(*[2 * HORIZON] * ENOUGH))["waits"] == NoEstimate("beyond_horizon")


def test_claims_expected_from_earlier_days_can_start_before_a_borrower() -> None:
    """An owner submitted two hours after this time on each past day: it is expected today as well, and a borrower waits."""
    full = world(claim("runs", 4, "nlp", started=NOW), claim("waits", 4, "nlp"), vision=4, nlp=0)
    known = runtimes(*[3 * HOUR] * ENOUGH)
    ids = {each.id: KIND for each in full.claims}
    arrivals = [
        Job(replace(claim(f"owner-{day}", 4), submitted_at=NOW - day * 24 * HOUR + 2 * HOUR), 5 * HOUR)
        for day in range(1, 4)
    ]
    alone, among = estimates(full, ids, known)["waits"], estimates(full, ids, known, arrivals)["waits"]
    assert isinstance(alone, Estimate)
    assert isinstance(among, Estimate)
    assert (alone.median, among.median >= NOW + 7 * HOUR) == (NOW + 3 * HOUR, True)


def test_without_time_for_enough_plays_there_is_no_estimate() -> None:
    full = world(claim("runs", 4, started=NOW), claim("waits", 4), vision=4)
    known = runtimes(*[HOUR] * ENOUGH)
    ids = {each.id: KIND for each in full.claims}
    assert estimates(full, ids, known, out_of_time=lambda: True) == {"waits": NoEstimate("too_many")}


def test_runtimes_are_taken_from_the_narrowest_class_with_enough_runs() -> None:
    known = Runtimes()
    bob = replace(KIND, user="bob", image="torch")
    for _ in range(ENOUGH):
        known.learn(KIND, HOUR)
        known.learn(replace(KIND, user="carol", department="nlp"), 9 * HOUR)
    known.learn(bob, 5 * HOUR)
    found, longer = known.like(bob), known.like(KIND, elapsed=2 * HOUR)
    assert found is not None
    assert longer is not None
    assert (found[0], set(found[1].times)) == (Class.DEPARTMENT, {HOUR, 5 * HOUR})
    assert (longer[0], [longer[1].draw(2 * HOUR, part) for part in (0.99, 0.5)]) == (Class.KIND, [5 * HOUR, 9 * HOUR])


def test_unfinished_runs_count_with_the_time_they_have_lasted() -> None:
    """Ten of twenty runs ended after an hour, and ten are still running after four: half of all take longer than that."""
    known = runtimes(*[HOUR] * 10)
    for _ in range(10):
        known.learn(KIND, 4 * HOUR, over=False)
    drawn = sorted(known.draw(KIND, (number + 0.5) / 400) or 0 for number in range(400))
    assert drawn[100] == HOUR
    assert 0.4 < sum(each > 4 * HOUR for each in drawn) / 400 < 0.6


def test_half_of_runs_beyond_the_known_runtimes_last_as_long_again() -> None:
    known = runtimes(*[HOUR] * ENOUGH)
    drawn = sorted(known.draw(KIND, (number + 0.5) / 400, elapsed=10 * HOUR) or 0 for number in range(400))
    assert 18 * HOUR < drawn[200] < 22 * HOUR
    assert drawn[0] > 10 * HOUR


def test_runtimes_of_one_person_are_correlated_and_each_is_uniformly_drawn() -> None:
    pairs = []
    for seed in range(2000):
        chances = Chances(Random(seed))
        pairs.append([chances.of(each) for each in (KIND, KIND, traits("bob"))])
    own, again, other = zip(*pairs, strict=True)
    for each in (own, again, other):
        assert all(abs(sorted(each)[at] - at / 2000) < 0.04 for at in range(0, 2000, 100))
    assert abs(correlation(own, again) - TOGETHER) < 0.06
    assert abs(correlation(own, other)) < 0.06


def test_range_behind_many_runs_of_one_person_is_wider_than_of_many_people() -> None:
    known = Runtimes()
    for person in range(101):
        for hours in range(1, ENOUGH + 1):
            known.learn(traits(f"user-{person}"), hours * HOUR)
    full = world(*(claim(f"runs-{n}", 1, started=NOW) for n in range(100)), claim("waits", 50), vision=100)

    def width(person: Callable[[int], int]) -> int:
        whose = {each.id: traits(f"user-{person(n)}") for n, each in enumerate(full.claims)}
        found = estimates(full, whose, known)[ClaimId("waits")]
        assert isinstance(found, Estimate)
        assert found.high is not None
        return found.high - found.low

    assert width(lambda _n: 0) >= 2 * HOUR > HOUR >= width(lambda n: n)


sizes = st.lists(st.tuples(st.integers(1, 4), st.sampled_from(["vision", "nlp"]), st.booleans()), max_size=7)


@settings(max_examples=40)
@given(sizes, st.lists(st.integers(60, 5 * HOUR), min_size=ENOUGH, max_size=20))
def test_ranges_are_ordered_never_before_now_and_reproducible(
    wanted: list[tuple[int, str, bool]], durations: list[int]
) -> None:
    free, claims = 8, []
    for number, (units, department, runs) in enumerate(wanted):
        runs = runs and units <= free
        free -= units if runs else 0
        claims.append(claim(str(number), units, department, NOW - 100 if runs else None))
    snapshot, known = world(*claims, vision=5, nlp=3), runtimes(*durations)
    found = of(snapshot, known)
    assert found == of(snapshot, known)
    assert found.keys() == {each.id for each in claims if each.state is ClaimState.PENDING}
    for each in found.values():
        if isinstance(each, Estimate):
            assert NOW <= each.low <= each.median <= (each.high or each.median)
