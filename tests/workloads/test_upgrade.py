"""An installation of 0.1.0 with people, quotas, loans and work is upgraded to the present version, on a real PostgreSQL."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from django.core.management import call_command
from django.db import connection
from django.db.migrations.executor import MigrationExecutor
from django.utils import timezone

from portal.infra.crypt import decrypt, encrypt
from portal.models import ApiToken, AuditEntry, Department, Membership, User, Webhook
from quotas import tasks
from quotas.board import invariants as of_quotas
from quotas.board import usage_now
from quotas.board.usage import pool_usage
from quotas.engine.planning_pass import decide
from quotas.models import Claim, Cluster, LedgerEntry, Pool
from quotas.planning.snapshot import load_snapshot
from quotas.spending.source import used_ever
from tests.clusters.realcluster import cannot
from workloads import invariants as of_workloads
from workloads.models import Attempt, Workload

pytestmark = pytest.mark.django_db(transaction=True)

RELEASED = [
    ("portal", "0005_sessions_end_at_once"),
    ("quotas", "0013_outside_the_quota"),
    ("workloads", "0007_log_parts"),
]
"""The newest migrations of 0.1.0."""
WITH_IT = ("admin", "auth", "contenttypes", "sessions")  # Django's own apps, which it had
BEGAN = timezone.now().replace(microsecond=0) - dt.timedelta(hours=5)


@pytest.fixture(autouse=True)
def empty_database() -> Iterator[None]:
    if connection.vendor != "postgresql":
        cannot("needs PostgreSQL")
    own = connection.settings_dict["NAME"]
    where = {"host": connection.settings_dict["HOST"], "port": connection.settings_dict["PORT"]}
    server = psycopg.connect(user=connection.settings_dict["USER"], dbname="postgres", autocommit=True, **where)
    with server:
        server.execute(f'CREATE DATABASE "{own}_upgrade"')
        _disconnect()
        connection.settings_dict["NAME"] = f"{own}_upgrade"
        try:
            yield
        finally:
            _disconnect()
            connection.settings_dict["NAME"] = own
            server.execute(f'DROP DATABASE "{own}_upgrade" WITH (FORCE)')


def _disconnect() -> None:
    connection.close()
    connection.close_pool()  # type: ignore[attr-defined]


def release() -> Any:
    """Creates the tables of 0.1.0; returns the models it had."""
    executor = MigrationExecutor(connection)
    targets = RELEASED + [node for node in executor.loader.graph.leaf_nodes() if node[0] in WITH_IT]
    with connection.cursor() as cursor:  # of the package that counted failed logins then
        cursor.execute("CREATE TABLE axes_accessattempt (id serial PRIMARY KEY)")
    state = executor.migrate(targets)
    return state.apps


def fill(apps: Any) -> None:
    """vision lends 2 of its 6 cards to nlp, which waits for more."""

    def new(label: str, **fields: Any) -> Any:
        return apps.get_model(label).objects.create(**fields)

    ann, bob = (new("portal.User", username=name, password="!", email=f"{name}@example.org") for name in ("ann", "bob"))
    lab = new("portal.Department", slug="lab", name="Lab")
    vision, nlp = (new("portal.Department", slug=slug, name=slug, parent=lab) for slug in ("vision", "nlp"))
    new("portal.Membership", user=ann, department=vision, role="owner")
    new("portal.Membership", user=bob, department=nlp, role="member")
    new("portal.ApiToken", holder=ann, department=vision, name="ci", prefix="gqp_abc", digest="d" * 64, scopes=["read"],
        expires_at=timezone.now() + dt.timedelta(days=30))  # fmt: skip
    new("portal.Webhook", department=vision, name="chat", url="https://open.feishu.cn/x", secret=encrypt("s3cret"))
    for name, kinds in (("left", ["member.invited"]), ("some", ["member.removed", "workload.failed"])):
        new("portal.Webhook", department=vision, name=name, url="https://open.feishu.cn/x", kinds=kinds)
    new("portal.AuditEntry", actor=ann, actor_name="ann", action="quota.changed", department=vision, target="a100")
    cluster = new("quotas.Cluster", name="main", kind="kubernetes", connection=encrypt("kubeconfig"))
    group = new("quotas.PoolGroup", name="main", cluster=cluster)
    pool = new(
        "quotas.Pool", slug="a100", name="A100", group=group, product="A100", sharing="whole", unit="card", nominal=8
    )
    node = new("quotas.Node", cluster=cluster, name="n1", product="A100", sharing="whole")
    for index in range(8):
        new("quotas.Card", node=node, pool=pool, index=index, units=1)
    new("quotas.Quota", department=vision, pool=pool, guaranteed=6)
    new("quotas.Quota", department=nlp, pool=pool, guaranteed=2, borrow_limit=4)
    image = new("workloads.Image", name="python:3.11", title="Python")
    for department, author, own, borrowed in ((vision, ann, 4, 0), (nlp, bob, 2, 2)):
        workload = new("workloads.Workload", department=department, author=author, kind="job", name="train", pool=pool,
                       image=image, command=["python"], units_per_pod=own + borrowed, state="running",
                       attempts_made=1)  # fmt: skip
        claim = new("quotas.Claim", department=department, pool=pool, user=author, name="train", state="holding",
                    workload=workload.public_id, units_per_pod=own + borrowed, started_at=BEGAN)  # fmt: skip
        new("workloads.Attempt", workload=workload, number=1, claim=claim, cluster=cluster, started_at=BEGAN,
            run_name=f"w-{workload.public_id}-1", namespace=f"gqp-{department.slug}")  # fmt: skip
        since = {"claim": claim, "pool": pool, "department": department, "started_at": BEGAN}
        new("quotas.LedgerEntry", own=True, units=own, **since)
        if borrowed:
            new("quotas.LedgerEntry", own=False, lender=vision, units=borrowed, **since)
    waiting = new("workloads.Workload", department=nlp, author=bob, kind="job", name="next", pool=pool, image=image,
                secret_env=encrypt('{"A": "b"}'), units_per_pod=2, attempts_made=1)  # fmt: skip
    claim = new(
        "quotas.Claim", department=nlp, pool=pool, user=bob, name="next", workload=waiting.public_id, units_per_pod=2
    )
    new("workloads.Attempt", workload=waiting, number=1, claim=claim, cluster=cluster, run_name="w-next-1")


@pytest.mark.timeout(240)
def test_data_of_0_1_0_is_kept_by_the_upgrade_and_work_continues() -> None:
    fill(release())
    call_command("migrate", verbosity=0, interactive=False)

    assert sorted(User.objects.values_list("username", "email")) == [
        ("ann", "ann@example.org"),
        ("bob", "bob@example.org"),
    ]
    assert set(Membership.objects.values_list("user__username", "department__slug", "role")) == {
        ("ann", "vision", "owner"), ("bob", "nlp", "member")
    }  # fmt: skip
    assert Department.objects.get(slug="nlp").parent == Department.objects.get(slug="lab")
    token = ApiToken.objects.get()
    assert (token.prefix, token.scopes, token.is_live(timezone.now())) == ("gqp_abc", ["read"], True)
    assert decrypt(Webhook.objects.get(name="chat").secret) == "s3cret"
    hooks = Webhook.objects.order_by("name").values_list("name", "kinds", "active")
    assert list(hooks) == [("chat", [], True), ("left", [], False), ("some", ["workload.failed"], True)]
    assert decrypt(Cluster.objects.get().connection) == "kubeconfig"
    assert AuditEntry.objects.get().action == "quota.changed"

    assert sorted(Workload.objects.values_list("name", "state")) == [
        ("next", "queued"),
        ("train", "running"),
        ("train", "running"),
    ]
    assert decrypt(Workload.objects.get(name="next").secret_env) == '{"A": "b"}'
    assert Attempt.objects.filter(claim__state="holding", finished_at=None).count() == 2
    assert sum(LedgerEntry.objects.filter(ended_at=None).values_list("units", flat=True)) == 8

    now = usage_now.read()
    pool, vision, nlp = Pool.objects.get(), *(Department.objects.get(slug=slug) for slug in ("vision", "nlp"))
    lends, borrows = (pool_usage(now, department.pk, pool.pk) for department in (vision, nlp))
    assert (lends.guaranteed, lends.own, lends.lent) == (6, 4, 2)
    assert (borrows.guaranteed, borrows.own, borrows.borrowed, borrows.queue_units) == (2, 2, 2, 2)
    tasks.meter()
    assert sum(used_ever().values()) == pytest.approx(8 * (timezone.now() - BEGAN).total_seconds(), abs=8 * 60)

    assert [*map(str, of_quotas.violations()), *of_workloads.violations()] == []
    plan = decide(load_snapshot(pool.group, now=timezone.now()))
    [decision] = plan.decisions
    assert decision.claim == Claim.objects.get(name="next").public_id  # it waits: all 8 are taken
    with connection.cursor() as cursor:
        assert "axes_accessattempt" not in connection.introspection.table_names(cursor)
    call_command("migrate", "--check", verbosity=0)
