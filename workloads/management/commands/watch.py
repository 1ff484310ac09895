import signal
import threading
from typing import Any

from django.core.management.base import BaseCommand

from workloads.reconciler.planner import Planner
from workloads.reconciler.watch import LOOK_FOR_NEW, watch_all
from workloads.reconciler.workers import Workers


class Command(BaseCommand):
    help = f"Act at once on what people ask and on what moves in the clusters. New ones are noticed within {LOOK_FOR_NEW:.0f} s."

    def handle(self, *args: Any, **options: Any) -> None:
        closing = threading.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: closing.set())
        workers = Workers()
        planner = Planner(closing, workers)
        workers.start()
        planner.start()
        watch_all(closing, workers.sighted)
        planner.join(5)
        workers.stop()
