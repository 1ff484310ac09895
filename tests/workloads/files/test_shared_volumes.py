"""Who may mount what, and what the operator has to offer or allow first."""

from __future__ import annotations

import datetime as dt
import re

import pytest
from django.test import Client
from django.utils import timezone

from portal.access import Actor
from portal.accounts import departments
from portal.errors import Invalid
from portal.models import Membership
from quotas.models import Cluster
from tests.clients import program
from tests.workloads.conftest import Bed
from tests.workloads.reconciler.test_main_path import log_of
from workloads import actions
from workloads.clusters.run_spec import namespace_of, spec_of, to_start
from workloads.files import cleaning
from workloads.models import Attempt, Workload
from workloads.requests.validation import InvalidRequest
from workloads.runtime.base import Refused
from workloads.runtime.setups import Setup

pytestmark = pytest.mark.django_db(transaction=True)
BOTH = Setup(department_volume=True, user_volume=True)
NOTES = """
import os
for name in ("PORTAL_DEPARTMENT_DIR", "PORTAL_USER_DIR"):
    path = os.environ[name] + "/notes"
    print(name, os.path.exists(path), flush=True)
    open(path, "w").close()
"""


def attempt_of(workload: Workload) -> Attempt:
    rows = Attempt.objects.select_related(
        "workload__pool", "workload__department", "workload__author", "workload__image"
    )
    return rows.get(workload=workload)


def test_the_department_finds_its_own_and_each_person_theirs(bed: Bed) -> None:
    first = bed.submit(bed.alice, bed.vision, NOTES, setup=BOTH)
    bed.until(lambda: bed.state(first) == "succeeded")
    again = bed.submit(bed.alice, bed.vision, NOTES, setup=BOTH)
    theirs = bed.submit(bed.bob, bed.nlp, NOTES, setup=BOTH)
    bed.until(lambda: {bed.state(again), bed.state(theirs)} == {"succeeded"})
    assert log_of(again.attempts.get()) == "PORTAL_DEPARTMENT_DIR True\nPORTAL_USER_DIR True\n"
    assert log_of(theirs.attempts.get()) == "PORTAL_DEPARTMENT_DIR False\nPORTAL_USER_DIR False\n"


def test_a_rerun_by_somebody_else_mounts_their_own(bed: Bed) -> None:
    mine = bed.submit(bed.alice, bed.vision, NOTES, setup=BOTH)
    Membership.objects.create(user=bed.bob, department=bed.vision)
    theirs = actions.rerun(actor=Actor(bed.bob), workload=mine)
    names = [[volume.name for volume in spec_of(attempt_of(each)).shared_volumes] for each in (mine, theirs)]
    assert names == [["department", f"user-{bed.alice.pk}"], ["department", f"user-{bed.bob.pk}"]]


def test_a_notebook_with_ones_own_volume_is_not_shared(bed: Bed) -> None:
    notebook = bed.submit(bed.alice, bed.vision, "serve", kind="notebook", setup=Setup(user_volume=True))
    with pytest.raises(Invalid, match="your personal volume"):
        actions.set_shared(actor=Actor(bed.alice), workload=notebook, shared=True)
    assert not Workload.objects.get().shared


def test_where_none_is_offered_the_request_is_refused_with_the_option_that_is_missing(bed: Bed) -> None:
    Cluster.objects.update(kind="kubernetes", options={})
    bed.pool.refresh_from_db()
    ci = program(bed.alice, bed.vision, ("read", "submit"))
    body = {"name": "x", "pool": bed.pool.slug, "image": bed.image.name, "command": ["x"],
            "setup": {"department_volume": True}}  # fmt: skip
    answer = ci.post("/api/v1/departments/vision/workloads/", body)
    assert answer.status_code == 422, answer.json()
    assert "its option department_volume is empty" in str(answer.json())
    Cluster.objects.update(options={"department_volume": "1Ti"})
    answer = ci.post("/api/v1/departments/vision/workloads/", body)
    assert answer.status_code == 202, answer.json()
    assert answer.json()["setup"]["department_volume"] is True


def test_locking_memory_needs_the_operators_leave(bed: Bed) -> None:
    with pytest.raises(InvalidRequest, match="may not lock memory") as refused:
        bed.submit(bed.alice, bed.vision, "train", setup=Setup(ipc_lock=True))
    assert (refused.value.field, refused.value.code) == ("ipc_lock", "not_allowed")
    page = Client()
    bed.alice.is_operator = True
    bed.alice.save()
    page.force_login(bed.alice)
    place = {"name": "Vision", "weight": 1, "version": bed.vision.version, "unrestricted": "on"}
    assert page.post("/operator/departments/vision/", place).status_code == 302
    bed.vision.refresh_from_db()
    assert bed.vision.unrestricted
    assert "Lock memory" in page.get("/d/vision/workloads/new/").content.decode()
    job = bed.submit(bed.alice, bed.vision, "train", setup=Setup(ipc_lock=True))
    attempt = attempt_of(job)
    assert attempt.namespace == namespace_of(bed.cluster, "vision", unrestricted=True) == "gqp-vision-unrestricted"
    with pytest.raises(InvalidRequest, match="separate namespace"):
        bed.submit(bed.alice, bed.vision, "train", setup=Setup(ipc_lock=True, user_volume=True))
    departments.change_department(
        actor=Actor(None), department=bed.vision, name="Vision", weight=1, parent=None,
        expected_version=bed.vision.version, unrestricted=False,
    )  # fmt: skip
    with pytest.raises(Refused, match="any more"):
        to_start(attempt_of(job))
    bed.until(lambda: bed.state(job) == "failed")
    assert job.reason == "not_allowed"


def test_the_name_of_a_namespace_is_one_that_kubernetes_takes_and_each_departments_own() -> None:
    prefix = "a-cluster-of-a-long-long-name-"
    names = [
        namespace_of(Cluster(options={"namespace_prefix": prefix}), "d" * 39 + last, unrestricted=unrestricted)
        for last in "ab" for unrestricted in (False, True)
    ]  # fmt: skip
    assert len(set(names)) == 4
    assert all(re.fullmatch("[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", name) and name.startswith(prefix) for name in names)
    assert namespace_of(Cluster(options={"namespace_prefix": prefix}), "vision") == f"{prefix}vision"


def test_working_directories_that_no_workload_knows_go_after_their_time_and_others_stay(bed: Bed) -> None:
    mine = bed.submit(bed.alice, bed.vision, "pass", setup=BOTH)
    bed.until(lambda: bed.state(mine) == "succeeded")
    volumes = bed.folder(mine).parent
    (volumes / "w-of-another-database").mkdir()
    assert cleaning.discard_left_files(now=timezone.now()) == 0
    assert cleaning.discard_left_files(now=timezone.now() + dt.timedelta(days=15)) == 1
    assert {folder.name for folder in volumes.iterdir()} == {
        mine.volume, "gqp-vision-department", f"gqp-vision-user-{bed.alice.pk}",
    }  # fmt: skip
