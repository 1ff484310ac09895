"""The Celery application and its timetable. Every tick claims a unique (job, slot) row, so a second beat does no harm."""

from __future__ import annotations

import os
from typing import Any

from celery import Celery
from celery.signals import task_postrun, task_prerun
from django.db import close_old_connections

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "portal.settings")

app = Celery("portal")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks(["portal", "quotas", "workloads"])

# job → seconds between ticks
TIMETABLE = {
    "quotas.plan_all": 5,
    "quotas.meter": 60,
    "quotas.terms": 60,
    "quotas.budgets": 60,
    "quotas.monthly": 3600,
    "workloads.converge_all": 5,
    "workloads.knock": 5,
    "workloads.deadlines": 2,
    "workloads.inventory": 15,
    "workloads.modes": 5,
    "workloads.measure": 60,
    "workloads.estimate": 30,
    "workloads.backtest": 10,
    "portal.deliver": 5,
    "portal.directories": 900,
    "portal.clean_up": 3600,
    "quotas.clean_up": 3600,
    "workloads.clean_up": 3600,
}
app.conf.beat_schedule = {
    job: {"task": job, "schedule": float(every), "kwargs": {"tick": True}, "options": {"expires": max(every, 10)}}
    for job, every in TIMETABLE.items()
}


@task_prerun.connect
@task_postrun.connect
def rest(**_: Any) -> None:
    """Returns the connection to the pool, as after a request. CELERY_DB_REUSE_MAX keeps Celery from closing the pool:
    PostgreSQL would have to start a process for every task."""
    close_old_connections()
