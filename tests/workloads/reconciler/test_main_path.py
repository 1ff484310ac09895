"""From submission to a running process and back by a recall, with real processes and all layers in between."""

from __future__ import annotations

from portal.access import Actor
from portal.ids import TIME
from portal.models import InboxItem
from quotas.models import Claim, ClaimState, Decision, LedgerEntry
from quotas.planning.run_pass import run_pass
from tests.workloads.conftest import Bed
from workloads import actions
from workloads.files import logs
from workloads.models import Attempt

FOREVER = "import time\nprint('up', flush=True)\nwhile True: time.sleep(0.05)\n"
CHECKPOINTS = """
import os, signal, sys, time, pathlib
saved = pathlib.Path("checkpoint.txt")
step = int(saved.read_text()) if saved.exists() else 0
print("from", step, flush=True)
def save(*_):
    saved.write_text(str(step))
    sys.exit(0)
signal.signal(signal.SIGTERM, save)
while step < 10**9:
    step += 1
    time.sleep(0.01)
"""


def log_of(attempt: Attempt) -> str:
    return logs.read_log(attempt).data.decode()


def test_job_runs_and_its_output_and_exit_code_are_recorded(bed: Bed) -> None:
    job = bed.submit(bed.alice, bed.vision, "import os; print('cards', os.environ['CUDA_VISIBLE_DEVICES'])", cards=2)
    bed.until(lambda: bed.state(job) == "succeeded")
    attempt = job.attempts.get()
    assert (job.exit_code, attempt.outcome, attempt.node, len(attempt.cards)) == (0, "succeeded", "n1", 2)
    bed.until(lambda: Attempt.objects.get().removed_at is not None)
    assert log_of(attempt) == "cards 0,1\n"
    assert Claim.objects.get().state == ClaimState.RELEASED
    assert not LedgerEntry.objects.filter(ended_at=None).exists()
    assert InboxItem.objects.get(user=bed.alice).kind == "workload.succeeded"


def test_failed_job_has_its_exit_code(bed: Bed) -> None:
    job = bed.submit(bed.alice, bed.vision, "raise SystemExit(3)")
    bed.until(lambda: bed.state(job) == "failed")
    assert job.exit_code == 3


def test_owner_reclaims_lent_cards_and_the_borrower_resumes_from_its_checkpoint(bed: Bed) -> None:
    borrower = bed.submit(bed.bob, bed.nlp, CHECKPOINTS, cards=4)
    bed.until(lambda: bed.state(borrower) == "running")
    assert {(e.own, e.units, e.lender) for e in LedgerEntry.objects.filter(ended_at=None)} == {
        (True, 2, None),
        (False, 2, bed.vision),
    }
    owner = bed.submit(bed.alice, bed.vision, FOREVER, cards=2)
    bed.until(lambda: bed.state(borrower) == "recalled")
    recalled = borrower.attempts.get()
    assert recalled.reclaim_at is not None
    assert bed.state(owner) == "queued"
    reclaim = Decision.objects.get(kind="reclaim")
    assert [v.public_id for v in reclaim.victims.all()] == [recalled.claim.public_id]
    bed.until(lambda: bed.state(owner) == "running")
    assert bed.state(borrower) == "queued"
    first, second = borrower.attempts.all()
    assert (first.outcome, second.number, second.claim.submitted_at) == ("recalled", 2, borrower.submitted_at)
    assert second.claim.backoff_until is not None
    # No claim submitted in that second has passed it.
    assert second.claim.public_id[:TIME] == first.claim.public_id[:TIME]
    kinds = list(InboxItem.objects.filter(user=bed.bob).order_by("id").values_list("kind", flat=True))
    assert kinds == ["workload.recalled", "workload.requeued"]
    actions.cancel(actor=Actor(bed.alice), workload=owner)
    bed.until(lambda: bed.state(owner) == "cancelled")
    Claim.objects.filter(pk=second.claim_id).update(backoff_until=None)
    bed.until(lambda: bed.state(borrower) == "running")
    second.refresh_from_db()
    bed.until(lambda: log_of(second).startswith("from "))
    assert int(log_of(second).split()[1]) > 0
    assert log_of(first) == "from 0\n"


