"""A month of demand, played through the product with a moved clock: what *Usage* reports (page, API, CSV), what the ledger has
and what `/metrics` counts agree to the second, for each department, person and pool, own, borrowed and lent.

People submit through the API; the planner, the reconciler and the meter run as in operation, on a cluster in memory. Cards are
whole, shared by memory and cut by MIG. In the middle an operator changes a quota; nodes fail; loans are recalled.
"""

from __future__ import annotations

import csv
import datetime as dt
import html
import io
import random
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any

import pytest
import time_machine
from django.test import Client
from prometheus_client.parser import text_string_to_metric_families

from portal.models import Department, Role, User
from quotas.models import Card, Cluster, LedgerEntry, Pool, Quota, WorkDay
from quotas.planning.run_pass import run_pass
from quotas.reports.sums import hours
from quotas.spending.metering import sum_hours
from tests import builders as make
from tests.clients import confirmed, person
from tests.clusters.fakes import InMemoryCluster, Life, Run
from workloads.clusters.drivers import Lending
from workloads.models import Attempt, Image
from workloads.reconciler import deadlines
from workloads.reconciler.reconcile import reconcile_cluster
from workloads.runtime.base import Observed, Phase, RunSpec

pytestmark = pytest.mark.django_db(transaction=True)
START = dt.datetime(2026, 9, 1, tzinfo=dt.UTC)
END = dt.datetime(2026, 10, 1, tzinfo=dt.UTC)
ARRIVALS = 90
OWN = {"vision": ("ann", "amy"), "nlp": ("ben", "bea"), "bio": ("eve", "amy")}  # amy works in two departments
ASKED: dict[str, tuple[dict[str, Any], ...]] = {
    "a100": (
        {"units_per_pod": 1}, {"units_per_pod": 2}, {"units_per_pod": 4},
        {"units_per_pod": 1, "pods": 3, "kind": "distributed", "setup": {"template": "torch"}},
    ),
    "t4": ({"units_per_pod": 2048}, {"units_per_pod": 7680}, {"units_per_pod": 1024, "cores_per_pod": 50}),
    "mig": ({"profile": "1g.10gb"}, {"profile": "3g.40gb"}, {"profile": "7g.80gb"}),
}  # fmt: skip
Key = tuple[str, str, str, str]  # department, person ("": lent, which nobody does as a person), pool, share


@dataclass
class Nodes(InMemoryCluster):
    """Runs with a name in `dead` were on a node that failed."""

    dead: set[str] = field(default_factory=set)

    def look(self, run: Run) -> Observed:
        seen = super().look(run)
        if run.spec.ref.name in self.dead and seen.phase is Phase.RUNNING:
            return replace(seen, phase=Phase.LOST, reason="NodeLost")
        return seen


@dataclass
class Month:
    clock: time_machine.Traveller
    chance: random.Random
    nodes: Nodes
    cluster: Cluster
    people: dict[str, User]
    root: User

    def turn(self, now: dt.datetime) -> None:
        """What planner, watcher and beat do, at this time."""
        self.clock.move_to(now, tick=False)
        for group in {pool.group_id for pool in Pool.objects.all()}:
            run_pass(group_id=group)
        reconcile_cluster(Cluster.objects.get(pk=self.cluster.pk))

    def submit(self, at: int) -> None:
        department = self.chance.choice(sorted(OWN))
        who, pool = self.chance.choice(OWN[department]), self.chance.choice(sorted(ASKED))
        body = {"name": f"w{at}", "image": "python:3.11", "command": ["train"], "pool": pool}
        body |= {"kind": self.chance.choice(["job", "job", "notebook"])} | self.chance.choice(ASKED[pool])
        answer = person(self.people[who]).post(f"/api/v1/departments/{department}/workloads/", body, "json")
        assert answer.status_code == 202, answer.content

    def change_quota(self) -> None:
        """Two of vision's cards become nlp's."""
        client = Client()
        client.force_login(self.root, backend="django.contrib.auth.backends.ModelBackend")
        for department, guaranteed in (("vision", 2), ("nlp", 5)):
            row = Quota.objects.get(department__slug=department, pool__slug="a100")
            fields = {"guaranteed": guaranteed, "borrow_limit": "", "lend_limit": "", "version": row.version,
                      "why": "a grant ended", "zone": "UTC"}  # fmt: skip
            answer = confirmed(client, f"/d/{department}/quotas/a100/", fields)
            assert answer.status_code == 302, answer.content.decode()[:4000]
        assert Quota.objects.get(department__slug="nlp", pool__slug="a100").guaranteed == 5

    def node_dies(self) -> None:
        running = [run for run in self.nodes.observe() if run.phase is Phase.RUNNING]
        if running:
            self.nodes.dead.add(self.chance.choice(running).ref.name)

    def play(self) -> None:
        step = (END - START) / ARRIVALS
        for at in range(ARRIVALS):
            now = START + step * at + dt.timedelta(seconds=self.chance.randrange(600), microseconds=250_000)
            self.clock.move_to(now, tick=False)
            self.submit(at)
            if at == ARRIVALS // 2:
                self.change_quota()
            if at % 10 == 7:
                self.node_dies()
            # Placed and started, others recalled; their notice over; stopped; others started in their place.
            for seconds in (
                1,
                4,
                610,
                700,
            ):
                self.turn(now + dt.timedelta(seconds=seconds))
                if seconds == 610:
                    deadlines.keep(now=now + dt.timedelta(seconds=seconds))
            if self.chance.random() < 0.6:
                sum_hours(now=now + dt.timedelta(seconds=701))
        self.turn(END)
        sum_hours(now=END)


