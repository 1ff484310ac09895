"""Applying a configuration file: what it can change, in which order, how it is previewed, and why it is rejected."""

from __future__ import annotations

from typing import Any

import pytest
from django.utils import timezone, translation

from portal.access import SYSTEM, Actor, NotVisible
from portal.infra.confirm import Unconfirmed
from portal.models import AuditEntry, Department, Event, GroupRule, InboxItem, Membership, SeenGroups
from quotas.api.pools import PoolChange
from quotas.forms.policies import RulesForm
from quotas.models import Pool, PoolGroup, Quota
from quotas.rules import policies
from tests import builders as make
from tests.workloads.configuration import worlds
from workloads.configuration import document, plan
from workloads.configuration.kinds import SECTIONS
from workloads.models import Image, Preset

pytestmark = pytest.mark.django_db
HEAD = f"apiVersion: {plan.API_VERSION}\n"


def test_pool_rules_have_the_same_bounds_in_forms_api_and_file() -> None:
    form = RulesForm(defaults=policies.default_rules()).fields
    api, file = PoolChange().fields, SECTIONS["pools"].shape().fields
    for name, (least, most) in policies.BOUNDS.items():
        assert (api[name].min_value, api[name].max_value) == (least, most), name
        for field in (form[name], getattr(file[name], "form", file[name])):
            bounds = [getattr(field, first, getattr(field, second, None)) for first, second in
                      (("least", "min_value"), ("most", "max_value"))]  # fmt: skip
            assert bounds == [least, most], name


@pytest.fixture
def pool() -> Pool:
    return make.pool("a100", cards=16)


@pytest.fixture
def vision(pool: Pool) -> Department:
    vision = make.department("vision")
    make.quota(vision, pool, 8)
    return vision


@pytest.fixture
def nlp(pool: Pool) -> Department:
    nlp = make.department("nlp")
    make.quota(nlp, pool, 8)
    return nlp


def preview(text: str, actor: Actor = SYSTEM) -> plan.Plan:
    return plan.apply(actor=actor, text=HEAD + text, dry_run=True)


def apply(text: str, actor: Actor = SYSTEM, **more: Any) -> plan.Plan:
    return plan.apply(actor=actor, text=HEAD + text, confirmed=preview(text, actor).mark, **more)


def changes(planned: plan.Plan) -> list[str]:
    return [f"{each.name}: {each.before} → {each.after}" for each in planned.changes]


def faults(text: str) -> list[tuple[int | None, str, str]]:
    """Returns (line, path, code) of each error; the header is not counted."""
    with pytest.raises(plan.Refused) as refused:
        preview(text)
    return [(each.line and each.line - 1, each.field, each.code) for each in refused.value.errors]


def guaranteed(pool: Pool) -> dict[str, int]:
    return dict(Quota.objects.filter(pool=pool).values_list("department__slug", "guaranteed"))


def test_only_values_named_in_the_file_are_changed(vision: Department, nlp: Department, pool: Pool) -> None:
    planned = apply("departments: {vision: {weight: 3}, nlp: {quotas: {a100: {lend_limit: 2 cards}}}}")
    assert changes(planned) == [
        "departments.vision.weight: 1 → 3", "departments.nlp.quotas.a100.lend_limit: all → 2 cards",
    ]  # fmt: skip
    row = Department.objects.get(pk=vision.pk)
    assert (row.weight, row.name, row.version) == (3, "Vision", 2)
    assert guaranteed(pool) == {"vision": 8, "nlp": 8}


def test_the_order_of_entries_does_not_matter(vision: Department, nlp: Department, pool: Pool) -> None:
    """A child precedes its parent, a raised guarantee the lowered one that makes room for it, a name the change that frees it."""
    apply(
        "departments:\n"
        "  child: {name: Vision, parent: middle, quotas: {a100: {guaranteed: 4 cards}}}\n"
        "  middle: {name: Middle, parent: top}\n"
        "  nlp: {quotas: {a100: {guaranteed: 10 cards}}}\n"
        "  top: {name: Top}\n"
        "  vision: {name: Sight, quotas: {a100: {guaranteed: 2 cards}}}\n"
    )
    assert guaranteed(pool) == {"child": 4, "nlp": 10, "vision": 2}
    assert Department.objects.get(slug="child").with_teams()
    assert dict(Department.objects.values_list("slug", "parent__slug")) == {
        "child": "middle", "middle": "top", "top": None, "nlp": None, "vision": None,
    }  # fmt: skip


