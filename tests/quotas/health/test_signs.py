"""When signs of a fault begin and end a quarantine, whatever order they come and go in."""

from __future__ import annotations

import datetime as dt

from hypothesis import given
from hypothesis import strategies as st

from quotas.health.signs import AWAY, Sign, Step, steps

T = dt.datetime(2026, 11, 26, 12, tzinfo=dt.UTC)
XID, ECC = Sign("node/condition/SysLogsXIDError"), Sign("node/condition/GpuMemWatch")
CARD = Sign("card/unhealthy", 3)


def test_new_sign_begins_a_quarantine_and_a_known_one_does_nothing() -> None:
    assert steps({}, [XID], {None}, now=T) == {XID: Step.BEGIN}
    assert steps({XID: None}, [XID, ECC], {None}, now=T) == {ECC: Step.BEGIN}


def test_quarantine_ends_only_after_its_sign_is_absent_long_enough() -> None:
    assert steps({XID: None}, [], {None}, now=T) == {XID: Step.LEFT}
    assert steps({XID: T}, [], {None}, now=T + AWAY - dt.timedelta(seconds=1)) == {}
    assert steps({XID: T}, [], {None}, now=T + AWAY) == {XID: Step.OVER}
    assert steps({XID: T}, [XID], {None}, now=T + AWAY) == {XID: Step.BACK}


def test_source_without_a_delay_ends_the_quarantine_at_once() -> None:
    assert steps({CARD: None}, [], {3}, now=T, away=dt.timedelta()) == {CARD: Step.OVER}


def test_places_that_were_not_checked_keep_their_state() -> None:
    assert steps({CARD: T}, [CARD, XID], {4}, now=T + 2 * AWAY) == {}
    assert steps({CARD: T}, [], {3}, now=T + 2 * AWAY) == {CARD: Step.OVER}


CHECKS = st.lists(
    st.tuples(st.integers(1, 900), st.sets(st.sampled_from([XID, ECC, CARD])), st.sets(st.sampled_from([None, 3]))),
    max_size=40,
)


@given(CHECKS)
def test_state_kept_between_checks_agrees_with_the_whole_history(
    checks: list[tuple[int, set[Sign], set[int | None]]],
) -> None:
    """A quarantine lasts exactly while its sign was seen within the time AWAY."""
    known: dict[Sign, dt.datetime | None] = {}
    # The first check of the place that did not find the sign since it was last seen.
    missed: dict[Sign, dt.datetime | None] = {}
    now = T
    for pause, seen, looked_at in checks:
        now += dt.timedelta(seconds=pause)
        over = {
            sign
            for sign, since in missed.items()
            if since is not None and sign.card in looked_at and sign not in seen and now - since >= AWAY
        }
        for sign, step in steps(known, seen, looked_at, now=now).items():
            assert sign.card in looked_at
            assert (step is Step.BEGIN) == (sign not in known)
            assert (step is Step.OVER) == (sign in over)
            if step is Step.OVER:
                del known[sign]
            else:
                known[sign] = now if step is Step.LEFT else None
        for sign in (XID, ECC, CARD):
            if sign.card in looked_at and sign in seen:
                missed[sign] = None
            elif sign in over:
                del missed[sign]
            elif sign.card in looked_at and sign in missed:
                missed[sign] = missed[sign] or now
        assert known == missed