@pytest.fixture
def month(monkeypatch: pytest.MonkeyPatch) -> Iterator[Month]:
    with time_machine.travel(START - dt.timedelta(hours=1), tick=False) as clock:
        chance = random.Random("a month")

        def life_of(spec: RunSpec) -> Life:
            return Life(runs=chance.uniform(1_800, 3 * 86_400), code=chance.choice([0, 0, 0, 1]), farewell=20)

        nodes = Nodes("memory", (), life_of)
        monkeypatch.setattr("workloads.reconciler.reconcile.driver_for", lambda row: Lending(nodes))
        Image.objects.create(name="python:3.11", title="Python", interpreter="python")
        a100 = make.pool("a100", cards=8, nodes=2, notice=600, grace=60)
        more: dict[str, Any] = {"group": a100.group, "notice": 600, "grace": 60}
        t4 = make.pool("t4", cards=2, sharing="hami", unit="MiB", units_per_card=15_360, product="Tesla-T4", **more)
        Card.objects.filter(pool=t4).update(cores=100)
        mig = make.pool("mig", cards=2, sharing="mig", unit="slice", units_per_card=8, mig="A100-80GB", **more)
        people = {name: make.user(name) for names in OWN.values() for name in names if name not in ("amy",)}
        people["amy"] = make.user("amy")
        for slug, names in OWN.items():
            department = make.department(slug)
            for name in names:
                people[name].memberships.create(department=department, role=Role.MEMBER)
            for pool, cards in ((a100, 4), (t4, 1), (mig, 1)):
                share = (
                    {"vision": 1, "nlp": 3 / 4, "bio": 0}[slug]
                    if pool == a100
                    else {"vision": 1, "nlp": 1, "bio": 0}[slug]
                )
                make.quota(department, pool, int(cards * share) * pool.units_per_card)
        root = make.user("root", is_operator=True)
        yield Month(clock, chance, nodes, a100.group.cluster, people, root)


def test_report_ledger_and_metrics_of_a_month_agree_to_the_second(month: Month) -> None:
    month.play()
    ledger = of_the_ledger()
    assert of_the_api(month.root) == ledger
    assert of_the_metrics() == ledger
    check_csv(month.root, ledger)
    check_page(month.root, ledger)
    for name, who in month.people.items():  # what people are shown of themselves
        own = {key: spent for key, spent in ledger.items() if key[1] == name}
        assert of_the_api(who) == own, name
    check_that_a_month_was_played(ledger)


def of_the_ledger() -> dict[Key, int]:
    """Each entry by itself, in whole seconds."""
    sums: dict[Key, int] = defaultdict(int)
    for entry in LedgerEntry.objects.select_related("claim", "department", "pool", "lender"):
        first = max(entry.started_at.replace(microsecond=0), START)
        last = min((entry.ended_at or END).replace(microsecond=0), END)
        spent = entry.units * max(0, int((last - first).total_seconds()))
        share = "own" if entry.own else "borrowed"
        sums[entry.department.slug, entry.claim.person, entry.pool.slug, share] += spent
        if entry.lender is not None:
            sums[entry.lender.slug, "", entry.pool.slug, "lent"] += spent
    return {key: spent for key, spent in sums.items() if spent}


ASK = {"from": "2026-09-01T00:00:00Z", "until": "2026-10-01T00:00:00Z", "limit": 5000}


