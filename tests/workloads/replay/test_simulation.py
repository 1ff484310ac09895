"""Demand played forward: small cases with known results, and properties that hold for every demand."""

from __future__ import annotations

from typing import Any

import pytest

from bench._demand import made_up
from quotas.engine.types import Claim, ClaimId, ClaimState, DepartmentId, Settings, Snapshot
from quotas.spending.decay import PART_BITS, Decaying, Lately
from workloads.replay import ways
from workloads.replay.accounting import Line, Outcome, Record
from workloads.replay.demand import Demand, Job
from workloads.replay.figures import figures_of
from workloads.replay.simulation import Assumed, Simulation
from workloads.replay.traces import GPU, demand_of, in_proportion, rules_of
from workloads.replay.ways import planner, pooled, static

HOUR = 3600
NOTICE, GRACE = 600, 120
ASSUMED = Assumed(checkpoint_every=1800, restart=60, between_passes=1)


def rules(on_a_node: int = 0, **guaranteed: int) -> Snapshot:
    settings = Settings(restart_cost=60, notice=NOTICE, grace=GRACE)
    return rules_of({DepartmentId(id): units for id, units in guaranteed.items()}, on_a_node, settings)


def job(id: str, department: str, units: int, at: int, work: int, **more: Any) -> Job:
    return Job(Claim(ClaimId(id), DepartmentId(department), GPU, units, ClaimState.PENDING, at), work, **more)


def played(
    world: Snapshot, *jobs: Job, way: ways.Way = planner, assumed: Assumed = ASSUMED, hours: int = 24
) -> Outcome:
    return Simulation(world, Demand(0, hours * HOUR, jobs), way, assumed).play()


def by_id(outcome: Outcome) -> dict[str, Record]:
    return {record.job.request.id: record for record in outcome.records}


def test_owner_reclaims_lent_cards_within_notice_and_grace_and_the_borrower_resumes_later() -> None:
    lent = job("lent", "nlp", 4, 0, 5 * HOUR)
    mine = job("mine", "vision", 4, 3 * HOUR, HOUR)
    result = by_id(played(rules(vision=4, nlp=0), lent, mine))
    owner, borrower = result["mine"], result["lent"]
    assert owner.first_start == 3 * HOUR + NOTICE + GRACE
    assert (owner.inside, owner.late, owner.broken) == (True, 0, False)
    # recalled after 3 hours, stopped after notice and grace: it resumes from the checkpoint of 3 hours
    lost_work, restart_cost = NOTICE + GRACE, 60
    assert (borrower.recalls, borrower.lost) == (1, lost_work + restart_cost)
    restarted_at = 3 * HOUR + NOTICE + GRACE + HOUR
    assert borrower.finished_at == restarted_at + restart_cost + 2 * HOUR


def test_job_that_saves_on_notice_loses_only_its_restart_cost() -> None:
    lent = job("lent", "nlp", 4, 0, 5 * HOUR, checkpoint_every=0, saves_on_notice=True)
    result = by_id(played(rules(vision=4, nlp=0), lent, job("mine", "vision", 4, 3 * HOUR + 77, HOUR)))
    assert result["mine"].first_start == 3 * HOUR + 77 + ASSUMED.saving
    assert (result["lent"].recalls, result["lent"].lost) == (1, ASSUMED.restart)


def test_recall_is_withdrawn_when_the_preemptor_finds_other_cards() -> None:
    """The owner starts on cards that another job releases: its former victim keeps running and loses nothing."""
    jobs = [
        job("short", "nlp", 4, 0, 2 * HOUR + 60),
        job("lent", "nlp", 4, 1, 5 * HOUR),
        job("mine", "vision", 4, 2 * HOUR, HOUR),
    ]
    result = by_id(played(rules(vision=4, nlp=4), *jobs))
    assert result["mine"].first_start == 2 * HOUR + 60
    assert [result[id].recalls for id in ("short", "lent")] == [0, 0]


def test_job_recalled_more_often_than_its_pool_allows_ends() -> None:
    assumed = Assumed(between_passes=1, most_recalls={GPU: 0})
    lent, mine = job("lent", "nlp", 4, 0, 5 * HOUR), job("mine", "vision", 4, HOUR, HOUR)
    result = by_id(played(rules(vision=4, nlp=0), lent, mine, assumed=assumed))
    assert (result["lent"].refused, result["lent"].finished_at, result["lent"].recalls) == (True, None, 1)


def test_claim_that_fits_on_no_node_is_refused() -> None:
    too_large = Claim(ClaimId("large"), DepartmentId("vision"), GPU, 8, ClaimState.PENDING, 0)
    result = by_id(played(rules(4, vision=8), Job(too_large, HOUR), job("fits", "vision", 4, 0, HOUR)))
    assert result["large"].refused
    assert result["fits"].finished_at == HOUR


