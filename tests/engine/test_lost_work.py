"""Lost work (rule 15) is what is lost at the deadline, counted from the last checkpoint that will have been saved by then."""

import pytest

from quotas.engine.types import Settings
from quotas.engine.units import lost_work
from tests.engine.builders import a_department, a_pool, a_snapshot, answers, holding, pending

EVERY = 1800
SETTINGS = Settings(restart_cost=60, notice=600)


@pytest.mark.parametrize(
    ("checkpointed_at", "every", "lost"),
    [
        (-1000, None, 1600),  # it does not save regularly: all work until its deadline is lost
        (-1000, EVERY, 1600),  # the next checkpoint would come after its deadline
        (-1500, EVERY, 300),  # it will save one in 300 seconds, 300 before its deadline
        (-1200, EVERY, 0),  # it will save one at its deadline
        (-2000, EVERY, 800),  # the next one is a little late
        (-4000, EVERY, 4600),  # the next one is overdue by a full interval: none is expected
        (None, EVERY, 1200),  # since it started, 600 seconds ago: none yet in this attempt
    ],
)
def test_checkpoint_expected_before_the_deadline_counts(
    checkpointed_at: int | None, every: int | None, lost: int
) -> None:
    started_at = -600 if checkpointed_at is None else -9000
    claim = holding("h", "a", 2, started_at=started_at, checkpointed_at=checkpointed_at, checkpoint_every=every)
    assert lost_work(claim, a_pool(4), SETTINGS, 0) == 2 * (lost + 60)


def test_claim_that_will_save_before_its_deadline_is_preempted_first() -> None:
    running = [
        holding("soon", "nlp", 4, started_at=-9000, checkpointed_at=-1500, checkpoint_every=EVERY),
        holding("just", "nlp", 4, started_at=-9000, checkpointed_at=-30, checkpoint_every=EVERY),
    ]
    departments = [a_department("vision", 4), a_department("nlp", 4)]
    snapshot = a_snapshot(a_pool(8), departments, [*running, pending("mine", "vision", 4)], notice=600, grace=120)
    assert answers(snapshot)["mine"].victims == ("soon",)
