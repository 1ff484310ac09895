"""`manage.py alive`, the liveness probe of the worker, the beat and the watcher."""

from __future__ import annotations

import datetime as dt

import pytest
from django.core.management import CommandError, call_command
from django.utils import timezone

from portal.models import Heartbeat, JobRun
from quotas.models import Cluster
from tests import builders as make

pytestmark = pytest.mark.django_db


def ago(seconds: int) -> dt.datetime:
    return timezone.now() - dt.timedelta(seconds=seconds)


def give_sign(process: str, seconds: int) -> None:
    """Stores the sign of life that the process would have given that long ago."""
    if process == "watcher":
        Heartbeat.objects.create(name="watch:here", at=ago(seconds))
    elif process == "beat":
        JobRun.objects.create(job="quotas.plan_all", slot=1, started_at=ago(seconds))
    else:
        JobRun.objects.create(job="quotas.plan_all", slot=1, started_at=ago(3600), finished_at=ago(seconds))


@pytest.mark.parametrize("process", ["worker", "beat", "watcher"])
def test_command_fails_unless_the_process_gave_a_sign_of_life_lately(process: str) -> None:
    make.pool("a100")  # on a cluster that is watched
    with pytest.raises(CommandError, match=f"no sign of life of the {process} within 60 s"):
        call_command("alive", process)
    give_sign(process, 90)
    with pytest.raises(CommandError):
        call_command("alive", process)
    call_command("alive", process, "--within", "120")


@pytest.mark.parametrize(("process", "of_another"), [("worker", "beat"), ("beat", "worker"), ("watcher", "worker")])
def test_sign_of_another_process_does_not_count(process: str, of_another: str) -> None:
    make.pool("a100")
    give_sign(of_another, 10)
    with pytest.raises(CommandError):
        call_command("alive", process)


def test_watcher_without_an_active_cluster_is_alive_but_worker_and_beat_are_not() -> None:
    make.pool("a100")
    Cluster.objects.update(active=False)
    call_command("alive", "watcher")
    for process in ("worker", "beat"):
        with pytest.raises(CommandError):
            call_command("alive", process)
