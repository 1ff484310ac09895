"""`manage.py replay`: a trace, the installation's own history, and invalid arguments."""

from __future__ import annotations

import datetime as dt
import json
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.utils import timezone

from bench import economics, estimates, runtimes
from quotas.models import Claim, ClaimState, Pool
from tests import builders as make
from workloads.models import Attempt, Image, Workload
from workloads.replay import history

HOUR = dt.timedelta(hours=1)
TRACE = "submitted_at,runtime,units,department\n" + "".join(
    f"2026-03-02 0{n % 8}:{n % 60:02},{600 + 500 * n},{1 + n % 4},{'nlp' if n % 3 else 'vision'}\n" for n in range(40)
)


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "jobs.csv"
    path.write_text(TRACE)
    return path


def replayed(*words: object, **options: Any) -> str:
    out = StringIO()
    call_command("replay", *map(str, words), "--quiet", stdout=out, **options)
    return out.getvalue()


def test_trace_is_replayed_in_every_way_and_under_other_rules(trace: Path) -> None:
    words = ["--trace", trace, "--days", 1, "--what-if", "settings", "notice=0", "grace=0"]
    figures = json.loads(replayed(*words, "--json"))
    assert list(figures) == ["planner", "what-if", "pooled", "static"]
    assert figures["planner"]["all"]["jobs"] == 40
    assert set(figures["planner"]["departments"]) == {"nlp", "vision"}
    assert figures["planner"]["all"]["wait_inside_s"]["max"] > figures["what-if"]["all"]["wait_inside_s"]["max"]
    text = replayed(*words)
    assert "29 cards, 0.36 days, 40 jobs" in text
    assert "wait inside, min: p50 / p95 / p99 / max" in text
    assert "idle while somebody waited, planner: " in text
    assert "idle while it waited, planner: " in text.split("\nnlp, ", 1)[1]
    assert replayed("--trace", trace.parent, "--days", 1) == replayed("--trace", trace, "--days", 1)


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--trace", "nowhere.csv"], "cannot read nowhere.csv"),
        (["--trace", "TRACE", "--from", "monday"], "--from: expected a day"),
        (["--trace", "TRACE", "--from", "9999-12-31"], "--from: expected a day"),
        (["--history", "a100", "--from", "0001-01-01T00:00+14:00"], "--from: expected a day"),
        (["--history", "a100", "--days", "1e8"], "--days: expected days from 0.01 to 36500, not '1e8'"),
        (["--trace", "TRACE", "--days", "1e-8"], "--days: expected days from 0.01 to 36500, not '1e-8'"),
        (["--trace", "TRACE", "--cards-per-node", "1.5"], "--cards-per-node: expected a whole number, not '1.5'"),
        (["--trace", "TRACE", "--load", "1e-9"], "cards are too many; at most 100000 are played"),
        (["--trace", "TRACE", "--from", "2030-01-01"], "there were no requests in that time"),
        (["--trace", "TRACE", "--load", "100"], "too few for 2 departments"),
        (["--trace", "TRACE", "--load", "0"], "--load: expected a number above 0, not '0'"),
        (
            ["--trace", "TRACE", "--what-if", "quota", "law", "gpu", "guaranteed=1"],
            "--what-if: unknown department 'law'",
        ),
        (["--trace", "TRACE", "--what-if", "settings", "notice=-1"], "--what-if: settings.notice"),
        (
            ["--trace", "TRACE", "--what-if", "settings", "patience=3"],
            "--what-if: patience=3: expected one of fair_sharing",
        ),
        (
            ["--trace", "TRACE", "--what-if", "request", "nlp", "gpu", "units_per_pod=1"],
            "a replay plays what was asked for",
        ),
    ],
)
def test_invalid_argument_is_named_in_the_error(trace: Path, words: list[str], problem: str) -> None:
    with pytest.raises(CommandError) as error:
        replayed(*[str(trace) if word == "TRACE" else word for word in words])
    assert problem in str(error.value)


def test_unreadable_line_of_a_trace_is_named_with_its_file(trace: Path) -> None:
    trace.write_text(TRACE.replace(",1100,", ",long,"))
    with pytest.raises(CommandError, match=r"jobs\.csv, line 3, runtime: expected a number, not 'long'"):
        replayed("--trace", trace)


# The installation's own history -----------------------------------------------------------------------------------------