def test_idle_cards_are_counted_by_the_reason_that_keeps_them_idle() -> None:
    """One card is free on each of two nodes for 50 minutes: the job of 2 cards fits on neither."""
    jobs = [job("a", "vision", 1, 0, 600), *(job(f"b{n}", "vision", 1, 0, HOUR) for n in range(2))]
    outcome = played(rules(2, vision=4), *jobs, job("two", "vision", 2, 10, HOUR))
    assert dict(outcome.idle) == {("fragmented", "vision"): 2 * 3000, ("too_little_for_anybody", ""): 590}


SYNTHETIC = made_up(400, 3)


def synthetic_outcome(way: ways.Way, load: float = 0.95, on_a_node: int = 8) -> Outcome:
    demand = demand_of(SYNTHETIC, SYNTHETIC[0].submitted_at, SYNTHETIC[0].submitted_at + 4 * 24 * HOUR, on_a_node)
    weights = demand.units_in_use()
    world = rules(on_a_node, **in_proportion(weights, round(sum(weights.values()) / load)))
    return Simulation(world, demand, way, Assumed(restart=60)).play()


@pytest.mark.parametrize("way", [planner, pooled, static])
def test_every_second_of_use_is_work_or_loss(way: ways.Way) -> None:
    outcome = synthetic_outcome(way)
    finished = [record for record in outcome.records if record.finished_at is not None]
    assert len(finished) > 300
    for record in finished:
        assert record.attempts == record.recalls + 1
        assert record.finished_at is not None
        assert record.finished_at >= record.job.request.submitted_at + record.job.work + record.lost
    work = sum(record.job.work * record.job.request.units for record in finished)
    running = sum(line.used for line in outcome.lines) - sum(line.lost for line in outcome.lines) - work
    rest = sum(record.job.work * record.job.request.units for record in outcome.records if record.finished_at is None)
    assert 0 <= running <= rest


def test_replay_is_deterministic_and_reports_its_progress() -> None:
    parts: list[float] = []
    demand = demand_of(SYNTHETIC, SYNTHETIC[0].submitted_at, SYNTHETIC[0].submitted_at + 24 * HOUR, 8)
    world = rules(8, **in_proportion(demand.units_in_use(), 40))
    one, other = (
        figures_of(Simulation(world, demand, planner, Assumed()).play(progress))
        for progress in (parts.append, lambda part: None)
    )
    assert one == other
    assert parts == sorted(parts)
    assert parts


def test_a_common_queue_preempts_nothing_and_a_static_partition_lends_nothing() -> None:
    one_queue, partition, lending = (figures_of(synthetic_outcome(way))["all"] for way in (pooled, static, planner))
    assert one_queue["stops"] == partition["stops"] == 0
    assert partition["gpu_hours_borrowed"] == 0 < lending["gpu_hours_borrowed"]
    assert partition["lost_of_borrowed"] is None  # a share of zero
    assert partition["late"] == 0 < one_queue["late"]
    assert lending["utilisation"] > partition["utilisation"]


