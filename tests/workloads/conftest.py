"""A whole small installation on the embedded cluster: real processes, real database, time driven by the test."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import pytest

from portal.access import Actor
from portal.models import Department, User
from quotas.models import Cluster, Pool, PoolGroup
from quotas.planning.run_pass import run_pass
from tests import builders as make
from tests.workloads.embedded_bed import driver  # noqa: F401 a fixture
from workloads import actions
from workloads.clusters.drivers import driver_for
from workloads.models import Image, Workload
from workloads.nodes import inventory
from workloads.reconciler import deadlines
from workloads.reconciler.reconcile import reconcile_cluster
from workloads.requests.request import WorkloadRequest


@dataclass
class Bed:
    """Departments vision and nlp, each with a member and with 2 guaranteed cards of a node with 4."""

    patience: ClassVar[float] = 30

    cluster: Cluster
    pool: Pool
    vision: Department
    nlp: Department
    alice: User
    bob: User
    image: Image
    programs: Path
    made: list[Workload] = field(default_factory=list)

    def program(self, text: str) -> tuple[str, ...]:
        path = self.programs / f"program-{len(list(self.programs.iterdir()))}.py"
        path.write_text(text)
        return ("python", str(path))

    def submit(self, user: User, department: Department, program: str, cards: int = 1, **fields: Any) -> Workload:
        request = WorkloadRequest(
            **{"kind": "job"} | fields, name=f"job-{len(self.made)}", pool=self.pool, image=self.image,
            command=self.program(program), units_per_pod=cards,
        )  # fmt: skip
        workload = actions.submit(actor=Actor(user), department=department, request=request)
        self.made.append(workload)
        return workload

    def folder(self, workload: Workload) -> Path:
        """The workload's working directory on this machine."""
        folder: Path = driver_for(self.cluster).directory(workload.volume)  # type: ignore[attr-defined]
        return folder

    def turn(self) -> None:
        """One run of planning, reconciliation and deadlines."""
        for group in PoolGroup.objects.all():
            run_pass(group_id=group.pk)
        reconcile_cluster(Cluster.objects.get(pk=self.cluster.pk))
        from django.utils import timezone

        deadlines.keep(now=timezone.now())

    def until(self, condition: Callable[[], bool], seconds: float = 0) -> None:
        """Takes turns until the condition holds."""
        end = time.monotonic() + (seconds or self.patience)
        while not condition():
            assert time.monotonic() < end, self.describe()
            self.turn()
            time.sleep(0.05)

    def describe(self) -> object:
        """The state of all workloads, for the message of a failed wait."""
        return [
            (w.name, w.state, w.reason, list(w.attempts.values_list("number", "outcome", "reason", "removed_at")))
            for w in Workload.objects.all()
        ]

    def state(self, workload: Workload) -> str:
        workload.refresh_from_db()
        return workload.state


@pytest.fixture
def pool(db: None) -> Pool:
    return make.pool("a100", cards=8, notice=600, grace=120)


@pytest.fixture
def alice(vision: Department) -> User:
    """A member of the department `vision`, a fixture of the test's own file."""
    return make.member(vision, username="alice")


@pytest.fixture
def bed(transactional_db: None, settings: Any, tmp_path: Path) -> Iterator[Bed]:
    settings.DATA_DIR, settings.DEBUG = tmp_path, True
    node = {"name": "n1", "sharing": "whole", "product": "NVIDIA-A100-SXM4-80GB", "unit": "card", "cards": 4,
            "cpu_milli": 64000, "memory_mib": 500000}  # fmt: skip
    cluster = make.cluster("here", options={"nodes": [node]})
    inventory.refresh(cluster)
    pool = Pool.objects.get()
    Pool.objects.update(notice=1, grace=2)
    pool.refresh_from_db()
    vision, nlp = make.department("vision"), make.department("nlp")
    make.quota(vision, pool, 2)
    make.quota(nlp, pool, 2)
    image = Image.objects.create(name="python:3.11", title="Python", interpreter="python")
    programs = tmp_path / "programs"
    programs.mkdir()
    made = Bed(cluster, pool, vision, nlp, make.member(vision), make.member(nlp), image, programs)
    yield made
    driver_for(cluster).shutdown(0.2)  # type: ignore[attr-defined]
