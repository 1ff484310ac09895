"""What-if: what a changed quota, a recall, a drained node or another request would change."""

import json
from dataclasses import replace

import pytest

from quotas.engine.explain import difference_sentences
from quotas.engine.snapshot_json import SnapshotError
from quotas.engine.types import Placed, Quota, Snapshot
from quotas.engine.what_if import (
    claims_on,
    what_if,
    with_claim,
    with_quota,
    without_nodes,
)
from quotas.management.commands.plan import difference_to_json
from quotas.management.written_changes import drained, with_change
from tests.engine.builders import a_department, a_pool, a_snapshot, holding, nodes, pending


def test_recall_shows_which_claims_would_be_preempted() -> None:
    departments = [a_department("vision", 4), a_department("nlp", 4)]
    snapshot = a_snapshot(a_pool(8), departments, [holding("h", "nlp", 4), holding("i", "nlp", 4, checkpointed_at=0)])
    difference = what_if(snapshot, with_claim(snapshot, pending("recall", "vision", 3, pods=0)))
    assert (difference.recalled, difference.recalled_units, difference.spared) == (("i",), {"nlp": 4}, ())
    assert [change.claim for change in difference.changes] == ["recall"]


def test_changed_quota_shows_what_becomes_recallable_and_its_victims() -> None:
    departments = [a_department("vision", 4), a_department("nlp", 4)]
    claims = [holding("h", "nlp", 4), holding("v", "vision", 4), pending("w", "vision", 2)]
    snapshot = a_snapshot(a_pool(8), departments, claims)
    changed = with_quota(with_quota(snapshot, "nlp", "gpu", Quota(2)), "vision", "gpu", Quota(6))
    difference = what_if(snapshot, changed)
    assert difference.recallable == {("nlp", "gpu"): 2}
    assert difference.recalled == ("h",)
    with pytest.raises(ValueError, match="no department"):
        with_quota(snapshot, "nobody", "gpu", Quota(2))


def test_drained_node_leaves_the_pool_short() -> None:
    snapshot = a_snapshot(
        [a_pool(nodes=nodes(4, 4)), a_pool(2, id="other")], [a_department("a", 8)], [pending("w", "a", 4, pods=2)]
    )
    difference = what_if(snapshot, without_nodes(snapshot, ["n2"]))
    assert [reason.code for reason in difference.after.decisions[0].reasons] == ["not_enough", "pool_short"]


# In words -------------------------------------------------------------------------------------------------------------


def a_busy_pool() -> Snapshot:
    departments = [a_department("vision", 4, borrow_limit=2), a_department("nlp", 4)]
    claims = [
        holding("h", "nlp", 4, placement=(Placed(0, "n1", (0, 1, 2, 3)),)),
        holding("i", "nlp", 2, checkpointed_at=-1, placement=(Placed(0, "n2", (0, 1)),)),
        pending("w", "vision", 2),
    ]
    return a_snapshot(a_pool(nodes=nodes(4, 4)), departments, claims, notice=60)


def sentences(snapshot: Snapshot, *changes: str) -> list[str]:
    changed = snapshot
    for change in changes:
        changed = with_change(changed, change.split())
    return difference_sentences(what_if(snapshot, changed))


def test_sentences_for_another_request_name_its_victims() -> None:
    assert sentences(a_busy_pool(), "request vision gpu units_per_pod=2") == [
        "what-if-1: Starts by 60 at the latest, after i have been released.",
        "i would have to release its capacity.",
    ]


def test_two_requests_get_different_ids() -> None:
    lines = sentences(a_busy_pool(), "request nlp gpu units_per_pod=1", "request nlp gpu units_per_pod=1 priority=1")
    assert [line.split(":")[0] for line in lines if line.startswith("what-if")] == ["what-if-1", "what-if-2"]


def test_quota_change_keeps_values_that_are_not_given() -> None:
    changed = with_change(a_busy_pool(), ["quota", "vision", "gpu", "guaranteed=1"])
    assert changed.departments[0].quotas == {"gpu": Quota(1, borrow_limit=2)}
    changed = with_change(changed, ["quota", "vision", "gpu", "borrow_limit=null", "lend_limit=0"])
    assert changed.departments[0].quotas == {"gpu": Quota(1, lend_limit=0)}
    assert sentences(a_busy_pool(), "quota nlp gpu guaranteed=2 lend_limit=0") == ["nlp would borrow 2 more of gpu."]
    assert sentences(changed, "quota nlp gpu guaranteed=6")[-1] == "nlp would borrow 2 less of gpu."


def test_sentences_for_a_drained_node_name_the_victims() -> None:
    assert sentences(a_busy_pool(), "drain n2") == [
        "w: Starts by 60 at the latest, after h have been released. Before: Starts now, from guaranteed quota.",
        "h would have to release its capacity.",
    ]