def test_pool_can_shrink_and_grow_together_with_its_guarantees(vision: Department, pool: Pool) -> None:
    apply("departments: {vision: {quotas: {a100: {guaranteed: 2 cards}}}}\npools: {a100: {nominal: 2 cards}}")
    assert (guaranteed(pool), Pool.objects.get().nominal) == ({"vision": 2}, 2)
    apply("departments: {vision: {quotas: {a100: {guaranteed: 30 cards}}}}\npools: {a100: {nominal: 30 cards}}")
    assert (guaranteed(pool), Pool.objects.get().nominal) == ({"vision": 30}, 30)


def test_settings_of_pools_that_share_nodes_do_not_overwrite_each_other(pool: Pool) -> None:
    make.pool("h100", group=pool.group)
    apply("pools: {a100: {fair_sharing: true}, h100: {notice: 5 min, restart_cost: 90 s}}")
    group = PoolGroup.objects.get(pk=pool.group_id)
    assert (group.fair_sharing, group.restart_cost, Pool.objects.get(slug="h100").notice) == (True, 90, 300)
    assert faults("pools:\n  a100: {fair_sharing: true}\n  h100: {fair_sharing: false}") == [
        (2, "pools.a100.fair_sharing", "contradiction")
    ]


def test_fairness_over_time_is_set_for_each_pool_with_a_bounded_half_life(pool: Pool) -> None:
    other = make.pool("h100", group=pool.group)
    apply("pools: {a100: {balance_half_life: 7 d}}")
    assert [Pool.objects.get(pk=row.pk).balance_half_life for row in (pool, other)] == [604_800, None]
    assert faults("pools: {a100: {balance_half_life: 30 min}}") == [(1, "pools.a100.balance_half_life", "min_value")]
    assert faults("pools: {a100: {balance_half_life: 91 d}}") == [(1, "pools.a100.balance_half_life", "max_value")]
    apply("pools: {a100: {balance_half_life: null}}")
    assert Pool.objects.get(pk=pool.pk).balance_half_life is None


def test_all_errors_are_reported_at_once_with_lines_and_without_consequential_errors(
    vision: Department, pool: Pool
) -> None:
    text = (
        "departments:\n"
        "  vision:\n"
        "    weight: 0\n"
        "    quotas:\n"
        "      a100:\n"
        "        guaranteed: 40 cards\n"
        "        windows: [{days: [mon], start: 18:00, end: 25:00, lend_limit: all}]\n"
        "      h200: {guaranteed: 1}\n"
        "  Bad_Name:\n"
        "    name: x\n"
        "    quotas: {a100: {guaranteed: 1 card}}\n"
        "  child: {name: Child, parent: Bad_Name}\n"
        "  nobody: {name: N, parent: somebody}\n"
        "pools:\n"
        "  a100: {notice: 600, nominal: 8 GiB}\n"
        "presets:\n"
        "  p: {title: P, kind: job, pool: a100, image: none}\n"
        "group_rules:\n"
        "  - {provider: nowhere, group: x, role: member, department: vision}\n"
        "teams: {}\n"
    )
    assert faults(text) == [
        (3, "departments.vision.weight", "min_value"),
        (7, "departments.vision.quotas.a100.windows.0.end", "invalid_time"),
        (8, "departments.vision.quotas.h200", "does_not_exist"),
        (9, "departments.Bad_Name", "invalid"),
        (13, "departments.nobody.parent", "does_not_exist"),
        (15, "pools.a100.nominal", "shape"),
        (15, "pools.a100.notice", "unit"),
        (17, "presets.p.image", "does_not_exist"),
        (19, "group_rules.0.provider", "invalid"),
        (20, "teams", "unknown_field"),
    ]
    assert faults("departments: {vision: {quotas: {a100: {guaranteed: 40 cards}}}}") == [
        (1, "departments.vision.quotas.a100.guaranteed", "over_promised")
    ]


def test_rejection_has_the_same_translated_sentence_as_the_page(vision: Department, pool: Pool) -> None:
    make.holding(vision, pool, own=6, preemptible=False)
    with pytest.raises(plan.Refused) as refused:
        preview("departments: {vision: {quotas: {a100: {guaranteed: 4 cards}}}}")
    [fault] = refused.value.errors
    assert fault.code == "below_non_preemptible"
    assert fault.detail == "Non-preemptible workloads hold 6 cards; the guaranteed quota cannot be lower."
    with translation.override("zh-hans"), pytest.raises(plan.Refused) as refused:
        preview("departments: {vision: {quotas: {a100: {guaranteed: 4 cards}}}}")
    assert "6" in refused.value.errors[0].detail
    assert refused.value.errors[0].detail != fault.detail