class Past:
    """Workloads that vision and nlp ran in a pool of 8 cards, half of it guaranteed to each."""

    def __init__(self) -> None:
        self.now = timezone.now().replace(microsecond=0)
        self.pool: Pool = make.pool("a100", cards=8, nodes=1, max_reclaims=3)
        self.departments = {slug: make.department(slug) for slug in ("vision", "nlp")}
        for department in self.departments.values():
            make.quota(department, self.pool, 4)
        self.image = Image.objects.create(name="python:3.11", title="Python", interpreter="python")
        self.author = make.user("ann")

    def workload(self, slug: str, cards: int, hours_ago: float) -> Workload:
        return Workload.objects.create(
            department=self.departments[slug], author=self.author, kind="job", name="n", pool=self.pool, image=self.image,
            units_per_pod=cards, submitted_at=self.now - hours_ago * HOUR,
        )  # fmt: skip

    def attempt(self, workload: Workload, number: int, begins: float | None, ends: float | None, **fields: Any) -> None:
        """An attempt that ran from `begins` to `ends`, in hours ago."""
        claim = Claim.objects.create(
            department=workload.department, pool=self.pool, workload=workload.public_id, units_per_pod=workload.units_per_pod,
            submitted_at=workload.submitted_at, started_at=None if begins is None else self.now - begins * HOUR,
            state=ClaimState.RELEASED if ends is not None else ClaimState.HOLDING if begins else ClaimState.PENDING,
            released_at=None if ends is None else self.now - ends * HOUR,
        )  # fmt: skip
        Attempt.objects.create(
            workload=workload, number=number, claim=claim, cluster=self.pool.group.cluster, run_name=f"w-{claim.public_id}",
            started_at=claim.started_at, finished_at=claim.released_at, queued_at=workload.submitted_at, **fields,
        )  # fmt: skip


@pytest.mark.django_db
def test_history_lists_each_workload_once_without_the_work_that_was_lost() -> None:
    past = Past()
    recalled = past.workload("nlp", 8, hours_ago=20)
    past.attempt(recalled, 1, 20, 15, outcome="recalled", checkpointed_at=past.now - 16 * HOUR)
    past.attempt(recalled, 2, 12, 10, outcome="succeeded")
    running = past.workload("vision", 4, hours_ago=40)
    past.attempt(running, 1, 40, None)
    past.attempt(past.workload("vision", 2, hours_ago=1), 1, None, None)  # never started
    past.attempt(past.workload("vision", 2, hours_ago=90), 1, 90, 80, outcome="succeeded")  # ended before the period
    demand, unknown = history.demand_of(past.pool.group, past.now - 24 * HOUR, past.now)
    jobs = {job.request.id: job for job in demand.jobs}
    assert (set(jobs), unknown) == ({recalled.public_id, running.public_id}, 1)
    assert jobs[recalled.public_id].work == (4 + 2) * 3600
    assert jobs[recalled.public_id].checkpoint_every is None
    assert jobs[running.public_id].work == 24 * 3600
    assert jobs[running.public_id].checkpoint_every == 0
    assert jobs[running.public_id].request.submitted_at == demand.begin
    assert {job.request.state for job in demand.jobs} == {"pending"}


@pytest.mark.django_db
def test_history_is_replayed_under_current_and_changed_settings() -> None:
    past = Past()
    past.attempt(past.workload("nlp", 8, hours_ago=30), 1, 30, 20, outcome="succeeded")
    past.attempt(past.workload("vision", 4, hours_ago=28), 1, 20, 18, outcome="succeeded")
    before = Claim.objects.count()
    words = ["--history", past.pool.group.name, "--json", "--ways", "planner"]
    figures = json.loads(replayed(*words, "--what-if", "settings", "notice=30", "grace=0"))
    now, changed = figures["planner"]["all"], figures["what-if"]["all"]
    assert (now["jobs"], now["stops"], changed["stops"]) == (2, 1, 1)
    assert now["wait_inside_s"]["max"] > changed["wait_inside_s"]["max"] >= 30
    assert Claim.objects.count() == before
    with pytest.raises(CommandError, match="no pool group nowhere"):
        replayed("--history", "nowhere")


@pytest.mark.parametrize("bench", [economics, estimates, runtimes])
def test_benchmarks_name_the_invalid_argument(bench: Any, trace: Path, tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "none").write_text(TRACE.splitlines()[0])
    invalid = [([tmp_path / "nowhere"], "argument trace: cannot read"), ([tmp_path / "none"], "none: no jobs"),
             ([trace, "--weeks", "2017-13-01"], "argument --weeks: expected a day such as 2017-10-02")]  # fmt: skip
    if bench is not runtimes:
        invalid += [([trace, "--loads", "0"], "argument --loads: expected a number above 0"),
                  ([trace, "--days", "1e9"], "argument --days: expected days"),
                  ([trace, "--weeks", "2030-01-01"], "--weeks: there were no requests from 2030-01-01")]  # fmt: skip
    for words, problem in invalid:
        with pytest.raises(SystemExit) as exit_error:
            bench.main([*map(str, words)])
        assert problem in capsys.readouterr().err + str(exit_error.value)