def test_equal_claims_behind_the_first_get_its_answer_without_changing_the_result(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    few = figures_of(synthetic_outcome(planner))
    monkeypatch.setattr(ways, "FEW", 10**9)
    assert figures_of(synthetic_outcome(planner)) == few


def test_department_figures_add_up_to_the_totals() -> None:
    figures = figures_of(synthetic_outcome(planner))
    for name in ("jobs", "stops", "late", "gpu_hours_used", "gpu_hours_borrowed", "gpu_hours_lost"):
        total = sum(each[name] for each in figures["departments"].values())
        assert total == pytest.approx(figures["all"][name], abs=1), name


def test_course_by_period_adds_up_to_total_use_borrowing_and_waiting() -> None:
    outcome = synthetic_outcome(planner)
    figures = figures_of(outcome, with_course=True)
    together, period = figures["all"], figures["period_s"]
    assert (outcome.end - outcome.begin) / period == 96
    for name, total in (("used", "gpu_hours_used"), ("borrowed", "gpu_hours_borrowed")):
        hours = sum(together["course"][name]) * period / HOUR
        assert hours == pytest.approx(together[total], abs=0.01 * 96), name
        for at, value in enumerate(together["course"][name]):
            parts = sum(each["course"][name][at] for each in figures["departments"].values())
            assert parts == pytest.approx(value, abs=0.01 * len(figures["departments"]))
    waited = sum(line.waited for line in outcome.lines) / HOUR
    assert sum(together["course"]["waiting"]) * period / HOUR == pytest.approx(waited, abs=1)
    assert waited > 0


@pytest.mark.parametrize(
    ("seconds", "period", "periods"),
    [(HOUR * 7 // 2, HOUR, 4), (30 * 24 * HOUR, 6 * HOUR, 120), (92 * 24 * HOUR, 24 * HOUR, 92), (1, HOUR, 1)],
)
def test_periods_are_whole_hours_and_the_last_ends_with_the_replay(seconds: int, period: int, periods: int) -> None:
    line = Line("vision", "a100", 4, 1.0, used_now=2, waiting_now=1)
    outcome = Outcome(1_000, 1_000 + seconds, 4, [], [line])
    outcome.pass_time(1_000, 1_000 + seconds // 3)
    outcome.pass_time(1_000 + seconds // 3, 1_000 + seconds)
    assert (outcome.period, len(line.course)) == (period, periods)
    assert line.course[-1] == (2 * seconds, 0, seconds)
    if periods > 1:
        assert line.course[0] == (2 * period, 0, period)


DAYS = 24 * HOUR


def test_department_that_lent_earlier_borrows_first_with_fairness_over_time() -> None:
    """For ten hours NLP borrows what Vision leaves idle. Then both submit jobs above their guarantees, NLP first; what Bio
    leaves idle is enough for one of them."""
    world = rules(vision=4, nlp=4, bio=4)
    before = job("before", "nlp", 8, 0, 10 * HOUR)
    busy = [job(f"{name}-own", name, 4, 11 * HOUR, 5 * HOUR) for name in ("vision", "nlp")]
    more = [job(f"{name}-more", name, 4, 11 * HOUR + after, 5 * HOUR) for name, after in (("nlp", 1), ("vision", 2))]
    lately = Assumed(between_passes=60, half_lives={GPU: 7 * DAYS})
    for assumed, first in ((ASSUMED, "nlp-more"), (lately, "vision-more")):
        result = by_id(played(world, before, *busy, *more, assumed=assumed))
        starts = {id: result[id].first_start for id in ("nlp-more", "vision-more")}
        assert min(starts, key=lambda id: starts[id] or DAYS) == first, (assumed, starts)


def test_loans_before_the_replay_count_for_fairness_over_time() -> None:
    """The same without the ten hours: the loans of that time are given as initial balances."""
    world = rules(vision=4, nlp=4, bio=4)
    more = [job(f"{name}-more", name, 8, 0, HOUR) for name in ("nlp", "vision")]
    before = {
        DepartmentId("nlp"): Lately(borrowed=HOUR << PART_BITS),
        DepartmentId("vision"): Lately(lent=HOUR << PART_BITS),
    }
    for lately, first in ({}, "nlp-more"), ({GPU: before}, "vision-more"):
        result = by_id(played(world, *more, assumed=Assumed(between_passes=60, half_lives={GPU: DAYS}, lately=lately)))
        assert min(result, key=lambda id: result[id].first_start or 0) == first
    assert before[DepartmentId("nlp")].lent == 0


def test_replay_counts_loans_as_the_product_counts_them_from_its_ledger() -> None:
    """Ten and a half hours of 4 cards, from 0:30, replayed and calculated by hand."""
    world = rules(vision=4, nlp=4)
    loan = job("loan", "nlp", 8, HOUR // 2, 10 * HOUR + HOUR // 2)
    simulation = Simulation(world, Demand(0, 12 * HOUR, (loan,)), planner, Assumed(half_lives={GPU: DAYS}))
    outcome = simulation.play()
    assert {line.department: (line.borrowed, line.lent) for line in outcome.lines} == {
        "nlp": (42 * HOUR, 0), "vision": (0, 42 * HOUR),
    }  # fmt: skip
    expected = Decaying[str](DAYS, 0)
    for hour, seconds in Decaying.by_hours(HOUR // 2, 11 * HOUR):
        expected.pass_to(hour)
        expected.count("nlp", borrowed=4 * seconds)
        expected.count("vision", lent=4 * seconds)
    expected.pass_to(11)
    lately = simulation._lately[GPU]
    lately.pass_to(11)
    assert lately.sums == expected.sums


@pytest.mark.parametrize("half_life", [HOUR, 24 * HOUR, None])
def test_total_lent_equals_total_borrowed_when_all_capacity_is_guaranteed(half_life: int | None) -> None:
    """To the unit-second, over a whole replay; the decayed sums lose less than one part of a unit-second an hour each."""
    demand = demand_of(SYNTHETIC, SYNTHETIC[0].submitted_at, SYNTHETIC[0].submitted_at + 4 * 24 * HOUR, 8)
    world = rules(8, **in_proportion(demand.units_in_use(), 56))
    balances = {} if half_life is None else {GPU: half_life}
    simulation = Simulation(world, demand, planner, Assumed(half_lives=balances), counts_lent=not balances)
    lines = simulation.play().lines
    assert sum(line.lent for line in lines) == sum(line.borrowed for line in lines) > 0
    for lately in simulation._lately.values():
        assert abs(sum(each.lent - each.borrowed for each in lately.sums.values())) <= len(lines) * 4 * 24
