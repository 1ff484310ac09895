"""Migration 0010 fills in person and kind of old claims, and the work of hours that were metered before there were reports."""

from __future__ import annotations

import datetime as dt
from importlib import import_module
from typing import Any

import pytest
from django.apps import apps
from django.utils import timezone

from portal.access import SYSTEM
from quotas.models import Claim, WorkDay, WorkHour
from quotas.reports.asked import Asked
from quotas.reports.queries import report
from quotas.spending.metering import hour_of, sum_hours
from tests import builders as make
from workloads.models import Image, Workload

pytestmark = pytest.mark.django_db
MIGRATION: Any = import_module("workloads.migrations.0010_work_of_the_past")


def test_migration_fills_in_persons_and_kinds_of_claims_and_work_of_old_hours() -> None:
    now = timezone.now()
    vision, pool, ann = make.department("vision"), make.pool("a100"), make.user("ann")
    make.quota(vision, pool, 4)
    image = Image.objects.create(name="python:3.11", title="Python", interpreter="python")
    workload = Workload.objects.create(department=vision, author=ann, kind="notebook", name="n", pool=pool, image=image,
                                       units_per_pod=1)  # fmt: skip
    make.holding(vision, pool, own=2, user=ann, workload=workload.public_id, started_at=now - dt.timedelta(days=3))
    make.claim(vision, pool, 1, pods=0, user=ann)  # a recall
    sum_hours(now=now)
    metered = list(WorkHour.objects.order_by("hour").values_list("hour", "unit_seconds"))
    # As before the migration: claims have no person and kind, and sums exist only for departments.
    Claim.objects.update(person="", kind="")
    WorkHour.objects.all().delete()
    WorkDay.objects.all().delete()
    apps.get_model("quotas", "UsageDay")._default_manager.all().delete()

    MIGRATION.fill_claims(apps, None)
    MIGRATION.fill_hours(apps, None)
    assert set(Claim.objects.values_list("person", "kind", "pods")) == {("ann", "notebook", 1), ("ann", "", 0)}
    filled = list(WorkHour.objects.order_by("hour").values_list("hour", "unit_seconds"))
    assert filled == [row for row in metered if row[0] < hour_of(now)]
    sum_hours(now=now)
    asked = Asked(now.replace(microsecond=0) - dt.timedelta(days=2), now.replace(microsecond=0), ("person", "kind"))
    [row] = report(SYSTEM, asked, now=now).rows
    assert (row.key, row.own) == (("ann", "notebook"), 2 * 2 * 86_400)
