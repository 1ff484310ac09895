"""The page of a failed distributed job names the failed rank, opens its log, and shows the other ranks as stopped."""

from __future__ import annotations

import re

import pytest
from django.urls import reverse
from django.utils import translation

from tests.workloads.conftest import Bed
from tests.workloads.pages.test_workloads import as_
from workloads.runtime.setups import Setup
from workloads.status.ranks import ranks_of
from workloads.status.status_line import meaning_of, reason_word

pytestmark = pytest.mark.django_db(transaction=True)
FAILS = """
import os, pathlib, sys, time
rank = os.environ["RANK"]
print("rank", rank, "is up", flush=True)
pathlib.Path("up" + rank).touch()
if rank == "1":
    while not pathlib.Path("up0").exists(): time.sleep(0.05)
    print("no such tensor", flush=True); sys.exit(7)
while True: time.sleep(0.1)
"""


def test_page_names_the_failed_rank_and_opens_its_log(bed: Bed) -> None:
    job = bed.submit(bed.alice, bed.vision, FAILS, kind="distributed", pods=2, setup=Setup(template="torch"))
    bed.until(lambda: bed.state(job) == "failed")
    attempt = job.attempts.get()
    rows = ranks_of(attempt)
    assert [(row["said"], row["state"]) for row in rows] == [("stopped", "cancelled"), ("failed", "failed")]
    client = as_(bed.alice)
    address = reverse("workloads:detail", args=["vision", job.public_id])
    page = client.get(address).content.decode()
    assert "Rank 1 failed with exit code 7." in page
    assert "The other ranks were stopped." in page
    assert 'data-rank="1"' in page.split('id="log"')[1]
    assert re.search(r'<option value="1" selected>', page)
    assert "exit code 143" not in page.split('id="ranks"')[1].split('id="log-panel"')[0].replace("exit code 7", "")
    log = reverse("workloads:log", args=["vision", job.public_id])
    assert b"no such tensor" in client.get(log + "?rank=1").content
    assert 'data-rank="0"' in client.get(address + "?rank=0").content.decode().split('id="log"')[1]
    assert 'data-rank="1"' in client.get(address + "?rank=nonsense").content.decode().split('id="log"')[1]


def test_known_reasons_are_translated_and_unknown_ones_stay_as_the_cluster_gave_them() -> None:
    codes = (
        "Completed",
        "Error",
        "Stopped",
        "DeadlineExceeded",
        "Deleted",
        "NodeLost",
        "ClusterStopped",
        "ImagePullBackOff",
    )
    with translation.override("zh-hans"):
        translated = [reason_word(code) for code in codes]
    assert translated[:3] == ["", "", ""]
    assert [word for word in translated[3:-1] if re.search("[A-Za-z]{4}", word)] == []
    assert translated[-1] == "ImagePullBackOff"


@pytest.mark.parametrize(("code", "word"), [(137, "SIGKILL"), (139, "SIGSEGV"), (143, "SIGTERM"), (134, "SIGABRT")])
def test_exit_codes_of_signals_are_explained(code: int, word: str) -> None:
    assert word in meaning_of(code)
    assert meaning_of(1) == meaning_of(None) == meaning_of(0) == ""


def test_page_of_a_killed_job_explains_its_exit_code(bed: Bed) -> None:
    job = bed.submit(bed.alice, bed.vision, "import os; os.kill(os.getpid(), 11)")
    bed.until(lambda: bed.state(job) == "failed")
    page = as_(bed.alice).get(reverse("workloads:detail", args=["vision", job.public_id])).content.decode()
    assert "Failed with exit code 139" in page
    assert "a segmentation fault" in page
