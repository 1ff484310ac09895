"""`gpuq budget`, `quarantines` and `requests` against the real API: what they list, and what must be confirmed first."""

from __future__ import annotations

import datetime as dt
import json
import os
import re

import pytest
from django.utils import timezone

from portal.models import Department, Role
from quotas.models import Budget, Pool, Quarantine, Quota
from tests import builders as make
from tests.clients import ALL, token_of
from tests.gpuq.test_live import Site, bed, site  # noqa: F401 (fixtures)

pytestmark = [
    pytest.mark.skipif(not os.environ["DATABASE_URL"].startswith("postgres"), reason="needs PostgreSQL"),
    pytest.mark.timeout(180),
]


def test_member_can_list_their_budgets(site: Site) -> None:  # noqa: F811
    vision = Department.objects.get(slug="vision")
    row = Budget.objects.create(department=vision, hours=200, action="no_new_work")
    code, out, err = site.run("budget")
    assert code == 0, err
    head, line = out.splitlines()
    assert re.split(r"\s{2,}", head)[:6] == ["ID", "DEPARTMENT", "PERSON", "POOL", "USED", "LIMIT"]
    assert re.split(r"\s{2,}", line)[:6] == [row.public_id, "vision", "-", "all", "0.0", "200"]
    assert line.endswith("fine   no_new_work")
    code, out, err = site.run("budget", "--mine", "--json")
    assert (code, json.loads(out)) == (0, []), err


def test_operator_can_list_begin_and_end_quarantines(site: Site) -> None:  # noqa: F811
    assert site.run("quarantines")[0] == 2  # not an operator
    vision = Department.objects.get(slug="vision")
    oscar = make.member(vision, Role.OWNER, "oscar", is_operator=True)
    token = token_of(oscar, None, ALL)[1]  # type: ignore[arg-type]
    pool = Pool.objects.get()
    node = pool.group.cluster.nodes.order_by("name").first()
    assert node is not None
    make.holding(
        vision, pool, own=1, name="runs", notice=60, grace=10, started_at=timezone.now(),
        placement=[{"pod": 0, "node": node.name, "cards": [0]}],
    )  # fmt: skip

    def run(*words: str) -> tuple[int, str, str]:
        return site.run("quarantines", *words, GPUQ_TOKEN=token)

    assert run("--node", "nowhere", "--why", "fan")[2].strip().endswith("there is no node nowhere")
    assert "give --why" in run("--node", node.name)[2]
    code, out, err = run("--node", node.name, "--dry-run")
    assert (code, Quarantine.objects.count()) == (0, 0), err
    code, _out, err = run("--node", node.name, "--why", "fan")
    assert (code, Quarantine.objects.count()) == (2, 0)
    mark = err.split("--confirm ")[1].strip()
    code, out, err = run("--node", node.name, "--why", "fan", "--confirm", mark)
    assert code == 0, err
    row = Quarantine.objects.get()
    assert out.strip() == row.public_id
    listed = run()[1].splitlines()
    assert re.split(r"\s{2,}", listed[1])[1:4] == [pool.group.cluster.name, node.name, "all"]
    assert listed[1].endswith("fan")
    assert run("--end", row.public_id)[0] == 0
    assert len(run()[1].splitlines()) == 1
    assert len(run("--all")[1].splitlines()) == 2
    assert run("--end", row.public_id)[0] == 2  # it has ended


def test_quota_request_can_be_commented_decided_renewed_and_withdrawn(site: Site) -> None:  # noqa: F811
    vision, pool = Department.objects.get(slug="vision"), Pool.objects.get()
    operator = token_of(make.user("root", is_operator=True), None, ALL)[1]  # type: ignore[arg-type]
    Quota.objects.exclude(department=vision).update(guaranteed=0)
    Quota.objects.filter(department=vision).update(guaranteed=2)

    def run(*words: str, token: str = "") -> tuple[int, str, str]:
        return site.run("requests", *words, **({"GPUQ_TOKEN": token} if token else {}))

    def submit_request(total: int) -> str:
        code, out, err = site.run("request", "--pool", pool.slug, "--total", str(total), "--why", "a paper")
        assert code == 0, err
        return out.strip()

    first = submit_request(4)
    assert first in run("--to-decide", token=operator)[1]
    assert first not in run("--to-decide")[1]
    assert run("--comment", first, "--note", "Until the deadline.")[:2] == (0, "open\n")
    assert "text" in run("--comment", first)[2]
    assert run("--approve", first)[0] == 2, "its author cannot approve it"
    code, _out, err = run("--deny", first, token=operator)
    assert (code, "Enter the reason" in err) == (2, True)
    code, _out, err = run("--approve", first, "--total", "many", token=operator)
    assert (code, "amount" in err) == (2, True), err
    code, _out, err = run("--approve", first, "--total", "900", token=operator)
    assert (code, "at most 4 cards in total" in err) == (2, True), err
    last = str(timezone.localdate() + dt.timedelta(days=20))
    code, out, err = run("--approve", first, "--total", "3", "--until", last, "--note", "Three.", token=operator)
    assert (code, out) == (0, "granted\n"), err
    assert Quota.objects.get(department=vision).guaranteed == 3
    assert last in run()[1]
    code, out, err = run("--renew", first)
    assert code == 0, err
    assert run("--withdraw", out.strip())[:2] == (0, "withdrawn\n")
    code, _out, err = run("--withdraw", out.strip())
    assert (code, "no longer open" in err) == (2, True)
    second = submit_request(4)
    assert run("--deny", second, "--note", "Not now.", token=operator)[:2] == (0, "denied\n")
    assert run("--approve", "nothing", token=operator)[0] == 2
