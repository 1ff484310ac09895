"""`/livez`: the process answers. `/readyz`: it can do its work – database reachable and migrated, Redis reachable.

Answered before all other middleware: a probe addresses the pod by IP, without an allowed Host, and must not depend on sessions
or users.
"""

from __future__ import annotations

import json
from collections.abc import Callable

import redis
import structlog
from django.conf import settings
from django.db import Error as DatabaseError
from django.db import connection
from django.db.migrations.executor import MigrationExecutor
from django.db.models import Max, Min
from django.http import HttpRequest, HttpResponse
from django.utils import timezone

from portal.infra.shared_redis import shared
from portal.models import Heartbeat, JobRun

log = structlog.get_logger(__name__)
PLANNING = "quotas.plan_all"
PLANS_WITHIN = 120  # s; over the largest pools a pass takes 20 s and rests for 30 s
GetResponse = Callable[[HttpRequest], HttpResponse]


def probes(get_response: GetResponse) -> GetResponse:
    """The outermost middleware: answers probes itself."""

    def middleware(request: HttpRequest) -> HttpResponse:
        if request.path == "/livez":
            return HttpResponse("ok\n", content_type="text/plain")
        if request.path == "/readyz":
            return ready()
        return get_response(request)

    return middleware


def ready() -> HttpResponse:
    """Readiness as JSON, with the names of failed checks. The reasons are only in the log."""
    failed = []
    for name in CHECKS:
        if reason := reason_against(name):
            log.warning("not_ready", check=name, error=reason)
            failed.append(name)
    status: dict[str, object] = {"status": "failed" if failed else "ok", "failed": failed}
    status |= {"watcher_seconds": None, "planned_seconds": None} if failed else background()
    body = json.dumps(status)
    return HttpResponse(body + "\n", status=503 if failed else 200, content_type="application/json")


def reason_against(check: str) -> str:
    """Why one of the CHECKS fails, at most 300 characters; "" if it passes."""
    try:
        CHECKS[check]()
    except (DatabaseError, redis.RedisError, NotMigrated) as error:
        return " ".join(str(error).split())[:300] or type(error).__name__
    return ""


def background() -> dict[str, object]:
    """The state of background processes. They do not affect readiness, but without planning it is "degraded":
    submissions wait."""
    planned = planning()
    status: dict[str, object] = {"watcher_seconds": watching(), "planned_seconds": planned}
    return status if planned is not None and planned <= PLANS_WITHIN else status | {"status": "degraded"}


def planning() -> int | None:
    """Seconds since the last successful planning pass over all pools; None if there was none."""
    runs = JobRun.objects.filter(job=PLANNING, finished_at__isnull=False, error="")
    latest = runs.aggregate(at=Max("finished_at"))["at"]
    return None if latest is None else max(0, round((timezone.now() - latest).total_seconds()))


def watching() -> int | None:
    """Seconds since the last heartbeat of the watcher that has been silent longest; None: no cluster is watched.

    Watchers only speed things up, so they do not affect readiness (`manage.py alive watcher` checks them). Clusters
    are not named, because this answer needs no login.
    """
    oldest = Heartbeat.objects.filter(name__startswith="watch:").aggregate(at=Min("at"))["at"]
    return None if oldest is None else max(0, round((timezone.now() - oldest).total_seconds()))


class NotMigrated(Exception):
    pass


def database() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")


_migrated = False  # migrations are not reverted under a running process: one check that found all applied is enough


def migrations() -> None:
    global _migrated
    if _migrated:
        return
    executor = MigrationExecutor(connection)
    missing = executor.migration_plan(executor.loader.graph.leaf_nodes())
    if missing:
        raise NotMigrated(f"{len(missing)} migrations are not applied, the first is {missing[0][0]}")
    _migrated = True


def redis_answers() -> None:
    if settings.REDIS_URL:
        shared().ping()


CHECKS: dict[str, Callable[[], None]] = {"database": database, "migrations": migrations, "redis": redis_answers}
