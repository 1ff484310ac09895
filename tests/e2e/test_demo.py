"""`make demo`: starts from nothing, survives kill -9 and Ctrl-C, keeps its data, starts over with --reset, and shows what
README's five minutes promise, step by step."""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
import socket
import sqlite3
import stat
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.architecture.sources import ROOT
from tests.e2e.conftest import Person, passwords
from tests.e2e.installation import eventually
from tests.servers import free_port
from workloads.demo.load import JOBS
from workloads.demo.seed import PEOPLE
from workloads.embedded.driver import EmbeddedCluster

pytestmark = pytest.mark.timeout(400)


class Demo:
    """The command with a data folder of its own, started and ended as often as a test needs."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.port = folder, free_port()
        self.environment = {
            "PATH": os.environ["PATH"], "DEBUG": "true", "EMBEDDED": "true", "LOG_LEVEL": "ERROR", "PORT": str(self.port),
            "NOTEBOOK_PORT": str(free_port()), "DATA_DIR": str(folder / "data"),
        }  # fmt: skip
        self.output = folder / "output"
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self, *arguments: str) -> None:
        with self.output.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "manage.py", "demo", *arguments],
                cwd=ROOT,
                env=self.environment,
                stdout=output,
                stderr=output,
            )

    def said(self) -> str:
        return self.output.read_text()

    def passwords(self) -> dict[str, str]:
        return passwords(self.folder / "data")

    def until_ready(self) -> float:
        begun = time.monotonic()
        eventually(lambda: "ready in" in self.said() or self.ended(), 120, self.said)
        assert "ready in" in self.said(), self.said()
        return time.monotonic() - begun

    def ended(self) -> bool:
        return self.process is None or self.process.poll() is not None

    def end(self, number: signal.Signals) -> int:
        assert self.process is not None
        self.process.send_signal(number)
        return self.process.wait(40)

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        with sqlite3.connect(f"file:{self.folder}/data/portal.sqlite3?mode=ro", uri=True, timeout=20) as database:
            return database.execute(query).fetchall()

    def states(self) -> Counter[str]:
        return Counter(state for (state,) in self.rows("SELECT state FROM workloads_workload"))

    def check_invariants(self) -> None:
        ran = subprocess.run(
            [sys.executable, "manage.py", "check_invariants"],
            cwd=ROOT,
            env=self.environment,
            capture_output=True,
            text=True,
        )
        assert ran.returncode == 0, ran.stderr


@pytest.fixture
def demo(tmp_path: Path) -> Iterator[Demo]:
    made = Demo(tmp_path)
    yield made
    if not made.ended():
        made.end(signal.SIGKILL)
    root = tmp_path / "data" / "cluster" / "demo"
    if root.exists():
        EmbeddedCluster("demo", root, (), {}, debug=True, bind_host="127.0.0.1").shutdown(0)


@pytest.fixture
def with_tables(demo: Demo, migrated: Path) -> None:
    """The tables exist already, so that the test begins after the migrations."""
    (demo.folder / "data").mkdir(mode=0o700)
    shutil.copy(migrated, demo.folder / "data")


def test_the_demo_shows_every_situation_and_its_logins_work(demo: Demo) -> None:
    demo.start()
    demo.until_ready()
    assert "no CUDA here" in demo.said()
    eventually(lambda: demo.states()["running"] >= 10 and demo.states()["queued"] >= 2, 60, demo.states)
    lent = "SELECT sum(units) FROM quotas_ledgerentry WHERE ended_at IS NULL AND own = 0"
    assert demo.rows(lent)[0][0] >= 4
    demo.check_invariants()
    for person in PEOPLE:
        assert log_in(demo, person.username, demo.passwords()[person.username]), person
    metrics = httpx.get(f"{demo.url}/metrics", trust_env=False).text
    assert (
        'portal_usage_units{department="biology",leaf="true",pool="a100",share="borrowed",unit="card"} 4.0' in metrics
    )


def log_in(demo: Demo, username: str, password: str) -> bool:
    with httpx.Client(base_url=demo.url, trust_env=False, follow_redirects=True) as browser:
        token = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', browser.get("/login/").text)
        assert token is not None
        form = {"username": username, "password": password, "csrfmiddlewaretoken": token[1]}
        first = browser.post("/login/", data=form, headers={"Referer": f"{demo.url}/login/"})
        return first.status_code == 200 and first.url.path in ("/", "/operator/")  # an operator's first page


def test_other_accounts_of_the_machine_can_neither_guess_a_login_nor_read_the_data(demo: Demo) -> None:
    data = demo.folder / "data"
    data.mkdir(mode=0o755)  # left open by an earlier version
    demo.start("--no-load")
    demo.until_ready()
    first = demo.passwords()
    assert stat.S_IMODE(data.stat().st_mode) == 0o700
    assert stat.S_IMODE((data / "logins").stat().st_mode) == 0o600
    assert len({*first.values()}) == len(PEOPLE)  # all are different
    printed = dict(re.findall(r"^  (\w+) +(\S+)  \S", demo.said(), re.MULTILINE))
    assert printed == {person.username: first[person.username] for person in PEOPLE if person.what}
    assert not log_in(demo, "alice", "demo-alice")
    page = httpx.get(f"{demo.url}/login/", trust_env=False).text
    assert not [name for name, password in first.items() if password in page]
    demo.end(signal.SIGTERM)
    demo.start()
    demo.until_ready()
    assert demo.passwords() == first  # passwords that were noted stay valid
    assert log_in(demo, "alice", first["alice"])
    demo.end(signal.SIGTERM)
    (data / "logins").unlink()  # as in a demo of an earlier version, whose passwords everybody knows
    demo.start()
    demo.until_ready()
    assert not set(demo.passwords().values()) & set(first.values())
    assert not log_in(demo, "alice", first["alice"])
    assert log_in(demo, "alice", demo.passwords()["alice"])


@pytest.mark.skipif(os.getuid() != 0, reason="needs another account")
def test_demo_refuses_a_folder_of_another_account(demo: Demo) -> None:
    data = demo.folder / "data"
    data.mkdir()
    os.chown(data, 65534, 65534)
    demo.start()
    eventually(demo.ended, 30)
    assert "is shared with other accounts" in demo.said()
    assert sorted(data.iterdir()) == []


@pytest.mark.usefixtures("with_tables")
def test_ctrl_c_requeues_everything_and_the_next_start_resumes_from_the_checkpoints(demo: Demo) -> None:
    demo.start()
    demo.until_ready()
    eventually(lambda: "step 10/" in log_of(demo, "baseline-resnet"), 90, demo.states)
    ids = demo.rows("SELECT public_id, name FROM workloads_workload ORDER BY id")
    assert demo.end(signal.SIGINT) == 0, demo.said()
    assert demo.states()["running"] == 0
    assert demo.rows("SELECT count(*) FROM workloads_workload WHERE state = 'failed' AND name != 'augment-trial'") == [
        (0,)
    ]
    demo.check_invariants()
    demo.start()
    demo.until_ready()
    eventually(lambda: "resuming at step" in log_of(demo, "baseline-resnet", 2), 90, demo.states)
    assert demo.rows("SELECT public_id, name FROM workloads_workload ORDER BY id") == ids


@pytest.mark.usefixtures("with_tables")
def test_ctrl_c_while_programs_are_starting_leaves_none_behind(demo: Demo) -> None:
    demo.start()
    demo.until_ready()
    assert demo.end(signal.SIGINT) == 0, demo.said()
    root = demo.folder / "data" / "cluster" / "demo"
    records = EmbeddedCluster("demo", root, (), {}, debug=True, bind_host="127.0.0.1").records()
    assert [record.directory.name for record in records if record.is_supervised()] == []


PAST = re.compile(r".+-\d+")  # names of the thirty days before (workloads/demo/history.py)


def log_of(demo: Demo, name: str, attempt: int = 1) -> str:
    [(public_id,)] = demo.rows(f"SELECT public_id FROM workloads_workload WHERE name = '{name}'")
    path = demo.folder / "data" / "cluster" / "demo" / "runs" / f"w-{public_id}-{attempt}" / "log"
    return path.read_text() if path.exists() else ""


def test_kill_9_at_any_moment_of_the_first_start_leaves_nothing_half_done(demo: Demo) -> None:
    moments = random.Random(os.getpid())
    for _ in range(5):
        demo.start()
        time.sleep(moments.uniform(1.0, 8.0))  # while it migrates, fills in, submits, starts programs
        demo.end(signal.SIGKILL)
    demo.start()
    demo.until_ready()
    names = sorted(name for (name,) in demo.rows("SELECT name FROM workloads_workload"))
    submitted = [name for name in names if not PAST.fullmatch(name)]
    assert submitted == sorted(job.name for job in JOBS)  # none lost, none twice
    assert len(set(names)) == len(names) > 200  # nor of the history
    eventually(lambda: demo.states()["running"] >= 8, 60, demo.states)
    demo.check_invariants()
    runs = EmbeddedCluster(
        "demo", demo.folder / "data" / "cluster" / "demo", (), {}, debug=True, bind_host="127.0.0.1"
    ).observe()
    living = [run.workload_id for run in runs if run.finished_at is None]
    assert len(living) == len(set(living))


def test_second_demo_on_the_same_data_is_refused_and_a_reset_starts_over(demo: Demo) -> None:
    demo.start("--no-load")
    demo.until_ready()
    second = subprocess.run(
        [sys.executable, "manage.py", "demo"], cwd=ROOT, env=demo.environment, capture_output=True, text=True
    )
    assert second.returncode == 1
    assert "running already" in second.stderr
    demo.end(signal.SIGTERM)
    with sqlite3.connect(demo.folder / "data" / "portal.sqlite3") as database:
        database.execute("UPDATE portal_department SET name = 'changed' WHERE slug = 'vision'")
    demo.start("--no-load")
    demo.until_ready()
    assert demo.rows("SELECT name FROM portal_department WHERE slug = 'vision'") == [("changed",)]
    demo.end(signal.SIGTERM)
    demo.start("--reset", "--no-load")
    demo.until_ready()
    assert demo.rows("SELECT name FROM portal_department WHERE slug = 'vision'") == [("Computer Vision",)]


@pytest.mark.parametrize("port", ["PORT", "NOTEBOOK_PORT"])
def test_port_in_use_is_reported_before_data_are_created_or_removed(demo: Demo, port: str) -> None:
    kept = demo.folder / "data" / "kept"
    kept.parent.mkdir(mode=0o700)
    kept.touch()
    with socket.create_server(("127.0.0.1", int(demo.environment[port]))):
        demo.start("--reset")
        eventually(demo.ended, 30)
    assert f"127.0.0.1:{demo.environment[port]} cannot be listened on" in demo.said()
    assert "Other ports: PORT=" in demo.said()
    assert "Filling in" not in demo.said()
    assert kept.exists()


@pytest.mark.parametrize("missing", ["DEBUG", "EMBEDDED"])
def test_demo_starts_only_in_a_debug_checkout(demo: Demo, missing: str) -> None:
    demo.environment |= {missing: "false", "SECRET_KEY": "x" * 50}
    demo.start()
    eventually(demo.ended, 30)
    assert "starts only with DEBUG=true and EMBEDDED=true" in demo.said()


# README, Five minutes -------------------------------------------------------------------------------------------------


@pytest.fixture
def arrive(demo: Demo, with_tables: None, chromium: Any) -> Iterator[Callable[[str], Person]]:
    """A function that logs a user in with a separate browser context. Errors in a console fail the test."""
    demo.start()
    demo.until_ready()
    made: list[Person] = []

    def arrives(username: str) -> Person:
        made.append(Person(chromium, demo.url, username, demo.passwords()[username]))
        return made[-1]

    yield arrives
    complaints = [text for each in made for text in each.complaints()]
    for each in made:
        each.context.close()
    assert complaints == []


def test_steps_of_the_readme_show_what_it_describes(arrive: Callable[[str], Person]) -> None:
    from playwright.sync_api import expect

    alice = arrive("alice").page
    one_card_of_its_own(alice, expect)  # 1
    started_and_run_again(alice, expect)  # 2
    alice.goto(alice.url.split("/d/")[0] + "/d/vision/workloads/new/?preset=train-1")  # 3
    alice.fill("#id_units_per_pod", "16")
    verdict = alice.locator("#verdict")
    expect(verdict.locator(".verdict-headline")).to_have_text("Cannot run as requested.")
    expect(verdict).to_contain_text("quota allows at most 14 cards")
    expect(verdict).to_contain_text("The largest request that can run is 8 cards.")

    bob = arrive("bob")  # 4
    for name in ("fold-a", "fold-b"):
        opened(bob, name)
        expect(bob.page.locator("#now[data-state=running]")).to_contain_text("2 cards borrowed from Computer Vision")
    opened(bob, "fold-c")
    expect(bob.page.locator("#now[data-state=queued]")).to_contain_text(
        "would borrow 6 cards, above its borrow limit of 4 cards"
    )

    olivia = arrive("olivia")  # 5
    four_cards_reclaimed(olivia, expect)
    bob.go("/")  # 6
    expect(bob.page.locator(".notice", has_text="is being recalled by Computer Vision")).to_have_count(2)
    expect(bob.page.locator(".notice time[data-time=countdown]").first).to_be_visible()
    expect(olivia.page.locator("#now[data-state=running]")).to_be_visible(timeout=90_000)
    opened(bob, "fold-a")
    expect(bob.page.get_by_text("Attempt 2", exact=True)).to_be_visible()
    queued = bob.page.locator("#now[data-state=queued]")
    expect(queued).to_be_visible()
    expect(queued).not_to_contain_text("tries to borrow again", timeout=60_000)  # until then fold-c goes first
    stop(olivia.page)
    expect(bob.page.locator("#now[data-state=running]")).to_be_visible(timeout=60_000)
    expect(bob.page.locator("#log")).to_contain_text("resuming at step")
    olivia.go("/decisions/?kind=reclaim")
    olivia.page.locator("tr", has_text="train-4").get_by_role("link").first.click()
    expect(olivia.page.locator("main")).to_contain_text("Computational Biology")

    two_cards_recalled_and_withdrawn(olivia, expect)  # 7
    oscar = arrive("oscar")  # 8
    oscar.go("/d/vision/quotas/a100/").fill("#id_guaranteed", "9")
    refused = (
        "The guarantees of all departments would add up to 17 cards, but A100 80GB, whole cards has only 16 cards."
    )
    expect(oscar.page.locator("#preview")).to_contain_text(refused)
    oscar.page.get_by_role("button", name="Save").click()
    expect(oscar.page.locator("#quota")).to_contain_text(refused)
    oscar.heard = [text for text in oscar.heard if "422" not in text]  # the browser reports the refusal, too


def opened(who: Person, name: str) -> None:
    who.go("/d/biology/workloads/").get_by_role("link", name=name, exact=True).click()


def stop(page: Any) -> None:
    page.get_by_role("button", name="Stop", exact=True).click()
    page.locator("dialog#stop").get_by_role("button", name="Stop").click()


def one_card_of_its_own(page: Any, expect: Any) -> None:
    page.get_by_role("link", name="New workload").last.click()
    page.get_by_role("link", name=re.compile("Train on one A100")).click()
    verdict = page.locator("#verdict")
    expect(verdict.locator(".verdict-headline")).to_have_text("Starts now, from your own quota.")
    expect(verdict).to_contain_text("8 cards guaranteed and uses 1 card")
    page.get_by_role("button", name="Submit").click()


def started_and_run_again(page: Any, expect: Any) -> None:
    expect(
        page.locator("#now")
    ).to_be_visible()  # the workload's own page: the form asks for the session before it is sent
    page.evaluate("window.notReloaded = true")
    expect(page.locator("#now[data-state=running]")).to_be_visible()
    expect(page.locator("#log")).to_contain_text("step 10/")
    assert page.evaluate("window.notReloaded") is True
    page.get_by_role("link", name="Files", exact=True).click()
    expect(page.get_by_role("link", name="checkpoint.json", exact=True)).to_be_visible()
    stop(page)
    expect(page.locator("#now[data-state=cancelled]")).to_be_visible()
    page.get_by_role("button", name="Run again").click()
    expect(page.locator("#now[data-state=running]")).to_be_visible()


def four_cards_reclaimed(olivia: Person, expect: Any) -> None:
    row = olivia.go("/d/vision/").locator("#now tr", has_text="A100 80GB, whole cards").first
    for told in ("8 cards", "2 cards own", "6 cards lent", "2 cards to Robotics", "4 cards to Computational Biology"):
        expect(row).to_contain_text(told)
    page = olivia.go("/d/vision/workloads/new/")
    page.get_by_role("link", name=re.compile("Train on four A100")).click()
    headline = page.locator("#verdict .verdict-headline")
    expect(headline).to_have_text(
        re.compile(r"^Starts by \S+ at the latest, when Computational Biology has returned 4 cards\.$")
    )
    page.get_by_role("button", name="Submit").click()
    expect(page.locator("h1")).to_have_text("train-4")


def two_cards_recalled_and_withdrawn(olivia: Person, expect: Any) -> None:
    page = olivia.go("/d/vision/recall/")
    page.fill("#id_units", "2")
    expect(page.locator("#preview")).to_contain_text("has its 2 cards")
    olivia.send(page.get_by_role("button", name="Recall"))
    notice = page.locator("#now .notice", has_text="Recall")
    expect(notice).to_contain_text("Recall: 0 of 2 cards")
    expect(notice).to_contain_text("returned and held for you", timeout=90_000)
    notice.get_by_role("button", name="Withdraw").click()
    expect(page.locator(".toast")).to_contain_text("released")
