"""Real processes of this machine are measured; declared cards, which do not exist, are not."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from tests.workloads.conftest import Bed
from workloads.embedded import nvml, usage
from workloads.measurement.sample import measure_all
from workloads.models import MeasuredBucket, MetricsSource
from workloads.runtime.setups import Setup

BUSY = """
import pathlib
block = bytearray(150 << 20)
pathlib.Path("begun").touch()
while not pathlib.Path("over").exists():
    sum(range(10_000))
"""
CHILD = """
import os, pathlib, subprocess, sys
subprocess.Popen([sys.executable, "-c", "import pathlib\\nblock = bytearray(150 << 20)\\npathlib.Path('begun').touch()\\n"
                  "while not pathlib.Path('over').exists(): sum(range(10_000))"], start_new_session=True).wait()
"""


@pytest.mark.parametrize("program", [BUSY, CHILD])
def test_cpu_and_memory_of_a_run_and_its_children_are_measured(bed: Bed, program: str) -> None:
    job = bed.submit(bed.alice, bed.vision, program)
    begun = bed.folder(job) / "begun"
    bed.until(begun.exists)
    bed.until(lambda: bed.state(job) == "running")
    attempt = job.attempts.get()

    def cpu() -> int:
        measure_all(now=timezone.now())
        row = MeasuredBucket.objects.filter(attempt=attempt, rank=0).order_by("-at").first()
        return (row.cpu_milli or 0) if row else 0

    bed.until(lambda: cpu() > 100)
    row = MeasuredBucket.objects.filter(attempt=attempt).order_by("-at")[0]
    assert row.memory_mib is not None
    assert 150 <= row.memory_mib < 1000
    assert (row.gpu, row.gpu_mib, row.watts) == (None, None, None)
    source = MetricsSource.objects.get()
    assert (source.failing_since, source.ranks, source.gpu_ranks) == (None, 1, 0)
    (bed.folder(job) / "over").touch()
    bed.until(lambda: bed.state(job) == "succeeded")


def test_each_rank_of_a_gang_is_measured_separately(bed: Bed) -> None:
    program = """
import os, pathlib
rank = os.environ["PORTAL_RANK"]
block = bytearray((100 if rank == "1" else 1) << 20)
pathlib.Path(f"begun-{rank}").touch()
import time
while not pathlib.Path("over").exists(): time.sleep(0.05)
"""
    gang = bed.submit(bed.alice, bed.vision, program, kind="distributed", pods=2, setup=Setup(template="generic"))
    bed.until(lambda: all((bed.folder(gang) / f"begun-{rank}").exists() for rank in (0, 1)))
    bed.until(lambda: bed.state(gang) == "running")
    measure_all(now=timezone.now())
    memory = dict(MeasuredBucket.objects.values_list("rank", "memory_mib"))
    assert memory[1] - memory[0] > 80
    (bed.folder(gang) / "over").touch()
    bed.until(lambda: bed.state(gang) == "succeeded")


def test_nothing_is_measured_after_the_end_of_a_run(bed: Bed) -> None:
    job = bed.submit(bed.alice, bed.vision, "print('done')")
    bed.until(lambda: bed.state(job) == "succeeded")
    before = MeasuredBucket.objects.count()
    measure_all(now=timezone.now())
    assert MeasuredBucket.objects.count() == before


def test_activity_of_real_cards_is_measured_only_if_the_run_has_them_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    spec: dict[str, Any] = {
        "alone_on": [["gpu-box", 0], ["gpu-box", 1]],
        "ranks": [{"node": "gpu-box", "cards": ["0", "1"]}],
    }
    cards = {0: nvml.CardUse(0.5, 1000.0, None), 1: nvml.CardUse(None, 3000.0, 50.0)}
    use = usage._cards(spec, 0, {"gpu-box"}, cards)
    assert use == {"cards": 2, "gpu": 0.5, "gpu_mib": 4000.0, "watts": 50.0}
    assert usage._cards(spec, 0, {"other"}, cards) == {}
    assert usage._cards(spec | {"alone_on": []}, 0, {"gpu-box"}, cards) == {}


def reading(at: float, cpu: float, since: float = 0.0, **more: float) -> dict[str, Any]:
    return {"at": at, "ranks": {"0": {"since": since, "cpu": cpu, "memory_mib": 10.0, **more}}}


@pytest.mark.parametrize(
    ("readings", "cpu"),
    [
        ([reading(1000, 100), reading(1060, 160)], 1000),  # a core
        ([reading(950, 90), reading(1010, 120)], 500),  # the last reading before the window counts for its begin
        ([reading(1060, 160)], None),  # a single reading of a process that has run long says nothing
        ([reading(1020, 10, since=1000)], 500),  # that of a process that has just begun does
        ([reading(1000, 100), reading(1060, 6, since=1030)], 200),  # a service that restarted
    ],
)
def test_cpu_is_the_difference_of_readings(readings: list[Any], cpu: float | None) -> None:
    use = usage._use([(each["at"], each["ranks"]["0"]) for each in readings], 1000)
    assert use.get("cpu_milli") == (None if cpu is None else pytest.approx(cpu))


def test_without_proc_nothing_is_measured(tmp_path: Path) -> None:
    assert usage.processes(tmp_path) == []
    assert usage.by_leader([], [os.getpid()]) == {}
