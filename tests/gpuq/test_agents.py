"""`gpuq mcp` as an agent uses it: the mcp package's own client over stdio, the real web server, real processes."""

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
    """Yields a function that calls a tool (returning its text and whether it is an error), the client, and its event loop."""
    own = {"PYTHONPATH": str(HOME), "GPUQ_URL": site.server.url, "GPUQ_TOKEN": token, "GPUQ_DEPARTMENT": "vision"}
    command = StdioServerParameters(
        command=sys.executable, args=["-m", "gpuq", "mcp"], env={**os.environ, **own, "LANG": "C"}
    )
    with start_blocking_portal() as loop, loop.wrap_async_context_manager(Client(command)) as client:

        def call(tool: str, **arguments: Any) -> tuple[str, bool]:
            result = loop.call(client.call_tool, tool, arguments)
            assert token not in str(result)
            return result.content[0].text, bool(result.is_error)

        yield call, client, loop


def success(result: tuple[str, bool]) -> str:
    assert not result[1], result[0]
    return result[0]


def error(result: tuple[str, bool]) -> str:
    assert result[1], result[0]
    return result[0]


def request(site: Site, program: str, **more: Any) -> dict[str, Any]:  # noqa: F811
    return {
        "name": "probe", "pool": site.bed.pool.slug, "amount": "1 card", "image": "python:3.11",
        "command": list(site.bed.program(program)), "max_runtime": 600, **more,
    }  # fmt: skip


def confirm_code(text: str) -> str:
    return re.findall(r"confirm: (\w+)", text)[0]


def test_agent_can_submit_a_job_and_read_its_log(site: Site) -> None:  # noqa: F811
    with agent(site, site.token) as (call, _client, _loop):
        offer = success(call("offer"))
        assert "vision: Vision" in offer
        assert f"  {site.bed.pool.slug}: " in offer
        body = request(site, "print('hello from the card'); raise SystemExit(3)")
        verdict = success(call("verdict", request=body))
        assert not Workload.objects.exists()
        first = success(call("submit", request=body, confirm=confirm_code(verdict)))
        second = success(call("submit", request=body, confirm=confirm_code(verdict)))
        identity = first.split(":")[0]
        assert second.split(":")[0] == identity
        assert Workload.objects.get().public_id == identity
        ended = success(call("wait", workload=identity))
        assert "failed since" in ended
        assert "exit code 3" in ended
        assert success(call("logs", workload=identity)) == "Log of attempt 1, whole:\nhello from the card\n"
        assert success(call("list_workloads", state="final")).startswith(identity)
        assert "workload.failed" in success(call("why", workload=identity))
        assert success(call("status", workload=identity)) == ended


def test_only_a_request_with_a_verdict_can_be_submitted(site: Site) -> None:  # noqa: F811
    with agent(site, site.token) as (call, _client, _loop):
        body = request(site, "pass")
        assert "Ask `verdict` about this request" in error(call("submit", request=body, confirm="guessed"))
        mark = confirm_code(success(call("verdict", request=body)))
        text = error(call("submit", request={**body, "amount": "2 cards", "pods": 2}, confirm=mark))
        assert "these differ: amount, pods" in text
        assert "pool" in error(call("verdict", request={**body, "pool": "nowhere"}))
        text = success(call("verdict", request={**body, "amount": "64 cards"}))
        assert "There is nothing to submit" in text
        assert "confirm:" not in text
        assert not Workload.objects.exists()


def test_agent_can_wait_ask_why_and_cancel_only_its_own_workloads(site: Site) -> None:  # noqa: F811
    theirs = site.bed.submit(site.bed.bob, site.bed.nlp, "import time; time.sleep(600)", cards=2)
    colleague = site.bed.submit(site.bed.alice, site.bed.vision, "import time; time.sleep(600)", cards=2)
    Workload.objects.filter(pk=colleague.pk).update(author=site.bed.bob)
    with agent(site, site.token) as (call, _client, _loop):
        body = request(site, "import time; time.sleep(600)", amount="3 cards")
        identity = success(
            call("submit", request=body, confirm=confirm_code(success(call("verdict", request=body))))
        ).split(":")[0]
        assert "Not finished" in success(call("wait", workload=identity, seconds=1))
        assert "queued since" in success(call("why", workload=identity))
        assert "(not_found)" in error(call("cancel", workload=theirs.public_id))  # another department's
        assert f"is {site.bed.bob.username}'s" in error(call("cancel", workload=colleague.public_id))
        assert "cancelled" in success(call("cancel", workload=identity)) + success(call("wait", workload=identity))
    assert {row.public_id for row in Workload.objects.filter(cancel_requested_at__isnull=False)} == {identity}


def test_token_with_a_gpu_hour_limit_reports_its_use_and_ends_when_used_up(site: Site) -> None:  # noqa: F811
    token = token_of(site.bed.alice, site.bed.vision, ["read", "submit"], gpu_hours=5, name="agent")[1]
    with agent(site, token) as (call, _client, _loop):
        body = request(site, "pass")
        verdict = success(call("verdict", request=body))
        assert "Token “agent”: 0.0 of 5 GPU-hours are used, until" in verdict
        identity = success(call("submit", request=body, confirm=confirm_code(verdict))).split(":")[0]
        success(call("wait", workload=identity))
        claim = Claim.objects.get(workload=identity)
        now = timezone.now()
        LedgerEntry.objects.create(
            claim=claim, pool=claim.pool, department=claim.department, own=True, units=1_000_000, ended_at=now,
            started_at=now - dt.timedelta(seconds=10),
        )  # fmt: skip
        assert "of 5 GPU-hours are used" in success(call("usage"))
        text = error(call("verdict", request=body))
        assert "may use 5 GPU-hours each month" in text
        assert text.endswith("(token_used_up)")


def test_tools_declare_what_they_change(site: Site) -> None:  # noqa: F811
    with agent(site, site.token) as (_call, client, loop):
        tools = {tool.name: tool.annotations for tool in loop.call(client.list_tools).tools}
    changing = {name for name, hints in tools.items() if not hints.read_only_hint}
    assert changing == {"submit", "cancel"}
    assert {name for name in changing if tools[name].destructive_hint} == {"cancel"}


def test_read_only_token_gets_a_scope_error(site: Site) -> None:  # noqa: F811
    token = token_of(site.bed.alice, site.bed.vision, ["read"])[1]
    with agent(site, token) as (call, _client, _loop):
        text = error(call("verdict", request=request(site, "pass")))
        assert text == "Error executing tool verdict: This token does not have the scope submit. (scope_missing)"


def test_missing_extra_is_reported_with_the_command_to_install_it(tmp_path: Path) -> None:
    (tmp_path / "mcp.py").write_text("raise ModuleNotFoundError('no', name='mcp')")
    own = {"PYTHONPATH": f"{tmp_path}:{HOME}", "GPUQ_URL": "https://gpu.example.org", "GPUQ_TOKEN": "gqp_a1_secret"}
    run = subprocess.run(
        [sys.executable, "-m", "gpuq", "mcp"], env={**os.environ, **own}, capture_output=True, text=True, check=False
    )
    assert (run.returncode, run.stderr) == (2, "gpuq: gpuq mcp needs its extra: pip install 'gpuq[mcp]'\n")
