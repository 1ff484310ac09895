"""Exports of random installations: an export recreates its installation, changes nothing if it is applied again, and is rejected
as a whole if any part of it is invalid or fails."""

from __future__ import annotations

import random
from typing import Any

import pytest

from portal import audit
from portal.access import SYSTEM
from portal.models import AuditEntry, Event
from tests.workloads.configuration import worlds
from workloads.configuration import document, plan
from workloads.configuration.kinds import SECTIONS

pytestmark = pytest.mark.django_db
SEEDS = range(3)


@pytest.fixture(autouse=True)
def bare(settings: Any, db: None) -> None:
    settings.IDENTITY_PROVIDERS = worlds.PROVIDERS
    worlds.pools()


def applied(text: str) -> plan.Plan:
    mark = plan.apply(actor=SYSTEM, text=text, dry_run=True).mark
    return plan.apply(actor=SYSTEM, text=text, confirmed=mark)


@pytest.mark.parametrize("seed", SEEDS)
def test_export_recreates_an_installation_and_applying_it_again_changes_nothing(seed: int) -> None:
    worlds.build(seed)
    text = plan.export()
    worlds.wipe()
    assert plan.export() != text
    assert applied(text).changes
    assert plan.export() == text
    entries, events = AuditEntry.objects.count(), Event.objects.count()
    assert applied(text).changes == ()
    assert (AuditEntry.objects.count(), Event.objects.count()) == (entries, events)


def refusals(text: str) -> set[str]:
    """Codes of the errors for which the file is rejected."""
    try:
        applied(text)
    except plan.Refused as refused:
        return {each.code for each in refused.errors}
    return set()


@pytest.mark.parametrize("seed", SEEDS)
def test_export_of_another_installation_is_applied_as_a_whole_or_not_at_all(seed: int) -> None:
    """Guarantees and names that only the present installation has can conflict with the file."""
    worlds.build(seed + 100)
    text = plan.export()
    worlds.wipe()
    worlds.build(seed + 200)
    before = plan.export()
    codes = refusals(text)
    assert codes <= {"over_promised", "invalid"}
    wanted, now = (document.read(each).values for each in (before if codes else text, plan.export()))
    for name in ("departments", "pools", "images", "presets"):
        for key, entry in wanted[name].items():
            assert {field: now[name][key][field] for field in entry if field not in plan.NESTED} == {
                field: value for field, value in entry.items() if field not in plan.NESTED
            }


def leaves(values: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    if isinstance(values, dict) and values:
        return [leaf for key, each in values.items() for leaf in leaves(each, (*path, key))]
    if isinstance(values, list) and values and isinstance(values[0], dict):
        return [leaf for key, each in enumerate(values) for leaf in leaves(each, (*path, key))]
    return [path]


def put(values: Any, path: tuple[Any, ...], value: Any) -> None:
    *parents, last = path
    for step in parents:
        values = values[step]
    values[last] = value


@pytest.mark.parametrize("seed", SEEDS)
def test_file_with_an_error_anywhere_changes_nothing(seed: int) -> None:
    """The error is a mapping in place of a value; it is reported with its path and line, whatever else the file changes."""
    worlds.build(seed)
    text = plan.export()
    worlds.wipe()
    bare_text, entries = plan.export(), AuditEntry.objects.count()
    places = leaves(document.read(text).values)
    for place in random.Random(seed).sample(places, min(5, len(places))):
        values = document.read(text).values
        put(values, place, {"wrong": ["x"]})
        broken = document.write(values)
        with pytest.raises(plan.Refused) as refused:
            plan.apply(actor=SYSTEM, text=broken)
        first = tuple(str(step) for step in place)
        lines = document.read(broken)
        paths = [each.path for each in refused.value.errors]
        assert any(path[: len(first)] == first or path == first[:-1] for path in paths), (place, refused.value)
        assert all(each.line == lines.line_of(each.path) for each in refused.value.errors)
        assert plan.export() == bare_text
        assert AuditEntry.objects.count() == entries


class Broken(Exception):
    pass


ONE_OF_EACH = f"""
apiVersion: {plan.API_VERSION}
departments:
  lab: {{name: Lab, parent: science, quotas: {{a100: {{guaranteed: 2 cards}}}}, user_caps: {{a100: 1 card}}}}
  science: {{name: Science, paused: true, policy: {{within: never, reclaim: any, borrow_preempt: null}}}}
pools: {{a100: {{notice: 5 min, nominal: 9 cards, price: {{own: 1.5, borrowed: 1}}}}}}
images: {{python: {{title: Python}}}}
presets: {{quick: {{title: Quick, kind: job, pool: a100, image: python, amount: 1 card}}}}
group_rules: [{{provider: corp, group: gpu, role: member, department: lab}}]
"""


def test_failure_at_any_step_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The n-th audit entry fails, for every n: between two entries of the file, and inside one."""
    before, record = plan.export(), audit.record
    mark, steps, left = plan.apply(actor=SYSTEM, text=ONE_OF_EACH, dry_run=True).mark, 0, 0

    def failing(*args: Any, **kwargs: Any) -> Any:
        nonlocal left
        left -= 1
        if left < 0:
            raise Broken
        return record(*args, **kwargs)

    monkeypatch.setattr(audit, "record", failing)
    while True:
        left = steps
        try:
            plan.apply(actor=SYSTEM, text=ONE_OF_EACH, confirmed=mark)
        except Broken:
            assert plan.export() == before
            steps += 1
            continue
        break
    assert steps >= 12
    assert plan.export() != before


def test_random_worlds_cover_every_section() -> None:
    """A section that no world sets would not be tested."""
    kinds: set[str] = set()
    for seed in SEEDS:
        worlds.build(seed)
        kinds |= {name for name, rows in plan.stored().items() if rows}
        worlds.wipe()
    assert kinds == set(SECTIONS)
