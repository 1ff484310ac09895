"""No page shows text that is meant for programs: codes of events and errors, names of classes, short names of systems."""

from __future__ import annotations

import datetime as dt
import html
import re
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from portal.celery import TIMETABLE
from portal.models import AuditEntry, Event, JobRun, Webhook, WebhookDelivery
from portal.notify.notices import KINDS
from portal.text.plain_errors import plain_error
from portal.web import code_names
from tests.architecture.doors import World, all_doors, build
from tests.architecture.sources import ROOT
from workloads.lifecycle import Event as Moved
from workloads.lifecycle import State
from workloads.models import Attempt, Workload
from workloads.sharing import SYSTEMS

pytestmark = pytest.mark.django_db
CODES = sorted({code for path in (ROOT / "portal", ROOT / "quotas", ROOT / "workloads") for file in path.rglob("*.py")
                for code in re.findall(r'(?:audit\.record|emit)\([^()]*?"([a-z_]+\.[a-z_]+)"', file.read_text())})  # fmt: skip
ERRORS = [
    "gaierror: [Errno -2] Name or service not known",
    "ConnectError: [Errno -3] Temporary failure in name resolution",
    "ConnectionRefusedError: [Errno 111] Connection refused",
    "MaxRetryError: HTTPSConnectionPool(host='k8s', port=6443): Max retries exceeded with url: /api (Caused by "
    "NameResolutionError(\"<urllib3.connection.HTTPSConnection object at 0x7f>: Failed to resolve 'k8s'\"))",
    "SSLCertVerificationError: [SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: self-signed certificate",
    "ReadTimeout: The read operation timed out",
    "RemoteProtocolError: Server disconnected without sending a response.",
    "OSError: [Errno 113] No route to host",
    "OperationalError: the database is away",
    "KeyError: 'sharing'",
]
RAW = re.compile(
    r"\bgaierror\b|\bErrno\b|\b\w+(?:Error|Exception)\b|\b0x[0-9a-f]+|\bTraceback\b"
    rf"|\b(?:{'|'.join(re.escape(code) for code in {*CODES, *TIMETABLE, *KINDS})})\b"
    rf"|\b(?:{'|'.join(move.value for move in Moved if '_' in move.value)})\b"
    rf"|(?<![\w/.-])(?:{'|'.join(name for name in SYSTEMS if name not in {'whole', 'memory', 'mig'})})(?![\w/.-])"
)


@pytest.fixture
def world(settings: Any, tmp_path: Path) -> World:
    settings.DATA_DIR, settings.DEBUG = tmp_path, True
    world = build()
    workload = Workload.objects.get()
    for moved in Moved:
        data = {"attempt": 1, "event": moved.value, "reason": "", "decision": "wait"}
        Event.objects.create(kind="workload.queued", department=world.vision, workload=workload.public_id, data=data)
    for code in CODES:
        Event.objects.create(kind=code, department=world.vision, workload=workload.public_id, data={"pool": "a100"})
        AuditEntry.objects.create(actor_name="olivia", action=code, target="x", department=world.vision)
    now = timezone.now()
    for error in ERRORS:
        for kind in KINDS:
            WebhookDelivery.objects.create(webhook=Webhook.objects.get(), kind=kind, data={}, error=error, tries=1)
    for number, job in enumerate(TIMETABLE):
        JobRun.objects.create(job=job, slot=1, started_at=now, finished_at=now, error=ERRORS[number % len(ERRORS)])
    Attempt.objects.update(outcome="lost", finished_at=now - dt.timedelta(minutes=1))
    return world


def visible_text(response: Any) -> str:
    """The text that a reader sees on the page: no tags, scripts, styles, code samples or addresses."""
    text = re.sub(
        r"(?s)<(script|style|template|pre|textarea|code)\b.*?</\1>|<!--.*?-->", " ", response.content.decode()
    )
    return html.unescape(re.sub(r"(?s)<[^>]+>", " ", text))


@pytest.mark.parametrize("language", ["en", "zh-hans"])
def test_no_page_shows_a_raw_code(world: World, language: str) -> None:
    client, leaks, pages = world.client("operator"), [], 0
    client.defaults["HTTP_ACCEPT_LANGUAGE"] = language
    workload = Workload.objects.get()
    extra = [f"/d/vision/workloads/{workload.public_id}/?tab={tab}" for tab in ("log", "events", "files")]
    paths = [door.path for door in all_doors(world) if not door.is_api and str(door) not in {"events", "portal:events"}]
    for path in [*paths, *extra]:
        response = client.get(path)
        if (
            response.streaming
            or "text/html" not in response.headers.get("Content-Type", "")
            or response.status_code != 200
        ):
            continue
        pages += 1
        text = visible_text(response)
        leaks += [f"{path}: …{text[max(0, at.start() - 40) : at.end() + 20]!r}" for at in RAW.finditer(text)]
    assert leaks == []
    assert pages > 25


def test_every_code_has_a_name_for_readers() -> None:
    assert len(CODES) > 40
    assert [code for code in CODES if code not in code_names.EVENTS] == []
    assert [job for job in TIMETABLE if job not in code_names.JOBS] == []
    assert [kind for kind in KINDS if kind not in code_names.EVENTS] == []
    assert [state for state in State if f"workload.{state.value}" not in code_names.EVENTS] == []


@pytest.mark.parametrize("error", ERRORS)
def test_error_is_explained_in_plain_words(error: str) -> None:
    assert not RAW.search(plain_error(error))
    assert plain_error(f"the watch broke: {error}").startswith("the watch broke: ") or "watch" not in error
    assert plain_error("HTTP 410 Gone") == "HTTP 410 Gone"
