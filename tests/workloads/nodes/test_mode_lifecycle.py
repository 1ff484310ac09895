"""The stages of a mode change, and what is written to the node for each mode; without a database."""

from __future__ import annotations

import itertools

import pytest
import yaml

from workloads.mode_lifecycle import FINAL, TRANSITIONS, Event, Facts, NotPossible, Stage, due, step
from workloads.nodes.modes.mig_layouts import layout_of
from workloads.nodes.modes.recipes import (
    ConfigEntry,
    Target,
    difference,
    is_as_wanted,
    mig_key,
    named_layouts,
    plugin_key,
    recipe,
    with_entry,
)

MIG_NODE = {"nvidia.com/mig.config": "all-disabled", "nvidia.com/mig.config.state": "success"}
BALANCED = layout_of({"1g.10gb": 2, "2g.20gb": 1, "3g.40gb": 1})
SEVEN = layout_of({"1g.10gb": 7})


def test_every_open_stage_can_reach_a_final_one_and_final_stages_lead_nowhere() -> None:
    for stage in Stage:
        reached, todo = {stage}, [stage]
        while todo:
            at = todo.pop()
            fresh = {to for (frm, _), to in TRANSITIONS.items() if frm is at} - reached
            reached |= fresh
            todo += fresh
        assert reached & FINAL
        assert stage not in FINAL or reached == {stage}


def test_transitions_that_are_not_in_the_table_are_impossible() -> None:
    for stage, event in itertools.product(Stage, Event):
        if (stage, event) not in TRANSITIONS:
            with pytest.raises(NotPossible):
                step(stage, event)


@pytest.mark.parametrize("stage", list(Stage))
def test_event_due_is_allowed_by_the_table_for_every_combination_of_facts(stage: Stage) -> None:
    for state, bits in itertools.product(
        ["", "pending", "success", "failed"], itertools.product((False, True), repeat=6)
    ):
        occupied, written, as_wanted, as_before, cancelled, overdue = bits
        facts = Facts(occupied, written, as_wanted, as_before, state, cancelled, overdue)
        event = due(stage, facts)
        assert event is None or (stage, event) in TRANSITIONS
        if stage not in FINAL and overdue:
            assert event is not None, "no stage lasts forever"


def test_success_label_of_an_earlier_change_does_not_verify_the_node() -> None:
    target = Target("mig", config="all-balanced", layouts=(BALANCED,) * 8, mig="A100-80GB")
    labels = {"nvidia.com/mig.config": "all-balanced", "nvidia.com/mig.config.state": "success"}
    facts = {"system": "mig", "held_back": "", "labels": labels, "units_per_card": 8}
    assert not is_as_wanted(target, instances={"1g.10gb": 56}, **facts)  # type: ignore[arg-type]
    assert is_as_wanted(target, instances={"1g.10gb": 16, "2g.20gb": 8, "3g.40gb": 8}, **facts)  # type: ignore[arg-type]


def test_time_slicing_configuration_refuses_requests_for_several_replicas() -> None:
    target = Target("timeslicing", replicas=4)
    steps = recipe(target, {})
    assert steps.labels == {"nvidia.com/device-plugin.config": "timeslicing-4-renamed"}
    assert steps.entry is not None
    assert yaml.safe_load(steps.entry.text) == {
        "version": "v1",
        "sharing": {
            "timeSlicing": {
                "renameByDefault": True,
                "failRequestsGreaterThanOne": True,
                "resources": [{"name": "nvidia.com/gpu", "replicas": 4}],
            }
        },
    }
    assert plugin_key(Target("mps", replicas=10, rename=False)) == "mps-10"
    with pytest.raises(ValueError, match="2 or more"):
        recipe(Target("timeslicing", replicas=1), {})


def test_return_to_whole_cards_resets_only_labels_that_other_modes_set() -> None:
    present = {"gpushare": "true", "nvidia.com/gpu.deploy.device-plugin": "false", "rack": "r1"}
    assert recipe(Target("whole"), present).labels == {"gpushare": None, "nvidia.com/gpu.deploy.device-plugin": "true"}
    assert recipe(Target("whole"), {"rack": "r1"}).labels == {}
    cut = MIG_NODE | {"nvidia.com/mig.config": "all-balanced"}
    assert recipe(Target("whole"), cut).labels == {"nvidia.com/mig.config": "all-disabled"}


def test_layouts_per_card_become_an_entry_of_the_mig_parted_configuration() -> None:
    target = Target("mig", layouts=(SEVEN, BALANCED, SEVEN, ()), mig="A100-80GB")
    steps = recipe(target, MIG_NODE)
    assert steps.labels == {"nvidia.com/mig.config": mig_key(target)}
    assert steps.entry is not None
    before = "version: v1\n# kept\nmig-configs:\n  all-disabled:\n  - devices: all\n    mig-enabled: false\n"
    after = with_entry(steps.entry, {"config.yaml": before})
    assert "# kept" in after["config.yaml"]
    parsed = yaml.safe_load(after["config.yaml"])["mig-configs"]
    assert parsed["all-disabled"] == [{"devices": "all", "mig-enabled": False}]
    assert parsed[mig_key(target)] == [
        {"devices": [0, 2], "mig-enabled": True, "mig-devices": {"1g.10gb": 7}},
        {"devices": [1], "mig-enabled": True, "mig-devices": {"1g.10gb": 2, "2g.20gb": 1, "3g.40gb": 1}},
        {"devices": [3], "mig-enabled": False},
    ]
    assert with_entry(steps.entry, after) == after, "writing it again changes nothing"
    assert yaml.safe_load(with_entry(steps.entry, {})["config.yaml"])["mig-configs"].keys() == {mig_key(target)}


def test_existing_configuration_entry_is_never_changed() -> None:
    entry = ConfigEntry("plugin", "timeslicing-4", "new\n")
    assert with_entry(entry, {"other": "x"}) == {"other": "x", "timeslicing-4": "new\n"}
    with pytest.raises(ValueError, match="says something else"):
        with_entry(entry, {"timeslicing-4": "theirs\n"})


def test_difference_shows_only_changed_entries() -> None:
    lines = difference({"a": "1\n", "b": "2\n"}, {"a": "1\n", "b": "3\n"})
    assert lines == ["--- b (now)", "+++ b (after)", "@@ -1 +1 @@", "-2", "+3"]


def test_default_configurations_of_mig_manager_are_known_for_each_product() -> None:
    assert named_layouts("A100-40GB")["all-1g.10gb"] == (("1g.10gb", 4),)
    assert named_layouts("A100-80GB")["all-1g.10gb"] == (("1g.10gb", 7),)
    assert named_layouts("A100-80GB")["all-balanced"] == BALANCED
    assert Target.from_json(Target("mig", layouts=(BALANCED, ()), mig="A30").as_json()).layouts == (BALANCED, ())
