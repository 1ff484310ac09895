import signal
import threading
from typing import Any

from django.core.management.base import BaseCommand
from django.db import DatabaseError, close_old_connections

from portal import garbage
from quotas.models import Cluster
from workloads.express import Express
from workloads.watcher import ClusterWatch


class Command(BaseCommand):
    help = "Act at once on what people ask and on what moves in the clusters. New clusters are noticed within 30 s."

    def handle(self, *args: Any, **options: Any) -> None:
        garbage.look_seldom()
        closing = threading.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: closing.set())
        express = Express(closing)
        express.start()
        watches: dict[int, ClusterWatch] = {}
        while not closing.is_set():
            try:
                self.follow(watches, express, closing)
            except DatabaseError as error:
                self.stderr.write(f"the database does not answer: {error}")
            closing.wait(30 if watches else 3)
        for thread in (*watches.values(), express):
            thread.join(5)

    def follow(self, watches: dict[int, ClusterWatch], express: Express, closing: threading.Event) -> None:
        close_old_connections()
        for cluster in Cluster.objects.filter(active=True).exclude(pk__in=watches):
            watches[cluster.pk] = ClusterWatch(cluster, closing, express.seen)
            watches[cluster.pk].start()
