"""`/metrics` for Prometheus. Every figure is read from the database at the scrape.

So any process can answer, a restart loses nothing, and counters never go backwards.
Readable with METRICS_TOKEN as bearer token or, if it is not set, from this machine only.
"""

from __future__ import annotations

import datetime as dt
import hmac
import ipaddress
from collections.abc import Callable, Iterator

from django.conf import settings
from django.db.models import Count, Max, Min, Q
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.utils.module_loading import import_string
from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector

from portal.celery import TIMETABLE
from portal.models import AuditEntry, Heartbeat, InboxItem, JobRun, WebhookDelivery
from portal.server import answers


def metrics(request: HttpRequest) -> HttpResponse:
    if not may_read(request):
        return HttpResponse("not here\n", status=404, content_type="text/plain")
    registry = CollectorRegistry(auto_describe=False)
    for name in settings.METRICS:
        registry.register(FromDatabase(import_string(name)))
    return HttpResponse(generate_latest(registry), content_type=CONTENT_TYPE_LATEST)


def may_read(request: HttpRequest) -> bool:
    if settings.METRICS_TOKEN:
        given = request.headers.get("Authorization", "").removeprefix("Bearer ")
        return hmac.compare_digest(given.encode(), settings.METRICS_TOKEN.encode())
    if request.META.get("portal.forwarded") or "Forwarded" in request.headers:
        return False  # a proxy on this machine forwards another client's request
    try:
        return ipaddress.ip_address(request.META.get("REMOTE_ADDR", "")).is_loopback
    except ValueError:
        return False


class FromDatabase(Collector):
    def __init__(self, ask: Callable[[], Iterator[Metric]]) -> None:
        self.ask = ask

    def collect(self) -> Iterator[Metric]:
        return self.ask()


def collect() -> Iterator[Metric]:
    """The portal's own metrics: version, answers, scheduled jobs, undelivered messages."""
    yield InfoMetricFamily("portal", "The running version.", {"version": settings.VERSION})
    yield from answers.collect()
    backup = GaugeMetricFamily("portal_backup_timestamp_seconds", "The last backup by manage.py backup.")
    if made := AuditEntry.objects.filter(action="backup.made").aggregate(at=Max("at"))["at"]:
        backup.add_metric([], made.timestamp())
    yield backup
    now = timezone.now().timestamp()

    last = GaugeMetricFamily("portal_job_last_run_timestamp_seconds", "Last tick of a scheduled job.", labels=["job"])
    failed = GaugeMetricFamily("portal_job_failed_runs", "Failed among the kept ticks (7 days).", labels=["job"])
    runs = {
        row["job"]: row
        for row in JobRun.objects.values("job").annotate(last=Max("started_at"), failed=Count("id", ~Q(error="")))
    }
    for job in TIMETABLE:
        if job in runs:
            last.add_metric([job], runs[job]["last"].timestamp())
            failed.add_metric([job], runs[job]["failed"])
    yield last
    yield failed

    alive = GaugeMetricFamily(
        "portal_heartbeat_age_seconds", "Since a process's last sign of life.", labels=["process"]
    )
    for name, at in Heartbeat.objects.values_list("name", "at"):
        alive.add_metric([name], now - at.timestamp())
    yield alive

    waiting = GaugeMetricFamily("portal_outbox_waiting", "Messages not sent yet.", labels=["channel"])
    oldest = GaugeMetricFamily("portal_outbox_oldest_seconds", "Age of the oldest of them.", labels=["channel"])
    mails = InboxItem.objects.filter(mail_due_at__isnull=False)
    hooks = WebhookDelivery.objects.filter(sent_at=None, due_at__lt=timezone.now() + dt.timedelta(days=30))
    for channel, rows in (("mail", mails), ("webhook", hooks)):
        totals = rows.aggregate(count=Count("id"), since=Min("created_at"))
        waiting.add_metric([channel], totals["count"])
        oldest.add_metric([channel], now - totals["since"].timestamp() if totals["since"] else 0)
    yield waiting
    yield oldest