def test_borrower_recalled_before_its_start_releases_at_once_without_counting_a_recall(bed: Bed) -> None:
    bed.pool.notice = 60
    bed.pool.save()
    borrower = bed.submit(bed.bob, bed.nlp, FOREVER, cards=4)
    run_pass(group_id=bed.pool.group_id)  # and the process that would start it dies
    owner = bed.submit(bed.alice, bed.vision, FOREVER, cards=2)
    run_pass(group_id=bed.pool.group_id)
    assert borrower.attempts.get().claim.state == ClaimState.LEAVING
    bed.until(lambda: bed.state(owner) == "running", seconds=20)
    first, second = borrower.attempts.all()
    assert (first.outcome, first.created_at, first.claim.state) == ("recalled", None, ClaimState.RELEASED)
    assert (second.outcome, second.claim.backoff_until, bed.state(borrower), borrower.reclaims) == (
        "",
        None,
        "queued",
        0,
    )


def test_borrower_that_reports_saved_is_stopped_before_its_deadline(bed: Bed) -> None:
    bed.pool.notice = 60
    bed.pool.save()
    reports_saved = """
import os, pathlib, time
deadline = pathlib.Path(os.environ["PORTAL_RECLAIM_AT_FILE"])
while not (deadline.exists() and deadline.read_text().strip()): time.sleep(0.02)
pathlib.Path(os.environ["PORTAL_READY_FILE"]).touch()
time.sleep(60)
"""
    borrower = bed.submit(bed.bob, bed.nlp, reports_saved, cards=4)
    bed.until(lambda: bed.state(borrower) == "running")
    owner = bed.submit(bed.alice, bed.vision, FOREVER, cards=2)
    bed.until(lambda: bed.state(owner) == "running", seconds=20)
    assert borrower.attempts.first().outcome == "recalled"


def test_victim_keeps_running_after_a_withdrawn_recall(bed: Bed) -> None:
    bed.pool.notice = 60
    bed.pool.save()
    borrower = bed.submit(bed.bob, bed.nlp, FOREVER, cards=4)
    bed.until(lambda: bed.state(borrower) == "running")
    owner = bed.submit(bed.alice, bed.vision, FOREVER, cards=2)
    bed.until(lambda: bed.state(borrower) == "recalled")
    actions.cancel(actor=Actor(bed.alice), workload=owner)
    assert bed.state(owner) == "cancelled"
    bed.until(lambda: bed.state(borrower) == "running")
    attempt = borrower.attempts.get()
    assert (attempt.reclaim_at, attempt.claim.state) == (None, ClaimState.HOLDING)


def test_maximum_runtime_stops_a_workload_unless_it_is_extended(bed: Bed) -> None:
    short = bed.submit(bed.alice, bed.vision, FOREVER, max_runtime=1)
    longer = bed.submit(bed.alice, bed.vision, FOREVER, max_runtime=1)
    actions.extend(actor=Actor(bed.alice), workload=longer, seconds=3600)
    bed.until(lambda: bed.state(short) == "failed")
    assert short.reason == "max_runtime"
    assert bed.state(longer) == "running"


def test_workload_waiting_longer_than_max_wait_is_rejected(bed: Bed) -> None:
    bed.submit(bed.alice, bed.vision, FOREVER, cards=4, own_only=False)
    bed.turn()
    waiting = bed.submit(bed.alice, bed.vision, FOREVER, cards=1, own_only=True, max_wait=1)
    bed.until(lambda: bed.state(waiting) == "rejected")
    assert waiting.reason == "max_wait"
    claim = waiting.attempts.get().claim
    assert (claim.position, claim.ahead) == (None, [])  # it no longer waits


def test_workload_with_an_image_missing_in_the_cluster_fails_with_a_message(bed: Bed) -> None:
    bed.image.interpreter = ""
    bed.image.save()
    job = bed.submit(bed.alice, bed.vision, FOREVER)
    bed.until(lambda: bed.state(job) == "failed")
    assert job.message
