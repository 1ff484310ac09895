"""Files are kept for 14 days after the end of their workload, and not longer."""

from __future__ import annotations

import datetime as dt

from django.utils import timezone

from tests.workloads.conftest import Bed
from workloads.files.cleaning import KEPT, discard_old_files

WRITE = "open('result.txt', 'w').write('42')"


def test_files_outlive_their_workload_by_fourteen_days(bed: Bed) -> None:
    workload = bed.submit(bed.alice, bed.vision, WRITE)
    running = bed.submit(bed.alice, bed.vision, f"{WRITE}; import time; time.sleep(60)")
    bed.until(lambda: bed.state(workload) == "succeeded" and bed.state(running) == "running")
    folder, other = (bed.folder(row) for row in (workload, running))
    now = timezone.now()
    assert discard_old_files(now=now + KEPT - dt.timedelta(hours=1)) == 0
    assert (folder / "result.txt").read_text() == "42"
    assert discard_old_files(now=now + KEPT + dt.timedelta(hours=1)) == 1
    assert not folder.exists()
    assert other.exists()  # it still runs, however old it is
    workload.refresh_from_db()
    assert workload.files_removed_at is not None
    assert discard_old_files(now=now + KEPT + dt.timedelta(hours=1)) == 0
