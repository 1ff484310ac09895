"""Recalls (rule 20) by a department with teams: they reclaim its own guarantee, and workloads of its teams draw from them."""

from hypothesis import given, settings
from hypothesis import strategies as st

from quotas.engine.placement import Space, rooms_of
from quotas.engine.planning_pass import PlanningPass, decide
from quotas.engine.quota_tree import standing_of, usage_of
from quotas.engine.reasons import NotPreemptible, OwnOnly
from quotas.engine.reservations import initial_state
from quotas.engine.types import DecisionKind, Snapshot
from tests.engine import invariants
from tests.engine.builders import a_department, a_pool, a_snapshot, answers, carried_out, holding, pending
from tests.engine.effort import examples, patient
from tests.engine.strategies import snapshots

pytestmark = patient
ADMIT, RECLAIM, WAIT = DecisionKind.ADMIT, DecisionKind.RECLAIM, DecisionKind.WAIT
LAB, ONE, TWO = a_department("lab", 2), a_department("one", parent="lab"), a_department("two", parent="lab")
GUEST = a_department("guest")


def test_recall_reclaims_the_own_guarantee_of_a_department_with_teams() -> None:
    claims = [holding("loan", "guest", 4), pending("back", "lab", 2, pods=0, own_only=True, preemptible=False)]
    decision = answers(a_snapshot(a_pool(4), [LAB, ONE, TWO, GUEST], claims))["back"]
    assert (decision.decision, decision.own, decision.victims) == (RECLAIM, 2, ("loan",))


def test_recall_waits_for_units_that_the_teams_use() -> None:
    claims = [holding("loan", "guest", 2), holding("mine", "one", 1), pending("back", "lab", 2, pods=0)]
    decision = answers(a_snapshot(a_pool(4), [LAB, ONE, TWO, GUEST], claims))["back"]
    assert decision.decision is WAIT


def test_workloads_of_teams_draw_from_the_recall_and_others_do_not() -> None:
    recall = holding("back", "lab", 2, pods=0, started_at=-50)
    claims = [recall, holding("loan", "guest", 2), pending("team", "one", 2), pending("stranger", "guest", 1)]
    snapshot = a_snapshot(a_pool(4), [LAB, ONE, TWO, GUEST], claims)
    plan = decide(snapshot)
    assert {d.claim: d.decision for d in plan.decisions} == {"team": ADMIT, "stranger": WAIT}
    assert invariants.of_plan(snapshot, plan) == ()
    after = carried_out(snapshot, plan)
    standing = standing_of([c for c in after.claims if c.state == "holding"], after.now, after.departments)
    assert (standing.charges["back"], standing.drawing) == (0, {"team"})
    ledger = usage_of(after, after.pools[0].id)
    assert (ledger["lab"].usage, ledger["one"].usage) == (2, 2)
    assert decide(after).decisions[0].decision is WAIT


def test_reasons_do_not_count_units_that_would_be_drawn_from_a_recall() -> None:
    lab, recall = a_department("lab", 4), holding("back", "lab", 2, pods=0, started_at=-50)
    claims = [
        recall,
        holding("mine", "lab", 2),
        pending("only", "lab", 3, own_only=True),
        pending("firm", "lab", 3, preemptible=False),
    ]
    reasons = {id: decision.reasons for id, decision in answers(a_snapshot(a_pool(6), [lab, GUEST], claims)).items()}
    assert reasons == {"only": (OwnOnly(4, 5),), "firm": (NotPreemptible(4, 5),)}


def test_workload_draws_from_the_nearest_recall_first_and_only_what_it_needs() -> None:
    team = a_department("one", 1, parent="lab")
    recalls = [holding("of-lab", "lab", 2, pods=0, started_at=-90), holding("of-one", "one", 1, pods=0, started_at=-50)]
    snapshot = a_snapshot(a_pool(3), [LAB, team], [*recalls, pending("team", "one", 2)])
    plan = decide(snapshot)
    assert plan.decisions[0].decision is ADMIT
    after = carried_out(snapshot, plan)
    standing = standing_of([c for c in after.claims if c.state == "holding"], after.now, after.departments)
    assert (standing.charges["of-one"], standing.charges["of-lab"]) == (0, 1)


def test_claim_that_finds_no_place_draws_nothing_from_a_recall() -> None:
    """`team` does not fit even with the units of the recall; `small` can still draw from it."""
    claims = [holding("back", "lab", 2, pods=0, started_at=-50), holding("loan", "two", 3)]
    snapshot = a_snapshot(a_pool(5), [LAB, ONE, TWO], [*claims, pending("team", "one", 3), pending("small", "one", 2)])
    decided = answers(snapshot)
    assert (decided["team"].decision, decided["small"].decision) == (WAIT, ADMIT)


def test_claim_that_does_not_start_after_all_returns_what_it_drew() -> None:
    recall = holding("back", "lab", 2, pods=0, started_at=-50)
    snapshot = a_snapshot(a_pool(4), [LAB, ONE, TWO, GUEST], [recall, pending("team", "one", 2)])
    done = PlanningPass(initial_state(snapshot, snapshot.pools[0], *rooms_of(snapshot)))
    done.run()
    (team,) = done.state.started.values()
    assert done.state.standing.charges["back"] == 0  # type: ignore[index]
    done.state.unadmit(team)
    assert done.state.standing.charges["back"] == 2  # type: ignore[index]
    assert [done.state.ledger[name].usage for name in ("lab", "one")] == [2, 0]  # type: ignore[index]
    assert done.state.free_now.row[done.state.pool_slot] == 2


@settings(max_examples=examples(150, 3000), deadline=None)
@given(snapshots(nested=True) | snapshots(nested=True, placed=True), st.integers(1, 4), st.sampled_from("xy"))
def test_plans_with_recalls_by_parents_stay_within_capacity_and_quota(
    snapshot: Snapshot, units: int, parent: str
) -> None:
    space, promised = (
        Space(snapshot.pools, snapshot.departments),
        usage_of(snapshot, snapshot.pools[0].id)[parent].promised,
    )  # type: ignore[index]
    held = min(units, promised, invariants.free_space(snapshot, space)[space.pool[snapshot.pools[0].id]])
    recalls = [pending("r1", parent, units, pods=0, own_only=True, preemptible=False)]
    if held > 0:
        recalls.append(holding("r0", parent, held, pods=0, started_at=-2000))
    case = a_snapshot(snapshot.pools[0], list(snapshot.departments), [*snapshot.claims, *recalls])
    for _ in range(3):
        plan = decide(case)
        assert invariants.of_plan(case, plan) == ()
        case = carried_out(case, plan)
        assert [wrong for wrong in invariants.of_state(case) if wrong.rule == 1] == []


def test_no_team_borrows_before_the_recall_of_its_department_holds_its_units() -> None:
    """The surplus of `h2` is free for teams, but lab would be above its guarantee before its recall holds its units."""
    departments = [a_department("keeps", 3, lend_limit=0, parent="lab"), a_department("team", 1, parent="lab")]
    claims = [
        *(holding("k1", "keeps", 1), holding("k2", "keeps", 1), holding("t", "team", 1)),
        *(holding("h2", "guest", 3), holding("h4", "guest", 3)),
        pending("more", "team", 1), pending("back", "lab", 2, pods=0, own_only=True, preemptible=False),
    ]  # fmt: skip
    decided = answers(a_snapshot(a_pool(10), [*departments, LAB, a_department("guest", 4)], claims))
    assert (decided["back"].decision, decided["more"].decision) == (RECLAIM, WAIT)
    assert [reason.code for reason in decided["more"].reasons] == ["guarantee_kept_for"]