def test_claims_on_a_drained_node_are_listed_even_if_no_decision_changes() -> None:
    snapshot = a_busy_pool()
    assert drained([["drain", "n2", "n1"], ["quota", "nlp", "gpu"], ["drain", "n2"]]) == ("n2", "n1")
    assert claims_on(snapshot, ["n2", "n1"]) == {"n2": ("i",), "n1": ("h",)}
    assert claims_on(snapshot, ["n9"]) == {"n9": ()}


def test_guarantee_can_be_raised_in_a_pool_without_nodes_or_capacity() -> None:
    """Without nodes or capacity its capacity is the sum of the guarantees."""
    snapshot = a_snapshot(a_pool(), [a_department("a", 4)], [])
    assert with_change(snapshot, ["quota", "a", "gpu", "guaranteed=9"]).departments[0].quotas["gpu"] == Quota(9)


def test_sentences_name_spared_claims_and_removed_requests() -> None:
    snapshot = a_snapshot(
        a_pool(4), [a_department("a", 2), a_department("b", 2)], [holding("h", "b", 4), pending("w", "a", 2)]
    )
    without = a_snapshot(a_pool(4), snapshot.departments, snapshot.claims[:1])
    assert difference_sentences(what_if(snapshot, without)) == [
        "w is no longer requested; before: Starts by 0 at the latest, after h have been released.",
        "h would no longer have to release its capacity.",
    ]


def test_change_without_effect_says_that_nothing_changes() -> None:
    assert sentences(a_busy_pool(), "quota nlp gpu lend_limit=4") == ["Nothing changes."]


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ("", "a change is written as one of"),
        ("drain", "a change is written as one of"),
        ("explode n1", "a change is written as one of"),
        ("drain n9", "drain n9: unknown node"),
        ("quota nobody gpu guaranteed=1", "unknown department 'nobody'; known: nlp, speech, vision"),
        ("quota nlp tpu guaranteed=1", "unknown pool 'tpu'; known: gpu"),
        ("quota nlp gpu guaranteed", "guaranteed: expected key=value"),
        ("quota nlp gpu guaranteed=-1", "quota nlp gpu.guaranteed: expected at least 0, got -1"),
        ("quota nlp gpu promised=1", "promised=1: expected one of guaranteed, borrow_limit, lend_limit"),
        ("quota nlp gpu guaranteed=2 guaranteed=3", "guaranteed=3: guaranteed stands here twice"),
        ("quota nlp gpu guaranteed=5", "guaranteed=5: departments would be promised 9 of gpu, which has 8"),
        ("quota speech gpu lend_limit=0", "guaranteed=0: 2 are held by work that must not be stopped"),
        ("request nlp gpu", "request nlp gpu.units_per_pod: missing"),
        ("request nlp gpu units_per_pod=many", "request nlp gpu.units_per_pod: expected an integer, got 'many'"),
        ("request nlp gpu units_per_pod=1 id=h", "id: 'h' is there already"),
        (
            "request nlp gpu units_per_pod=1 department=biology",
            "department=biology: expected one of units_per_pod, pods",
        ),
        ("request nlp gpu units_per_pod=1 state=holding", "state=holding: expected one of units_per_pod, pods"),
        ("request nlp gpu units_per_pod=1 placement=[]", "placement=[]: expected one of units_per_pod, pods"),
        ("request nlp gpu units_per_pod=1 prioritty=5", "prioritty=5: expected one of units_per_pod, pods"),
    ],
)
def test_error_of_an_invalid_change_names_the_wrong_word(change: str, error: str) -> None:
    snapshot = a_busy_pool()
    fixed = holding("f", "speech", 2, preemptible=False, placement=(Placed(0, "n2", (2, 3)),))
    departments = (*snapshot.departments, a_department("speech"))
    with pytest.raises(SnapshotError) as error_info:
        with_change(replace(snapshot, departments=departments, claims=(*snapshot.claims, fixed)), change.split())
    assert error in str(error_info.value)


def test_difference_as_json_has_the_decisions_before_and_after() -> None:
    snapshot = a_busy_pool()
    written = difference_to_json(what_if(snapshot, with_change(snapshot, ["quota", "nlp", "gpu", "guaranteed=2"])))
    assert json.loads(json.dumps(written)) == {
        "changes": [], "recalled": [], "recalled_units": {}, "spared": [], "withdrawn": [], "recallable": {"nlp": {"gpu": 2}},
    }  # fmt: skip
    written = difference_to_json(what_if(snapshot, with_claim(snapshot, pending("v", "nlp", 6))))
    assert [(change["claim"], change["before"]) for change in written["changes"]] == [("v", None)]
