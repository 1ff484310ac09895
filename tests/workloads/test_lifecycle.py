"""The state machine of workloads: every transition leads to its state, and there are no others."""

import pytest
from django.utils import translation

from workloads import models
from workloads.lifecycle import FINAL, LIVE, TRANSITIONS, Event, NotPossible, State, may, step


@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize("event", Event)
def test_event_leads_to_the_state_of_its_transition_or_is_refused(state: State, event: Event) -> None:
    assert may(state, event) is ((state, event) in TRANSITIONS)
    if may(state, event):
        assert step(state, event) is TRANSITIONS[state, event]
    else:
        with pytest.raises(NotPossible) as refused:
            step(state, event)
        assert (refused.value.state, refused.value.event) == (state, event)
        assert str(refused.value) == f"{event} is not possible while {state}"


def test_final_states_have_no_transitions() -> None:
    assert not [(state, event) for state, event in TRANSITIONS if state in FINAL]
    assert {*State} == FINAL | LIVE


def test_a_final_state_can_be_reached_from_every_state() -> None:
    reached, before = set(FINAL), set[State]()
    while reached != before:
        before = set(reached)
        reached |= {state for (state, _), after in TRANSITIONS.items() if after in reached}
    assert reached == {*State}


@pytest.mark.parametrize(("language", "word"), [("en", "being recalled"), ("zh-hans", "召回中")])
def test_recalled_state_has_its_label_in_each_language(language: str, word: str) -> None:
    with translation.override(language):
        assert str(models.State.RECALLED.label) == word
