"""An installation without containers: the same processes as in docker-compose.yml, and a CI pipeline that uses it."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import expect

from tests.clusters import realcluster
from tests.e2e.conftest import Person
from tests.e2e.installation import Installation, eventually, installed
from tests.e2e.one_demo.test_notebook import run_a_cell

pytestmark = [
    pytest.mark.timeout(400),
    pytest.mark.skipif(
        not os.environ["DATABASE_URL"].startswith("postgres") or not os.environ["TEST_REDIS_URL"],
        reason="needs PostgreSQL and Redis",
    ),
]
PEOPLE = """
import datetime as dt, json
from django.utils import timezone
from portal.access import Actor
from portal.accounts.tokens import create_token
from portal.models import Department, Membership, Role, User
from workloads.models import Image
Image.objects.create(name="test.local/python:3", title="Python")
root, tokens = User.objects.get(username="root"), {}
def token(user, department, scopes):
    end = timezone.now() + dt.timedelta(days=1)
    return create_token(actor=Actor(user), department=department, name="ci", scopes=scopes, expires_at=end)[1]
for slug in ("vision", "nlp"):
    department = Department.objects.create(slug=slug, name=slug)
    user = User.objects.create_user(f"{slug}-ci")
    Membership.objects.create(user=user, department=department, role=Role.MEMBER)
    tokens[slug] = token(user, department, ["read", "submit"])
    tokens[f"root-{slug}"] = token(root, department, ["read", "submit", "quota", "admin"])
tokens["root"] = token(root, None, ["read", "submit", "quota", "admin"])
print(json.dumps(tokens))
"""


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    with installed(tmp_path_factory.mktemp("installation")) as made:
        made.manage("bootstrap", "root", "--password-file", "-", given="correct horse battery staple\n")
        yield made


@pytest.fixture(scope="module")
def tokens(here: Installation) -> dict[str, str]:
    return dict(here.python(PEOPLE))


def test_only_one_first_operator_can_be_created(here: Installation) -> None:
    with pytest.raises(AssertionError, match="root is operator already"):
        here.manage("bootstrap", "second", "--password-file", "-", given="correct horse battery staple\n")


def test_every_process_reports_that_it_is_alive(here: Installation) -> None:
    for process in ("worker", "beat", "watcher"):
        eventually(lambda process=process: alive(here, process), 60, here.said)  # type: ignore[misc]


def alive(here: Installation, process: str) -> bool:
    try:
        here.manage("alive", process, "--within", "30")
    except AssertionError:
        return False
    return True


def test_pages_and_their_static_files_are_served(here: Installation) -> None:
    page = httpx.get(f"{here.url}/login/", trust_env=False)
    assert page.status_code == 200
    styles = re.findall(r'href="(/static/[^"]+\.css)"', page.text)
    assert styles
    for style in styles:
        answer = httpx.get(here.url + style, trust_env=False)
        assert (answer.status_code, "immutable" in answer.headers["Cache-Control"]) == (200, True)


@pytest.fixture(scope="module")
def pool(here: Installation, tokens: dict[str, str]) -> Iterator[dict[str, Any]]:
    """The operator adds the test cluster; the inventory finds its real node's cards; vision is guaranteed 6 of 8."""
    with realcluster.shared() as info, realcluster.Admin(info).account() as account:
        admin = realcluster.Admin(info)
        name = realcluster.unique("production")
        with here.client(tokens["root"]) as root:
            body = {
                "name": name,
                "kubeconfig": account,
                "options": {"storage_class": "local", "image_pull_policy": "Never", "namespace_prefix": f"{name}-"},
            }
            added = root.post("clusters/", json=body)
            assert added.status_code == 201, added.text
            pool = eventually(lambda: pool_of_real_node(root), 90, lambda: root.get("pools/").text)
            for department, guaranteed in (("vision", 6), ("nlp", 0)):
                with here.client(tokens[f"root-{department}"]) as owner:
                    quota = {"guaranteed": guaranteed, "borrow_limit": None, "lend_limit": None}
                    url = f"departments/{department}/quotas/{pool['id']}/"
                    answer = owner.put(url, json=quota, headers={"If-None-Match": "*"})
                    assert answer.status_code in {200, 201}, answer.text
        here.python("from quotas.models import Pool; Pool.objects.update(notice=3, grace=2); print('{}')")
        yield pool
        for department in ("vision", "nlp"):
            admin.call("DELETE", f"/api/v1/namespaces/{name}-{department}")


def pool_of_real_node(root: httpx.Client) -> dict[str, Any] | None:
    pools = root.get("pools/", params={"limit": 100}).json()["results"]
    return next((pool for pool in pools if pool["product"] == "Pretended-GPU" and pool["nominal"] == 8), None)


def job(pool: dict[str, Any], name: str, cards: int, code: str) -> dict[str, Any]:
    return {
        "name": name, "image": "test.local/python:3", "command": ["python3", "-u", "-c", code], "pool": pool["id"],
        "units_per_pod": cards, "cpu": 0.1, "memory_mib": 64,
    }  # fmt: skip


def submit(client: httpx.Client, department: str, body: dict[str, Any]) -> str:
    answer = client.post(f"departments/{department}/workloads/", json=body, headers={"Idempotency-Key": body["name"]})
    assert answer.status_code == 202, answer.text
    return answer.headers["Location"].split("/api/v1/")[1]


