import signal
import threading
from typing import Any

from django.core.management.base import BaseCommand

from quotas.models import Cluster
from workloads.watcher import ClusterWatch


class Command(BaseCommand):
    help = "Watch the clusters and wake the workers when something moved there. New clusters are noticed within 30 s."

    def handle(self, *args: Any, **options: Any) -> None:
        closing = threading.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: closing.set())
        watches: dict[int, ClusterWatch] = {}
        while not closing.is_set():
            for cluster in Cluster.objects.filter(active=True).exclude(pk__in=watches):
                watches[cluster.pk] = ClusterWatch(cluster, closing)
                watches[cluster.pk].start()
            closing.wait(30)
        for watch in watches.values():
            watch.join(5)
