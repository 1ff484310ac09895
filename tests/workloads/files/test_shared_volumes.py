"""Shared volumes: who can mount them, and what the operator has to offer or allow first."""

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


def test_each_department_and_each_user_has_a_separate_shared_volume(bed: Bed) -> None:
    first = bed.submit(bed.alice, bed.vision, NOTES, setup=BOTH)
    bed.until(lambda: bed.state(first) == "succeeded")
    again = bed.submit(bed.alice, bed.vision, NOTES, setup=BOTH)
    theirs = bed.submit(bed.bob, bed.nlp, NOTES, setup=BOTH)
    bed.until(lambda: {bed.state(again), bed.state(theirs)} == {"succeeded"})
    assert log_of(again.attempts.get()) == "PORTAL_DEPARTMENT_DIR True\nPORTAL_USER_DIR True\n"
    assert log_of(theirs.attempts.get()) == "PORTAL_DEPARTMENT_DIR False\nPORTAL_USER_DIR False\n"


def test_rerun_by_another_user_mounts_that_users_volume(bed: Bed) -> None:
    mine = bed.submit(bed.alice, bed.vision, NOTES, setup=BOTH)
    Membership.objects.create(user=bed.bob, department=bed.vision)
    theirs = actions.rerun(actor=Actor(bed.bob), workload=mine)
    names = [[volume.name for volume in spec_of(attempt_of(each)).shared_volumes] for each in (mine, theirs)]
    assert names == [["department", f"user-{bed.alice.pk}"], ["department", f"user-{bed.bob.pk}"]]


def test_notebook_with_a_personal_volume_cannot_be_shared(bed: Bed) -> None:
    notebook = bed.submit(bed.alice, bed.vision, "serve", kind="notebook", setup=Setup(user_volume=True))
    with pytest.raises(Invalid, match="your personal volume"):
        actions.set_shared(actor=Actor(bed.alice), workload=notebook, shared=True)
    assert not Workload.objects.get().shared


def test_request_for_a_volume_that_the_cluster_lacks_names_the_missing_option(bed: Bed) -> None:
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


def test_locking_memory_needs_the_operators_permission(bed: Bed) -> None:
    with pytest.raises(InvalidRequest, match="may not lock memory") as refused:
        bed.submit(bed.alice, bed.vision, "train", setup=Setup(ipc_lock=True))
    assert (refused.value.field, refused.value.code) == ("ipc_lock", "not_allowed")
    client = Client()
    bed.alice.is_operator = True
    bed.alice.save()
    client.force_login(bed.alice)
    fields = {"name": "Vision", "weight": 1, "version": bed.vision.version, "unrestricted": "on"}
    assert client.post("/operator/departments/vision/", fields).status_code == 302
    bed.vision.refresh_from_db()
    assert bed.vision.unrestricted
    assert "Lock memory" in client.get("/d/vision/workloads/new/").content.decode()
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


def test_namespace_names_are_valid_in_kubernetes_and_unique_for_each_department() -> None:
    prefix = "a-cluster-of-a-long-long-name-"
    names = [
        namespace_of(Cluster(options={"namespace_prefix": prefix}), "d" * 39 + last, unrestricted=unrestricted)
        for last in "ab" for unrestricted in (False, True)
    ]  # fmt: skip
    assert len(set(names)) == 4
    assert all(re.fullmatch("[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", name) and name.startswith(prefix) for name in names)
    assert namespace_of(Cluster(options={"namespace_prefix": prefix}), "vision") == f"{prefix}vision"


def test_only_working_directories_without_a_workload_are_removed_after_a_time(bed: Bed) -> None:
    mine = bed.submit(bed.alice, bed.vision, "pass", setup=BOTH)
    bed.until(lambda: bed.state(mine) == "succeeded")
    volumes = bed.folder(mine).parent
    (volumes / "w-of-another-database").mkdir()
    assert cleaning.discard_left_files(now=timezone.now()) == 0
    assert cleaning.discard_left_files(now=timezone.now() + dt.timedelta(days=15)) == 1
    assert {folder.name for folder in volumes.iterdir()} == {
        mine.volume, "gqp-vision-department", f"gqp-vision-user-{bed.alice.pk}",
    }  # fmt: skip