def test_file_of_another_kind_is_rejected(pool: Pool) -> None:
    for text in ("", "- a", "text", "apiVersion: v1\nkind: Pod"):
        with pytest.raises(plan.Refused) as refused:
            plan.apply(actor=SYSTEM, text=text)
        assert refused.value.errors[0].detail


def test_dry_run_says_who_is_affected_and_writes_nothing(vision: Department, nlp: Department, pool: Pool) -> None:
    make.member(vision, "owner")
    make.holding(vision, pool, own=8, name="train")
    rows = (AuditEntry, Event, InboxItem)
    before = plan.export(), [model._default_manager.count() for model in rows]
    planned = preview(
        "departments: {vision: {quotas: {a100: {guaranteed: 4 cards}}}, nlp: {quotas: {a100: {guaranteed: 12 cards}}}}"
    )
    assert planned.preview.sentence == (
        "No workload has to be preempted now; 4 cards more in use would count as borrowed and could be recalled."
    )
    assert [each.kind for each in planned.preview.breaks] == ["recallable"]
    assert not planned.applied
    assert (plan.export(), [model._default_manager.count() for model in rows]) == before


def test_preview_reports_guarantees_that_can_no_longer_be_reclaimed(
    vision: Department, nlp: Department, pool: Pool
) -> None:
    make.holding(vision, pool, own=8, borrowed={nlp: 4}, name="train", notice=60, grace=10)
    planned = preview("pools: {a100: {policy: {within: never, reclaim: never, borrow_preempt: null}}}")
    assert "guarantee" in [each.kind for each in planned.preview.breaks]
    assert any("Nlp requested the other 8 cards" in line for line in planned.preview.lines)
    Quota.objects.filter(department=nlp).update(borrow_limit=0)
    make.claim(nlp, pool, units=4)
    make.claim(nlp, pool, units=12, name="large")
    wider = preview("departments: {nlp: {quotas: {a100: {guaranteed: 8 cards, borrow_limit: no limit}}}}")
    assert changes(wider) == ["departments.nlp.quotas.a100.borrow_limit: 0 cards → no limit"]


def test_plan_that_takes_capacity_needs_its_own_confirmation(vision: Department, nlp: Department, pool: Pool) -> None:
    make.holding(vision, pool, own=8, name="train")
    text = HEAD + "departments: {vision: {quotas: {a100: {guaranteed: 4 cards}}}}"
    with pytest.raises(Unconfirmed) as unconfirmed:
        plan.apply(actor=SYSTEM, text=text)
    assert guaranteed(pool) == {"vision": 8, "nlp": 8}
    mark = plan.apply(actor=SYSTEM, text=text, dry_run=True).mark
    assert unconfirmed.value.numbers["confirm"] == mark
    Quota.objects.filter(department=vision).update(guaranteed=6)  # a concurrent change
    with pytest.raises(plan.PlanChanged):
        plan.apply(actor=SYSTEM, text=text, confirmed=mark)
    assert guaranteed(pool) == {"vision": 6, "nlp": 8}
    Quota.objects.filter(department=vision).update(guaranteed=8)
    plan.apply(actor=SYSTEM, text=text, confirmed=mark)
    assert guaranteed(pool) == {"vision": 4, "nlp": 8}
    assert plan.apply(actor=SYSTEM, text=text, confirmed=mark).changes == ()  # already applied: nothing to confirm


def test_audit_entries_name_the_file(vision: Department) -> None:
    root = make.user("root", is_operator=True)
    apply("departments: {vision: {weight: 3}}", Actor(root), source="gpu.yaml@4f2c\n2fe")
    entry = AuditEntry.objects.get()
    assert (entry.action, entry.actor_name, entry.source) == ("department.changed", "root", "gpu.yaml@4f2c 2fe")


def test_only_operators_can_apply(vision: Department) -> None:
    for actor in (Actor(make.member(vision, "owner")), Actor(make.user())):
        with pytest.raises(NotVisible):
            preview("departments: {}", actor)


def test_complete_section_removes_entries_that_it_does_not_name(
    vision: Department, nlp: Department, pool: Pool
) -> None:
    make.department("empty", name="Empty", parent=make.department("above"))
    image = Image.objects.create(name="python:3.11", title="Python")
    Preset.objects.create(slug="quick", title="Quick", kind="job", pool=pool, image=image)
    keep = "departments: {vision: {}, nlp: {}}\nimages: {'python:3.11': {}}\n"
    planned = apply("complete: [departments, presets, images]\n" + keep)
    assert changes(planned)[-1] == "presets.quick.active: true → false"
    assert list(Department.objects.values_list("slug", flat=True)) == ["nlp", "vision"]
    assert (Image.objects.get().active, Preset.objects.get().active) == (True, False)
    assert apply("complete: [departments, presets, images]\n" + keep).changes == ()
    assert faults("complete: [departments, quotas]\n" + keep) == [(1, "complete.1", "unknown_section")]


