"""Fills in what claims know since quotas 0016, their person and kind, and the metered work of hours that are over."""

import datetime as dt
from collections import defaultdict

from django.db import migrations
from django.db.models import OuterRef, Subquery

HOUR = dt.timedelta(hours=1)
COLUMNS = (
    "department_id",
    "pool_id",
    "claim__person",
    "claim__kind",
    "own",
    "lender_id",
    "units",
    "started_at",
    "ended_at",
)


def fill_claims(apps, schema_editor):
    Claim, Workload = apps.get_model("quotas", "Claim"), apps.get_model("workloads", "Workload")
    users = apps.get_model("portal", "User").objects.filter(pk=OuterRef("user"))
    Claim.objects.filter(person="", user__isnull=False).update(person=Subquery(users.values("username")))
    of = Workload.objects.filter(public_id=OuterRef("workload"))
    known = Workload.objects.values("public_id")
    Claim.objects.filter(kind="", workload__in=known).update(kind=Subquery(of.values("kind")))


def fill_hours(apps, schema_editor):
    """As quotas.spending.metering did when this was written: entries count in whole seconds."""
    Entry, Hour = apps.get_model("quotas", "LedgerEntry"), apps.get_model("quotas", "WorkHour")
    last = apps.get_model("quotas", "UsageHour").objects.order_by("-hour").values_list("hour", flat=True).first()
    if last is None:
        return
    used = defaultdict(int)
    for *key, units, began, ended in Entry.objects.filter(started_at__lt=last).values_list(*COLUMNS).iterator():
        at, end = began.replace(microsecond=0), min(ended.replace(microsecond=0) if ended else last, last)
        while at < end:
            hour = at.replace(minute=0, second=0)
            until = min(end, hour + HOUR)
            used[(hour, *key)] += units * int((until - at).total_seconds())
            at = until
    rows = (
        Hour(
            hour=hour,
            department_id=department,
            pool_id=pool,
            person=person,
            kind=kind,
            own=own,
            lender_id=lender,
            unit_seconds=spent,
        )
        for (hour, department, pool, person, kind, own, lender), spent in used.items()
        if spent
    )
    Hour.objects.bulk_create(rows, batch_size=5000)


class Migration(migrations.Migration):
    dependencies = [("workloads", "0009_measured_use"), ("quotas", "0016_metered_work")]
    operations = [
        migrations.RunPython(fill_claims, migrations.RunPython.noop),
        migrations.RunPython(fill_hours, migrations.RunPython.noop),
    ]
