"""The chart of a workload's states: every arrow leads where it says, and there are no others."""

import pytest
from django.utils import translation

from workloads import models
from workloads.lifecycle import FINAL, LIVE, TRANSITIONS, Event, NotPossible, State, may, step


@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize("event", Event)
def test_an_event_leads_along_its_arrow_or_is_refused(state: State, event: Event) -> None:
    assert may(state, event) is ((state, event) in TRANSITIONS)
    if may(state, event):
        assert step(state, event) is TRANSITIONS[state, event]
    else:
        with pytest.raises(NotPossible) as refused:
            step(state, event)
        assert (refused.value.state, refused.value.event) == (state, event)
        assert str(refused.value) == f"{event} is not possible while {state}"


def test_what_is_over_is_over() -> None:
    assert not [(state, event) for state, event in TRANSITIONS if state in FINAL]
    assert {*State} == FINAL | LIVE


def test_everything_that_lives_can_end() -> None:
    reached, before = set(FINAL), set[State]()
    while reached != before:
        before = set(reached)
        reached |= {state for (state, _), after in TRANSITIONS.items() if after in reached}
    assert reached == {*State}


@pytest.mark.parametrize(("language", "word"), [("en", "being recalled"), ("zh-hans", "召回中")])
def test_a_workload_that_is_recalled_is_called_so(language: str, word: str) -> None:
    with translation.override(language):
        assert str(models.State.RECALLED.label) == word