def of_the_api(who: User) -> dict[Key, int]:
    sums: dict[Key, int] = {}
    client = person(who)
    for row in client.get("/api/v1/usage/", ASK | {"group": "department,person,pool"}).json()["results"]:
        for share in ("own", "borrowed"):
            sums[row["department"], row["person"], row["pool"], share] = row["unit_seconds"][share]
    for row in client.get("/api/v1/usage/", ASK | {"group": "department,pool"}).json()["results"]:
        sums[row["department"], "", row["pool"], "lent"] = row["unit_seconds"]["lent"] or 0
    return {key: spent for key, spent in sums.items() if spent}


def of_the_metrics() -> dict[Key, int]:
    """The counters of people, and of departments what they lent; checks that their other shares are sums of those of people."""
    sums: dict[Key, int] = {}
    departments: dict[tuple[str, str, str], int] = {}
    for family in text_string_to_metric_families(Client().get("/metrics").content.decode()):
        for sample in family.samples:
            of = sample.labels
            if sample.name == "portal_person_used_unit_seconds_total":
                sums[of["department"], of["person"], of["pool"], of["share"]] = int(sample.value)
            elif sample.name == "portal_used_unit_seconds_total":
                departments[of["department"], of["pool"], of["share"]] = int(sample.value)
    for (department, pool, share), spent in departments.items():
        if share == "lent":
            sums[department, "", pool, share] = spent
        else:
            people = [n for (d, _person, p, s), n in sums.items() if (d, p, s) == (department, pool, share)]
            assert spent == sum(people), (department, pool, share)
    return {key: spent for key, spent in sums.items() if spent}


def check_csv(root: User, ledger: dict[Key, int]) -> None:
    client = person(root)
    answer: Any = client.get("/usage/export.csv", ASK | {"group": "department,person,pool"})
    text = b"".join(answer.streaming_content).decode("utf-8-sig")
    rows = list(csv.DictReader(io.StringIO(text)))
    assert len(rows) == len({key[:3] for key in ledger if key[3] != "lent"})
    for row in rows:
        for share in ("own", "borrowed"):
            spent = ledger.get((row["department"], row["person"], row["pool"], share), 0)
            expected = hours(spent, Pool.objects.get(slug=row["pool"]).unit)
            assert abs(Decimal(row[f"{share}_hours"]) - expected) <= Decimal("0.00005"), row


def check_page(root: User, ledger: dict[Key, int]) -> None:
    """The figures of the table, by department and pool."""
    client = Client()
    client.force_login(root, backend="django.contrib.auth.backends.ModelBackend")
    answer = client.get("/usage/", ASK | {"group": "department,pool"})
    names = dict(Department.objects.values_list("name", "slug")) | dict(Pool.objects.values_list("name", "slug"))
    units = dict(Pool.objects.values_list("slug", "unit"))
    rows = 0
    for body in re.findall(r"<tr>(.*?)</tr>", answer.content.decode().partition("<tbody>")[2], re.DOTALL):
        cells = [
            html.unescape(re.sub(r"<[^>]+>", "", cell)).strip()
            for cell in re.findall(r"<td.*?>(.*?)</td>", body, re.DOTALL)
        ]
        if len(cells) < 6 or cells[0] not in names:
            continue
        department, pool = names[cells[0]], names[cells[1]]
        rows += 1
        for cell, share in zip(cells[2:5], ("own", "borrowed", "lent"), strict=True):
            spent = sum(n for (d, _who, p, s), n in ledger.items() if (d, p, s) == (department, pool, share))
            assert (cell or "0.00") == f"{hours(spent, units[pool]):,.2f}", (department, pool, share)
    assert rows == 9, "three departments in three pools"


def check_that_a_month_was_played(ledger: dict[Key, int]) -> None:
    """Checks that there was something to compare."""
    for pool in ASKED:
        for share in ("own", "borrowed", "lent"):
            assert any(key[2:] == (pool, share) for key in ledger), (pool, share)
    assert {key[1] for key in ledger} == {"", "ann", "amy", "ben", "bea", "eve"}
    assert sum(key[0] == "vision" and key[1] == "amy" for key in ledger)
    assert sum(key[0] == "bio" and key[1] == "amy" for key in ledger)
    outcomes = Counter(Attempt.objects.values_list("outcome", flat=True))
    assert outcomes["recalled"] >= 3, outcomes
    assert outcomes["lost"] >= 3, outcomes
    assert outcomes["succeeded"] >= 20, outcomes
    assert outcomes["failed"] >= 3, outcomes
    again = Attempt.objects.filter(workload__attempts__outcome="lost", number__gt=1)
    assert again.exclude(started_at=None).exists(), "queued again after a fault, and started"
    assert WorkDay.objects.exists(), "most of it is read from days"
