"""The command line against the real web server, with real processes behind it."""

from __future__ import annotations

import contextlib
import datetime as dt
import os
import signal
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from django.conf import settings
from django.db import connections
from django.utils import timezone

from portal.models import ApiToken, Role
from quotas.models import Pool, QuotaRequest
from tests import builders as make
from tests.clients import token_of
from tests.gpuq.readme_script import run_script
from tests.portal.server.web_server import WebServer, free_port, web_server
from tests.workloads.conftest import Bed, bed  # noqa: F401 (a fixture)
from workloads.models import Preset, Workload

HOME = Path(__file__).resolve().parents[2] / "gpuq"
pytestmark = [
    pytest.mark.skipif(not os.environ["DATABASE_URL"].startswith("postgres"), reason="needs PostgreSQL"),
    pytest.mark.timeout(180),
]


@dataclass
class Site:
    bed: Bed
    server: WebServer
    token: str

    def start(self, *words: str, **environment: str) -> subprocess.Popen[bytes]:
        own = {"PYTHONPATH": str(HOME), "GPUQ_URL": self.server.url, "GPUQ_TOKEN": self.token, "LANG": "C"}
        return subprocess.Popen(
            [sys.executable, "-m", "gpuq", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env={**os.environ, **own, "GPUQ_DEPARTMENT": "vision", **environment},
        )  # fmt: skip

    def run(self, *words: str, **environment: str) -> tuple[int, str, str]:
        process = self.start(*words, **environment)
        out, err = process.communicate(timeout=90)
        return process.returncode, out.decode(), err.decode()

    def job(self, program: str, *options: str, cards: int = 1) -> list[str]:
        return [
            "run", "--pool", self.bed.pool.slug, "--cards", str(cards), "--image", "python:3.11", *options, "--",
            *self.bed.program(program),
        ]  # fmt: skip


@contextlib.contextmanager
def background_work(bed: Bed) -> Iterator[None]:  # noqa: F811
    """Does the periodic work of the workers for as long as the test lasts."""
    ended = threading.Event()

    def work() -> None:
        try:
            while not ended.wait(0.1):
                bed.turn()
        finally:
            connections.close_all()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


@pytest.fixture
def site(bed: Bed, tmp_path: Path) -> Iterator[Site]:  # noqa: F811
    token = token_of(bed.alice, bed.vision, ["read", "submit"])[1]
    parts = urlsplit(os.environ["DATABASE_URL"])
    database = parts._replace(path=f"/{settings.DATABASES['default']['NAME']}").geturl()
    environment = {"DATABASE_URL": database, "DATA_DIR": str(tmp_path), "REDIS_URL": "", "LOG_LEVEL": "ERROR"}
    with web_server(**environment) as server, background_work(bed):
        yield Site(bed, server, token)


def eventually(fact: Callable[[], Any], within: float = 40) -> None:
    end = time.monotonic() + within
    while not fact():
        assert time.monotonic() < end, [(w.name, w.state) for w in Workload.objects.all()]
        time.sleep(0.05)


def test_run_streams_the_log_and_ends_with_the_jobs_code(site: Site) -> None:
    code, out, err = site.run(*site.job("import sys; print('hällo'); print('err', file=sys.stderr); sys.exit(7)"))
    assert (code, sorted(out.split())) == (7, ["err", "hällo"]), err
    assert "submitted" in err
    assert "failed" in err


def test_quiet_run_prints_only_the_log(site: Site) -> None:
    assert site.run(*site.job("print('only this')", "--quiet")) == (0, "only this\n", "")


SLOW_STEPS = """
import os, signal, sys, time, pathlib
saved = pathlib.Path("step.txt")
step = int(saved.read_text()) if saved.exists() else 0
signal.signal(signal.SIGTERM, lambda *_: (saved.write_text(str(step)), sys.exit(0)))
print("from", step, flush=True)
if step:
    print("resumed", flush=True)
    raise SystemExit(0)
while True:
    step += 1
    time.sleep(0.01)
"""


def test_run_follows_the_next_attempt_after_a_reclaim(site: Site) -> None:
    Pool.objects.update(notice=4)  # long enough for gpuq to report the recall
    first = site.bed.submit(site.bed.alice, site.bed.vision, "import time; time.sleep(600)", cards=2)  # vision's own
    # The later start loses less and is preempted first, so it must be later by the engine's whole seconds.
    longer = dt.timedelta(seconds=2)
    eventually(lambda: first.attempts.filter(started_at__lt=timezone.now() - longer).exists())
    process = site.start(*site.job(SLOW_STEPS, cards=2))
    eventually(lambda: Workload.objects.filter(author=site.bed.alice, state="running").count() == 2)
    preemptor = site.bed.submit(site.bed.bob, site.bed.nlp, "import time; time.sleep(1)", cards=2)
    out, err = process.communicate(timeout=90)
    text, messages = out.decode(), err.decode()
    assert process.returncode == 0, messages
    assert text.startswith("from 0\nfrom ")
    assert text.endswith("resumed\n")
    assert "attempt 2" in messages
    assert "recalled" in messages
    assert Workload.objects.get(pk=preemptor.pk).state == "succeeded"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_the_workload_and_gives_122(site: Site, number: int) -> None:
    process = site.start(*site.job("import time\nprint('up', flush=True)\ntime.sleep(600)"))
    assert process.stdout is not None
    assert process.stdout.readline() == b"up\n"
    process.send_signal(number)
    _out, err = process.communicate(timeout=60)
    assert process.returncode == 122, err
    assert Workload.objects.get().state == "cancelled"


def test_script_of_the_api_guide_prints_the_log_and_ends_with_the_jobs_code(site: Site) -> None:
    Preset.objects.create(
        slug="quick-look", title="Quick look", kind="job", pool=site.bed.pool, units_per_pod=1, image=site.bed.image,
        command=list(site.bed.program("print('from the script'); raise SystemExit(7)")),
    )  # fmt: skip
    for _again in range(2):  # the same job of the pipeline is the same workload
        ran = run_script("sh", GPUQ_URL=site.server.url, GPUQ_TOKEN=site.token)
        assert (ran.returncode, ran.stdout) == (7, "from the script\n"), ran.stderr
    assert Workload.objects.count() == 1


def test_impossible_request_gives_121_and_stores_nothing(site: Site) -> None:
    code, out, err = site.run(*site.job("pass", cards=9))
    assert (code, out) == (121, "")
    assert "4 cards" in err
    assert not Workload.objects.exists()


def test_exceeded_maximum_wait_gives_123(site: Site) -> None:
    site.bed.submit(site.bed.bob, site.bed.nlp, "import time; time.sleep(600)", cards=2)
    site.bed.submit(site.bed.alice, site.bed.vision, "import time; time.sleep(600)", cards=2)
    code, _out, err = site.run(*site.job("pass", "--max-wait", "1s", cards=2))
    assert code == 123, err


def test_invalid_request_gives_2_and_names_the_field(site: Site) -> None:
    code, _out, err = site.run(*site.job("pass", "--image", "none"))
    assert (code, "image: There is no image none." in err) == (2, True), err
    assert site.run("list", GPUQ_TOKEN="gqp_no_no")[0] == 2


def test_unreachable_portal_gives_125_and_says_how_to_continue(site: Site) -> None:
    process = site.start(*site.job("import time\nprint('up', flush=True)\ntime.sleep(600)"), GPUQ_PATIENCE="2")
    assert process.stdout is not None
    assert process.stdout.readline() == b"up\n"
    site.server.terminate()
    _out, err = process.communicate(timeout=60)
    assert process.returncode == 125, err
    assert f"gpuq wait {Workload.objects.get().public_id}" in err.decode()
    assert Workload.objects.get().state == "running"
    code, _, text = site.run("list", GPUQ_URL=f"http://127.0.0.1:{free_port()}", GPUQ_PATIENCE="1")
    assert (code, "does not answer" in text) == (125, True)


def test_other_commands_work_against_the_real_server(site: Site, tmp_path: Path) -> None:
    pool = ["--pool", site.bed.pool.slug, "--cards", "1", "--image", "python:3.11"]
    code, out, _ = site.run("verdict", *pool, "--", "true")
    assert (code, out.splitlines()[0]) == (0, "Starts now, from your own quota.")
    more = ["verdict", "--pool", site.bed.pool.slug, "--cards", "64", "--image", "python:3.11", "--", "true"]
    for words, heading in (({}, "Alternatives that start now:"), ({"LANG": "zh_CN"}, "可立即启动的替代方案：")):
        code, out, _ = site.run(*more, **words)
        lines = out.splitlines()
        assert (code, lines[lines.index(heading) + 1][:2]) == (121, "  ")
    assert "或请配额负责人增加配额。" in lines
    words = ["--", *site.bed.program("print(open('data.txt').read()); open('out.txt', 'w').write('done')")]
    code, out, err = site.run("submit", *pool, "--max-runtime", "1h", *words)
    identity = out.strip()
    assert (code, Workload.objects.get().public_id) == (0, identity), err
    assert site.run("wait", identity)[0] in {0, 1}
    (tmp_path / "data.txt").write_text("my data")
    assert site.run("upload", identity, str(tmp_path / "data.txt"))[0] == 0
    rerun = site.run("rerun", identity)[1].strip()
    assert site.run("upload", rerun, str(tmp_path / "data.txt"))[0] == 0
    site.run("wait", rerun)
    code, out, _ = site.run("list", "--mine")
    assert {identity, rerun} <= set(out.split())
    assert site.run("pools")[1].split()[7] == site.bed.pool.slug
    code, out, _ = site.run("files", identity)
    assert "data.txt" in out
    target = tmp_path / "copy.txt"
    assert site.run("download", identity, "data.txt", str(target))[0] == 0
    assert target.read_text() == "my data"
    assert site.run("upload", identity, str(tmp_path / "data.txt"), "folder/中 文.txt")[0] == 0
    assert site.run("download", identity, "folder", str(tmp_path))[0] == 0
    with tarfile.open(tmp_path / "folder.tar") as tar:
        assert tar.getnames() == ["folder", "folder/中 文.txt"]
    assert site.run("download", identity, "nothing", str(tmp_path / "nothing"))[0] == 2
    assert not (tmp_path / "nothing").exists()
    code, _out, err = site.run("upload", identity, str(tmp_path / "data.txt"), "x" * 256)
    assert (code, "255 bytes" in err) == (2, True)
    assert site.run("show", identity)[1].split()[0].startswith("program-")
    assert site.run("stop", identity, rerun)[0] == 0
    assert "Traceback" in site.run("logs", identity)[1] or "my data" in site.run("logs", identity)[1]


def test_logs_are_read_to_their_end_and_lost_bytes_are_reported(site: Site, settings: Any) -> None:
    settings.LOG_KEPT = 2 << 20
    code = "for n in range(30_000): print(f'{n:07}' + 'x' * 92)"
    words = site.job(code)
    identity = site.run("submit", *words[1:])[1].strip()
    site.run("wait", identity)
    site.bed.until(lambda: Workload.objects.get().attempts.get().removed_at is not None)
    whole = "".join(f"{n:07}{'x' * 92}\n" for n in range(30_000))
    for more in ((), ("--follow",)):
        code, out, err = site.run("logs", identity, *more)
        assert (code, out) == (0, whole[-(2 << 20) :])
        assert "bytes 0 to 902848 of the log are not kept" in err
    assert site.run("logs", identity, "--tail", "15000")[1] == "".join(whole.splitlines(keepends=True)[-15_000:])


def test_a_viewers_token_cannot_run_anything(site: Site) -> None:
    viewer = make.member(site.bed.vision, Role.VIEWER)
    token = token_of(viewer, site.bed.vision, ["read"])[1]
    code, _out, err = site.run(*site.job("pass"), GPUQ_TOKEN=token)
    assert (code, "submit" in err) == (2, True)


def test_quota_can_be_requested_and_requests_listed(site: Site) -> None:
    day = str(timezone.localdate() + dt.timedelta(days=90))
    words = ["request", "--pool", site.bed.pool.slug, "--total", "4", "--why", "a paper", "--until", day]
    code, out, err = site.run(*words)
    assert code == 0, err
    assert QuotaRequest.objects.get().public_id == out.strip()
    code, listing, _ = site.run("requests")
    assert (code, out.strip() in listing, day in listing) == (0, True, True)
    code, _, err = site.run(*words[:4], "1", *words[5:])
    assert (code, "already guaranteed" in err) == (2, True)


def test_usage_can_be_grouped_by_person_and_an_invalid_time_is_named(site: Site) -> None:
    now, zoe = timezone.now(), ApiToken.objects.get().holder
    claim = make.holding(site.bed.vision, site.bed.pool, own=1, user=zoe, kind="job",
                         started_at=now - dt.timedelta(hours=2))  # fmt: skip
    claim.ledger.update(ended_at=now - dt.timedelta(hours=1))
    day = timezone.localdate(now - dt.timedelta(days=1)).isoformat(), timezone.localdate(now).isoformat()
    code, out, err = site.run("usage", "--from", day[0], "--until", day[1], "--group", "person,kind")
    assert (code, err) == (0, "")
    assert [line.split()[:5] for line in out.splitlines()[1:2]] == [[zoe.username, "job", "card", "1.00", "0.00"]]
    assert out.splitlines()[-1].startswith("TOTAL")
    code, _, err = site.run("usage", "--from", "31.1.2026", "--until", day[1])
    assert (code, "from" in err) == (2, True)