def state(client: httpx.Client, where: str, *wanted: str, seconds: float = 90) -> dict[str, Any]:
    """Holds a request open until the workload is in one of these states."""
    end, row = time.monotonic() + seconds, client.get(where).json()
    while row["state"] not in wanted:
        assert time.monotonic() < end, row
        row = client.get(where, params={"wait": 20, "version": row["version"]}).json()
    return dict(row)


@pytest.mark.cluster
def test_a_pipeline_submits_waits_and_reads_log_and_exit_code_of_a_real_pod(
    here: Installation, tokens: dict[str, str], pool: dict[str, Any]
) -> None:
    with here.client(tokens["vision"]) as ci:
        body = job(
            pool, "hello", 1, "import os, sys; print('cards', os.environ['NVIDIA_VISIBLE_DEVICES']); sys.exit(7)"
        )
        where = submit(ci, "vision", body)
        assert submit(ci, "vision", body) == where  # the same key is the same workload
        row = state(ci, where, "succeeded", "failed")
        assert (row["state"], row["exit_code"]) == ("failed", 7)
        assert ci.get(f"{where}logs/").text.startswith("cards ")
    with here.client(tokens["nlp"]) as other:
        assert other.get(where).status_code == 404


@pytest.mark.cluster
def test_owner_reclaims_lent_cards_and_the_borrower_is_queued_again(
    here: Installation, tokens: dict[str, str], pool: dict[str, Any]
) -> None:
    forever = "import signal, sys, time; signal.signal(15, lambda *_: sys.exit(0)); print('up'); time.sleep(600)"
    with here.client(tokens["nlp"]) as nlp, here.client(tokens["vision"]) as vision:
        borrower = submit(nlp, "nlp", job(pool, "borrows", 6, forever))
        state(nlp, borrower, "running")
        owner = submit(vision, "vision", job(pool, "needs-its-own", 4, forever))
        assert state(nlp, borrower, "recalled", "stopping", "queued")["state"] != "running"
        assert state(vision, owner, "running")["state"] == "running"
        queued = state(nlp, borrower, "queued")
        assert queued["id"] in borrower
        assert [attempt["outcome"] for attempt in queued["attempts"] if attempt["outcome"]] == ["recalled"]
        for client, where in ((nlp, borrower), (vision, owner)):
            assert client.delete(where).status_code == 202
            state(client, where, "cancelled")


INES = """
from portal.models import Department, Membership, Role, User
from workloads.models import Image
ines = User.objects.create_user("ines", password="correct-horse-ines")
Membership.objects.create(user=ines, department=Department.objects.get(slug="vision"), role=Role.MEMBER)
Image.objects.create(name="test.local/jupyter:4", title="Jupyter", kinds=["notebook"])
print("{}")
"""


@pytest.mark.cluster
@pytest.mark.e2e
def test_a_cell_runs_in_jupyter_in_a_real_pod(here: Installation, pool: dict[str, Any], chromium: Any) -> None:
    """From the form to the output: the pod's server through the portal's proxy, HTTP and WebSocket, on its own origin."""
    brought = realcluster.kit("bring", "jupyter", timeout=300)
    assert brought.returncode == 0, brought.stderr
    here.python(INES)
    ines = Person(chromium, here.url, "ines", "correct-horse-ines")
    page = ines.go(f"/d/vision/workloads/new/?kind=notebook&image=test.local/jupyter:4&pool={pool['id']}&name=lab")
    page.get_by_text("CPU, memory, placement").click()
    page.get_by_label("CPU cores").fill("0.5")  # the node is a part of this machine
    page.get_by_label("Memory", exact=True).fill("1 GiB")
    page.get_by_role("button", name="Submit").click()
    button = page.get_by_role("button", name="Open notebook")
    expect(button).to_be_visible(timeout=120_000)
    with page.expect_popup() as opened:
        button.click()
    lab = opened.value
    workload = page.url.rstrip("/").rsplit("/", 1)[1]
    lab.wait_for_url(f"http://{workload}.localhost:*/notebooks/{workload}/lab*", timeout=120_000)
    told = run_a_cell(
        lab, "import os, socket; print(socket.gethostname(), len(os.environ['NVIDIA_VISIBLE_DEVICES']) > 4)"
    )
    assert told == f"w-{workload}-1 True"
    page.get_by_role("button", name="Stop").first.click()
    ines.context.close()
    assert ines.complaints() == []


def test_web_ends_within_five_seconds_despite_an_open_stream_and_the_rest_follows(
    here: Installation, tokens: dict[str, str]
) -> None:
    accept = {"Accept": "text/event-stream"}
    with here.client(tokens["vision"]) as client, client.stream("GET", "events/", headers=accept) as stream:
        assert stream.status_code == 200
        processes = dict(here.children())
        assert len(processes) == 4, processes
        begun, took = time.monotonic(), {}
        here.process.send_signal(signal.SIGTERM)
        while processes:
            for pid in [pid for pid in processes if not Path(f"/proc/{pid}").exists()]:
                took[processes.pop(pid)] = time.monotonic() - begun
            assert time.monotonic() - begun < 30, processes
            time.sleep(0.02)
    assert here.process.wait(5) == 0, here.said()
    web = next(seconds for command, seconds in took.items() if command.endswith("manage.py serve"))
    crowded = os.getloadavg()[0] > (os.cpu_count() or 1)  # the limit does not apply to an overloaded machine
    assert web < (20 if crowded else 5), took
    assert max(took.values()) < (30 if crowded else 15), took
