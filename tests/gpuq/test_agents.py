"""`gpuq mcp` as an agent meets it: the mcp package's own client over stdio, the real web server, real processes."""

from __future__ import annotations

import contextlib
import datetime as dt
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from anyio.from_thread import start_blocking_portal
from django.utils import timezone
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters

from quotas.models import Claim, LedgerEntry
from tests.clients import token_of
from tests.gpuq.test_live import HOME, Site, site  # noqa: F401 (a fixture)
from tests.workloads.conftest import bed  # noqa: F401 (a fixture)
from workloads.models import Workload

pytestmark = [
    pytest.mark.skipif(not os.environ["DATABASE_URL"].startswith("postgres"), reason="needs PostgreSQL"),
    pytest.mark.timeout(180),
]
Call = Callable[..., tuple[str, bool]]


@contextlib.contextmanager
def agent(site: Site, token: str) -> Iterator[tuple[Call, Any, Any]]:  # noqa: F811
    """(call a tool: its text and whether it is an error, the client, and what runs its coroutines)."""
    own = {"PYTHONPATH": str(HOME), "GPUQ_URL": site.server.url, "GPUQ_TOKEN": token, "GPUQ_DEPARTMENT": "vision"}
    command = StdioServerParameters(
        command=sys.executable, args=["-m", "gpuq", "mcp"], env={**os.environ, **own, "LANG": "C"}
    )
    with start_blocking_portal() as loop, loop.wrap_async_context_manager(Client(command)) as client:

        def call(tool: str, **arguments: Any) -> tuple[str, bool]:
            answer = loop.call(client.call_tool, tool, arguments)
            assert token not in str(answer)
            return answer.content[0].text, bool(answer.is_error)

        yield call, client, loop


def good(answer: tuple[str, bool]) -> str:
    assert not answer[1], answer[0]
    return answer[0]


def refused(answer: tuple[str, bool]) -> str:
    assert answer[1], answer[0]
    return answer[0]


def request(site: Site, program: str, **more: Any) -> dict[str, Any]:  # noqa: F811
    return {
        "name": "probe", "pool": site.bed.pool.slug, "amount": "1 card", "image": "python:3.11",
        "command": list(site.bed.program(program)), "max_runtime": 600, **more,
    }  # fmt: skip


def confirmed(text: str) -> str:
    return re.findall(r"confirm: (\w+)", text)[0]


def test_from_the_offer_to_the_log(site: Site) -> None:  # noqa: F811
    with agent(site, site.token) as (call, _client, _loop):
        offer = good(call("offer"))
        assert "vision: Vision" in offer
        assert f"  {site.bed.pool.slug}: " in offer
        asked = request(site, "print('hello from the card'); raise SystemExit(3)")
        verdict = good(call("verdict", request=asked))
        assert not Workload.objects.exists()
        first = good(call("submit", request=asked, confirm=confirmed(verdict)))
        again = good(call("submit", request=asked, confirm=confirmed(verdict)))
        identity = first.split(":")[0]
        assert again.split(":")[0] == identity
        assert Workload.objects.get().public_id == identity
        ended = good(call("wait", workload=identity))
        assert "failed since" in ended
        assert "exit code 3" in ended
        assert good(call("logs", workload=identity)) == "Log of attempt 1, whole:\nhello from the card\n"
        assert good(call("list_workloads", state="final")).startswith(identity)
        assert "workload.failed" in good(call("why", workload=identity))
        assert good(call("status", workload=identity)) == ended


def test_nothing_is_submitted_but_what_had_a_verdict(site: Site) -> None:  # noqa: F811
    with agent(site, site.token) as (call, _client, _loop):
        asked = request(site, "pass")
        assert "Ask `verdict` about this request" in refused(call("submit", request=asked, confirm="guessed"))
        mark = confirmed(good(call("verdict", request=asked)))
        text = refused(call("submit", request={**asked, "amount": "2 cards", "pods": 2}, confirm=mark))
        assert "these differ: amount, pods" in text
        assert "pool" in refused(call("verdict", request={**asked, "pool": "nowhere"}))
        text = good(call("verdict", request={**asked, "amount": "64 cards"}))
        assert "There is nothing to submit" in text
        assert "confirm:" not in text
        assert not Workload.objects.exists()