def test_department_that_is_in_use_is_not_removed(vision: Department, nlp: Department) -> None:
    with pytest.raises(plan.Refused) as refused:
        preview("complete: [departments]\ndepartments: {vision: {}}")
    [fault] = refused.value.errors
    assert (fault.field, fault.code) == ("departments.nlp", "in_use")
    assert "Pause it instead" in fault.detail


def test_group_rules_are_stored_applied_and_removed(
    vision: Department, nlp: Department, settings: Any, django_capture_on_commit_callbacks: Any
) -> None:
    settings.IDENTITY_PROVIDERS = worlds.PROVIDERS
    ada = make.user("ada")
    account = ada.socialaccount_set.create(provider="corp", uid="1")
    SeenGroups.objects.create(account=account, groups=["gpu-vision"], said_at=timezone.now())
    text = "group_rules: [{provider: corp, group: gpu-vision, role: %s, department: vision}]"
    preview(text % "owner")
    assert not Membership.objects.exists()
    apply(text % "owner")
    assert Membership.objects.get().role == "owner"
    assert changes(apply(text % "member")) == ["group_rules.corp gpu-vision vision.role: owner → member"]
    assert Membership.objects.get().role == "member"
    gone = preview("complete: [group_rules]")
    assert [each.kind for each in gone.preview.breaks] == ["membership"]
    apply("complete: [group_rules]")
    assert not GroupRule.objects.exists()
    assert not Membership.objects.exists()
    assert faults(f"group_rules:\n  - {(text % 'owner')[14:-1]}\n  - {(text % 'member')[14:-1]}") == [
        (3, "group_rules.1", "twice")
    ]


def test_amounts_durations_and_memory_can_be_written_with_units(vision: Department, pool: Pool) -> None:
    make.pool("l4", cards=2, units_per_card=24_576, unit="MiB", sharing="hami", card_mib=24_576)
    Image.objects.create(name="i", title="I")
    apply(
        "departments: {vision: {quotas: {l4: {guaranteed: half a card, borrow_limit: 6 GiB}}, user_caps: {a100: 2}}}\n"
        "pools: {a100: {notice: 1h 30min, grace: 0}}\n"
        "presets: {p: {title: P, kind: job, pool: l4, image: i, amount: 25 %, cpu: 0.5, memory: 512 MiB, max_runtime: 1d}}"
    )
    row, preset = Quota.objects.get(pool__slug="l4"), Preset.objects.get()
    assert (row.guaranteed, row.borrow_limit) == (12_288, 6144)
    assert (preset.units_per_pod, preset.cpu_milli, preset.memory_mib, preset.max_runtime) == (6144, 500, 512, 86_400)
    assert (Pool.objects.get(slug="a100").notice, Pool.objects.get(slug="a100").grace) == (5400, 0)
    values = document.read(plan.export()).values
    assert values["departments"]["vision"]["user_caps"] == {"a100": "2 cards"}
    assert apply("departments: {vision: {user_caps: {a100: no limit}}}").changes[0].after is None
    assert apply("departments: {vision: {user_caps: {a100: null}}}").changes == ()


def test_image_known_only_from_external_workloads_can_be_added_as_new(pool: Pool) -> None:
    hidden = Image.objects.create(name="python:3.11", title="?", kinds=["external"], active=False)
    text = "images: {'python:3.11': {title: Python}}\n"
    preset = "presets: {p: {title: P, kind: job, pool: a100, image: 'python:3.11'}}"
    assert faults(preset) == [(1, "presets.p.image", "does_not_exist")]
    assert changes(apply(text + preset))[:2] == [
        'images["python:3.11"].title: None → Python', 'images["python:3.11"].active: None → true',
    ]  # fmt: skip
    row = Image.objects.get()
    assert (row.pk, row.title, row.kinds, row.active) == (hidden.pk, "Python", [], True)
    assert AuditEntry.objects.get(action="image.added").before is None
    assert apply(text + preset).changes == ()
    assert faults("images: {'python:3.11': {kinds: [external]}}") == [
        (1, 'images["python:3.11"].kinds.0', "invalid_choice")
    ]
