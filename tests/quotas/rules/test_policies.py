"""Policies and pool rules: who can set them, what is refused, what a preview says, and what the engine gets."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from portal.access import Actor, NotVisible
from portal.infra.versions import Stale
from portal.models import AuditEntry, Department, Role, User
from quotas.engine import types as e
from quotas.engine.what_if import what_if
from quotas.models import Claim, ClaimState, LedgerEntry, Pool, PoolGroup, Quota
from quotas.planning.run_pass import run_pass
from quotas.planning.snapshot import load_snapshot
from quotas.previews.effects import effect_of
from quotas.previews.policy import preview_policy, preview_rules, with_rules
from quotas.rules import policies
from quotas.rules.policies import PoolRules, Scope
from tests import builders as make
from tests.clients import confirmed, person

pytestmark = pytest.mark.django_db(transaction=True)
API = "/api/v1/"
GENTLE = e.Policy(within="never", reclaim="never")


def borrower(nlp: Department, pool: Pool, **fields: Any) -> Claim:
    """nlp uses all eight cards in two claims, one of them borrowed."""
    for n, first in ((0, 0), (1, 4)):
        place = [{"pod": 0, "node": "a100-n1", "cards": list(range(first, first + 4))}]
        started = timezone.now() - dt.timedelta(hours=2 - n)
        claim = make.claim(nlp, pool, 4, ClaimState.HOLDING, placement=place, notice=600, grace=120, started_at=started,
                           **fields)  # fmt: skip
    return claim


def policy_now(pool: Pool, department: Department) -> e.Policy:
    snapshot = load_snapshot(pool.group, now=timezone.now())
    row = next(each for each in snapshot.departments if each.id == department.slug)
    return row.quotas[e.PoolId(pool.slug)].policy or row.policy or snapshot.pools[0].policy or snapshot.settings.policy


def test_narrowest_policy_applies_and_reaches_the_engine(root: User, vision: Department, pool: Pool) -> None:
    actor = Actor(root)
    wide, mid, narrow = (e.Policy(reclaim="lower_priority"), e.Policy(within="never"), GENTLE)
    for scope, policy, source in (
        (Scope(None, pool), wide, "pool"),
        (Scope(vision, None), mid, "department"),
        (Scope(vision, pool), narrow, "quota"),
    ):
        policies.set_policy(actor=actor, scope=scope, policy=policy, expected_version=1)
        assert Scope(Department.objects.get(), Pool.objects.get()).effective() == (policy, source)
        assert policy_now(pool, vision) == policy
    policies.set_policy(actor=actor, scope=Scope(vision, pool), policy=None, expected_version=2)
    assert policy_now(pool, vision) == mid
    assert AuditEntry.objects.filter(action="policy.changed").latest("id").target == "vision/a100"


def test_default_policy_set_explicitly_overrides_a_wider_one(root: User, vision: Department, pool: Pool) -> None:
    policies.set_policy(actor=Actor(root), scope=Scope(None, pool), policy=GENTLE, expected_version=1)
    policies.set_policy(actor=Actor(root), scope=Scope(vision, None), policy=e.Policy(), expected_version=1)
    assert policy_now(pool, vision) == e.Policy()


def test_two_operators_do_not_overwrite_each_other(root: User, vision: Department, pool: Pool) -> None:
    for scope in (Scope(None, pool), Scope(vision, None), Scope(vision, pool)):
        policies.set_policy(actor=Actor(root), scope=scope, policy=GENTLE, expected_version=1)
        with pytest.raises(Stale):
            policies.set_policy(actor=Actor(root), scope=scope, policy=None, expected_version=1)
    assert Quota.objects.get().policy["reclaim"] == "never"


def test_only_operators_can_set_policies_and_rules(vision: Department, pool: Pool) -> None:
    owner = Actor(make.member(vision, Role.OWNER))
    rules = PoolRules(notice=1, grace=1, min_runtime=0, max_reclaims=1)
    with pytest.raises(NotVisible):
        policies.set_policy(actor=owner, scope=Scope(vision, None), policy=GENTLE, expected_version=1)
    with pytest.raises(NotVisible):
        policies.set_pool_rules(actor=owner, pool=pool, rules=rules, expected_version=1)
    with pytest.raises(NotVisible):
        preview_policy(actor=owner, scope=Scope(vision, None), policy=GENTLE)


def test_preview_states_the_effect_on_a_claim_for_the_rest_of_the_guarantee(
    root: User, vision: Department, nlp: Department, pool: Pool
) -> None:
    borrower(nlp, pool)
    for scope in (Scope(vision, None), Scope(vision, pool), Scope(None, pool)):
        preview = preview_policy(actor=Actor(root), scope=scope, policy=GENTLE)
        [line] = preview.lines
        assert preview.sentence == "No workload is affected now."
        assert line.startswith(
            "If Vision requested the other 4 cards of its guaranteed quota in A100 now: today it would have them by"
        )
        assert line.endswith(
            "after 1 workload has released 4 cards; after this change it would have to wait until workloads end by themselves."
        )
    same = preview_policy(actor=Actor(root), scope=Scope(vision, None), policy=e.Policy())
    assert same.lines == ()


def test_preview_lists_workloads_that_would_be_preempted_at_once(
    root: User, vision: Department, nlp: Department, pool: Pool
) -> None:
    policies.set_policy(actor=Actor(root), scope=Scope(vision, None), policy=GENTLE, expected_version=1)
    borrower(nlp, pool, name="train")
    make.claim(vision, pool, 4)
    run_pass(group_id=pool.group_id)
    preview = preview_policy(actor=Actor(root), scope=Scope(vision, None), policy=None)
    assert preview.sentence == "1 workload would have to release 4 cards in total."
    assert [(side.department, side.name, side.units) for side in preview.stopped] == [(nlp, "train", 4)]
    assert preview.promised_at is not None
    assert not Claim.objects.filter(state=ClaimState.LEAVING).exists()


def test_rules_of_a_group_apply_to_all_its_pools(root: User, pool: Pool) -> None:
    other = make.pool("t4", group=pool.group)
    rules = PoolRules(60, 10, 0, 5, fair_sharing=True, starvation_after=7, restart_cost=9)
    policies.set_pool_rules(actor=Actor(root), pool=pool, rules=rules, expected_version=1)
    other.refresh_from_db()
    assert (other.version, other.notice) == (2, 600)
    settings = load_snapshot(PoolGroup.objects.get(), now=timezone.now()).settings
    assert (settings.fair_sharing, settings.starvation_after, settings.restart_cost) == (True, 7, 9)
    with pytest.raises(Stale):
        policies.set_pool_rules(actor=Actor(root), pool=other, rules=rules, expected_version=1)


def test_rules_preview_counts_protected_workloads_and_those_that_keep_their_notice(
    root: User, vision: Department, nlp: Department, pool: Pool
) -> None:
    borrower(nlp, pool)
    rules = PoolRules(notice=60, grace=120, min_runtime=90 * 60, max_reclaims=10)
    preview = preview_rules(actor=Actor(root), pool=pool, rules=rules)
    assert preview.lines == (
        "1 running workload would be protected by the minimum runtime; now it is 0.",
        "2 running workloads keep the notice they started with (at most 10 min).",
    )


# API ------------------------------------------------------------------------------------------------------------------

FULL = {"within": "never", "reclaim": "never", "borrow_preempt": {"max_priority": 3}}
PLACES = ["pools/a100/policy/", "departments/vision/policy/", "departments/vision/quotas/a100/policy/"]


@pytest.mark.parametrize("place", PLACES)
def test_policy_can_be_read_set_and_removed_by_api(root: User, vision: Department, pool: Pool, place: str) -> None:
    client = person(root)
    first = client.get(API + place)
    assert (first["ETag"], first.json()["policy"], first.json()["set_at"]) == ('"1"', None, "default")
    assert client.put(API + place, FULL).status_code == 428
    dry = client.put(API + place + "?dry_run=1", FULL, headers={"If-Match": '"1"'})
    assert (dry.status_code, dry.json()["sentence"]) == (200, "No workload is affected now.")
    answer = client.put(API + place, FULL, headers={"If-Match": '"1"'})
    assert (answer["ETag"], answer.json()["policy"], answer.json()["effective"]) == ('"2"', FULL, FULL)
    stale = client.put(API + place, FULL, headers={"If-Match": '"1"'})
    assert (stale.status_code, stale.json()["current"]) == (412, 2)
    gone = client.delete(API + place, headers={"If-Match": '"2"'})
    assert (gone.json()["policy"], gone.json()["set_at"]) == (None, "default")


@pytest.mark.parametrize("place", PLACES)
def test_owners_can_read_visible_policies_but_set_none(
    vision: Department, nlp: Department, pool: Pool, place: str
) -> None:
    owner, stranger = make.member(vision, Role.OWNER), make.member(nlp, Role.OWNER)
    assert person(owner).get(API + place).status_code == 200
    assert person(stranger).get(API + place).status_code == (200 if place.startswith("pools") else 404)
    for user in (owner, stranger):
        assert person(user).put(API + place, FULL, headers={"If-Match": '"1"'}).status_code == 404
        assert person(user).delete(API + place, headers={"If-Match": '"1"'}).status_code == 404
    assert not AuditEntry.objects.exists()


@pytest.mark.parametrize(
    ("fault", "attr"),
    [
        ({"within": "always"}, "within"),
        ({"reclaim": None}, "reclaim"),
        ({"borrow_preempt": {"max_priority": "x"}}, "borrow_preempt.max_priority"),
        ({"more": 1}, "more"),
    ],
)
def test_invalid_policy_is_refused_with_its_field(root: User, vision: Department, fault: Any, attr: str) -> None:
    answer = person(root).put(API + PLACES[1], FULL | fault, headers={"If-Match": '"1"'})
    assert (answer.status_code, answer.json()["errors"][0]["attr"]) == (422, attr)


def test_department_without_a_quota_in_the_pool_has_no_policy_there(root: User, vision: Department, pool: Pool) -> None:
    make.department("empty")
    answer = person(root).get(API + "departments/empty/quotas/a100/policy/")
    assert (answer.status_code, answer.json()["code"]) == (404, "no_quota")


def test_pool_rules_can_be_previewed_and_changed_by_api(root: User, vision: Department, pool: Pool) -> None:
    client = person(root)
    url = API + "pools/a100/"
    dry = client.patch(url + "?dry_run=1", {"min_runtime": 60}, headers={"If-Match": '"1"'})
    assert dry.json()["sentence"] == "No workload is affected now."
    changed = client.patch(url, {"fair_sharing": True, "notice": 30}, headers={"If-Match": '"1"'}).json()
    assert (changed["fair_sharing"], changed["notice"], changed["grace"], changed["version"]) == (True, 30, 120, 2)


def test_fairness_over_time_is_an_option_of_one_pool(root: User, vision: Department, pool: Pool) -> None:
    other, client, url = make.pool("t4", group=pool.group), person(root), API + "pools/a100/"
    refused = client.patch(url, {"balance_half_life": 60}, headers={"If-Match": '"1"'})
    assert (refused.status_code, "balance_half_life" in str(refused.json()["errors"])) == (422, True)
    week = {"balance_half_life": 604_800, "fair_sharing": True}
    assert client.patch(url + "?dry_run=1", week, headers={"If-Match": '"1"'}).status_code == 200
    answer = client.patch(url, week, headers={"If-Match": '"1"'}).json()
    assert (answer["balance_half_life"], answer["version"]) == (604_800, 2)
    by_id = {each.id: each.balances for each in load_snapshot(PoolGroup.objects.get(), now=timezone.now()).pools}
    assert by_id == {"a100": {}, other.slug: None}
    reader = Client()
    reader.force_login(root)
    page = reader.get(reverse("quotas:operator_pool", args=["a100"]))
    assert page.context["rules"]["balance_half_life"].value() == "7d"
    off = client.patch(url, {"balance_half_life": None}, headers={"If-Match": '"2"'}).json()
    assert (off["balance_half_life"], off["fair_sharing"]) == (None, True)


def lend_lately(pool: Pool, past: Claim, lender: Department, borrower: Department) -> None:
    """The borrower had four units of the lender for nine hours, until the claim ended."""
    ended = past.released_at
    LedgerEntry.objects.create(
        claim=past, pool=pool, department=borrower, own=False, lender=lender, units=4, ended_at=ended,
        started_at=ended - dt.timedelta(hours=9),
    )  # fmt: skip


def test_preview_of_a_half_life_computes_balances_from_recent_loans(root: User, vision: Department, pool: Pool) -> None:
    """Vision has lent to Bio lately."""
    nlp, bio = make.department("nlp"), make.department("bio")
    now = timezone.now()
    lend_lately(pool, make.claim(nlp, pool, 4, ClaimState.RELEASED, started_at=now, released_at=now), vision, bio)
    Quota.objects.filter(department=vision).update(guaranteed=0)
    snapshot = load_snapshot(pool.group, now=now)
    assert with_rules(snapshot, pool, PoolRules.of(pool), now=now).pools[0].balances is None
    rules = replace(PoolRules.of(pool), balance_half_life=86_400)
    balances = with_rules(snapshot, pool, rules, now=now).pools[0].balances
    assert balances is not None
    assert balances["bio"] == -balances["vision"] > 500


def test_preview_of_a_half_life_says_who_would_start_instead(root: User, vision: Department, pool: Pool) -> None:
    """Bio asked first, but has borrowed lately what vision lent."""
    bio, now = make.department("bio"), timezone.now()
    lend_lately(pool, make.claim(bio, pool, 4, ClaimState.RELEASED, started_at=now, released_at=now), vision, bio)
    Quota.objects.filter(department=vision).update(guaranteed=0)
    for department, name in ((bio, "asked-first"), (vision, "asked-second")):
        make.claim(department, pool, 8, name=name)
    today = PoolRules.of(pool)

    def affected(rules: PoolRules) -> tuple[list[str], list[str]]:
        effect = effect_of(Actor(root), what_if(snapshot, with_rules(snapshot, pool, rules, now=now)))
        return [side.name for side in effect.starting], [side.name for side in effect.waiting]

    snapshot = load_snapshot(pool.group, now=now)
    assert affected(today) == ([], [])
    assert affected(replace(today, balance_half_life=86_400)) == (["asked-second"], ["asked-first"])
    preview = preview_rules(actor=Actor(root), pool=pool, rules=replace(today, balance_half_life=86_400))
    assert preview.sentence == "No workload has to be preempted; 1 queued workload would start."
    assert preview.lines == ("1 workload that is about to start would wait.",)
    assert [each.sentence for each in preview.breaks] == [
        "Bio: asked-first, 8 cards is about to start and would have to wait."
    ]


# Pages ----------------------------------------------------------------------------------------------------------------


def form(**more: Any) -> dict[str, Any]:
    return {"own": "1", "reclaim": "never", "within": "never", "borrow_preempt": "never", "version": 1} | more


@pytest.mark.parametrize(
    "url",
    [
        "/operator/pools/a100/policy/",
        "/operator/departments/vision/policy/",
        "/operator/departments/vision/policy/a100/",
    ],
)
def test_an_operator_sets_a_policy_on_its_page_after_a_preview(
    client: Client, root: User, vision: Department, pool: Pool, url: str
) -> None:
    client.force_login(root)
    assert "In effect now: the default policy" in client.get(url).content.decode()
    assert "No workload is affected now." in client.get(url, form(preview=1)).content.decode()
    refused = client.post(url, form(borrow_preempt="up_to"))
    assert (refused.status_code, "Enter the priority." in refused.content.decode()) == (422, True)
    assert confirmed(client, url, form()).status_code == 302
    listed = client.get("/operator/policies/").content.decode()
    assert "it waits until borrowers end" in listed
    stale = client.post(url, form(reclaim="any"))
    assert (stale.status_code, "version 2" in stale.content.decode()) == (409, True)
    assert client.post(url, form(own="", version=2)).status_code == 302
    assert "it waits until borrowers end" not in client.get("/operator/policies/").content.decode()


def test_an_operator_changes_the_rules_of_a_pool_and_a_refused_form_keeps_its_input(
    client: Client, root: User, pool: Pool
) -> None:
    client.force_login(root)
    good = {
        "form": "rules",
        "notice": "30s",
        "grace": "5s",
        "min_runtime": "0",
        "max_reclaims": 3,
        "fair_sharing": "on",
        "version": 1,
    }
    assert "No workload is affected now." in client.get("/operator/pools/a100/preview/", good).content.decode()
    bad = client.post("/operator/pools/a100/", good | {"grace": "25h", "notice": "77s"})
    assert (bad.status_code, 'value="77s"' in bad.content.decode()) == (422, True)
    unclear = client.post("/operator/pools/a100/", good | {"notice": "77"})
    assert (unclear.status_code, "Write 77 with its unit" in unclear.content.decode()) == (422, True)
    assert client.post("/operator/pools/a100/", good).status_code == 302
    pool.refresh_from_db()
    assert (pool.notice, pool.group.fair_sharing, pool.group.starvation_after) == (30, True, None)
    page = client.get("/operator/pools/a100/").content.decode()
    assert ['name="notice" value="30s"' in page, 'name="min_runtime" value="0s"' in page] == [True, True]