def test_it_waits_says_why_and_stops_only_its_own(site: Site) -> None:  # noqa: F811
    theirs = site.bed.submit(site.bed.bob, site.bed.nlp, "import time; time.sleep(600)", cards=2)
    colleague = site.bed.submit(site.bed.alice, site.bed.vision, "import time; time.sleep(600)", cards=2)
    Workload.objects.filter(pk=colleague.pk).update(author=site.bed.bob)
    with agent(site, site.token) as (call, _client, _loop):
        asked = request(site, "import time; time.sleep(600)", amount="3 cards")
        identity = good(call("submit", request=asked, confirm=confirmed(good(call("verdict", request=asked))))).split(
            ":"
        )[0]
        assert "Not finished" in good(call("wait", workload=identity, seconds=1))
        assert "queued since" in good(call("why", workload=identity))
        assert "(not_found)" in refused(call("cancel", workload=theirs.public_id))  # another department's
        assert f"is {site.bed.bob.username}'s" in refused(call("cancel", workload=colleague.public_id))
        assert "cancelled" in good(call("cancel", workload=identity)) + good(call("wait", workload=identity))
    assert {row.public_id for row in Workload.objects.filter(cancel_requested_at__isnull=False)} == {identity}


def test_a_token_with_gpu_hours_tells_them_and_ends_with_them(site: Site) -> None:  # noqa: F811
    token = token_of(site.bed.alice, site.bed.vision, ["read", "submit"], gpu_hours=5, name="agent")[1]
    with agent(site, token) as (call, _client, _loop):
        asked = request(site, "pass")
        verdict = good(call("verdict", request=asked))
        assert "Token “agent”: 0.0 of 5 GPU-hours are used, until" in verdict
        identity = good(call("submit", request=asked, confirm=confirmed(verdict))).split(":")[0]
        good(call("wait", workload=identity))
        claim = Claim.objects.get(workload=identity)
        now = timezone.now()
        LedgerEntry.objects.create(
            claim=claim, pool=claim.pool, department=claim.department, own=True, units=1_000_000, ended_at=now,
            started_at=now - dt.timedelta(seconds=10),
        )  # fmt: skip
        assert "of 5 GPU-hours are used" in good(call("usage"))
        text = refused(call("verdict", request=asked))
        assert "may use 5 GPU-hours each month" in text
        assert text.endswith("(token_used_up)")


def test_tools_say_what_they_change(site: Site) -> None:  # noqa: F811
    with agent(site, site.token) as (_call, client, loop):
        tools = {tool.name: tool.annotations for tool in loop.call(client.list_tools).tools}
    changing = {name for name, hints in tools.items() if not hints.read_only_hint}
    assert changing == {"submit", "cancel"}
    assert {name for name in changing if tools[name].destructive_hint} == {"cancel"}


def test_a_token_that_may_only_read_is_told_so(site: Site) -> None:  # noqa: F811
    token = token_of(site.bed.alice, site.bed.vision, ["read"])[1]
    with agent(site, token) as (call, _client, _loop):
        text = refused(call("verdict", request=request(site, "pass")))
        assert text == "Error executing tool verdict: This token does not have the scope submit. (scope_missing)"


def test_without_the_extra_it_says_how_to_get_it(tmp_path: Path) -> None:
    (tmp_path / "mcp.py").write_text("raise ModuleNotFoundError('no', name='mcp')")
    own = {"PYTHONPATH": f"{tmp_path}:{HOME}", "GPUQ_URL": "https://gpu.example.org", "GPUQ_TOKEN": "gqp_a1_secret"}
    run = subprocess.run(
        [sys.executable, "-m", "gpuq", "mcp"], env={**os.environ, **own}, capture_output=True, text=True, check=False
    )
    assert (run.returncode, run.stderr) == (2, "gpuq: gpuq mcp needs its extra: pip install 'gpuq[mcp]'\n")
