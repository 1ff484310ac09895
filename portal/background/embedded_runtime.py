"""The demo's background work: a Celery worker and beat as threads of the web process, with the memory:// broker."""

from __future__ import annotations

import threading
from typing import Any

from celery import signals
from celery.beat import Scheduler
from celery.worker import WorkController, state

from portal.background import hints
from portal.background.jobs import ticked
from portal.celery import app


class Runtime:
    """Start it once in a process; `stop` waits for running tasks."""

    def __init__(self, concurrency: int = 2) -> None:
        self.worker: Any = WorkController(
            app=app,
            hostname="embedded@localhost",
            pool_cls="threads",
            concurrency=concurrency,
            without_heartbeat=True,
            without_mingle=True,
            without_gossip=True,
        )
        self.stopping = threading.Event()
        self.since = ticked()
        self.threads = [
            threading.Thread(target=self.work, name="embedded-worker", daemon=True),
            threading.Thread(target=self.beat, name="embedded-beat", daemon=True),
        ]

    def start(self) -> None:
        signals.worker_init.send(sender=self.worker)  # makes Celery's Django support return connections after each task
        hints.catch_up()
        for thread in self.threads:
            thread.start()

    def work(self) -> None:
        self.worker.start()

    def beat(self) -> None:
        scheduler: Any = Scheduler(app)
        for job, entry in scheduler.schedule.items():  # Celery forgets its ticks when the process ends
            entry.last_run_at = self.since.get(job, entry.last_run_at)
        while not self.stopping.wait(min(scheduler.tick(), 1.0)):
            pass

    def stop(self, patience: float = 10.0) -> bool:
        """Stops both threads; returns whether they have ended within `patience` seconds each."""
        self.stopping.set()
        state.should_stop = 0  # type: ignore[assignment]  # Celery's own flag, read by the worker's loop
        started = [thread for thread in self.threads if thread.ident is not None]
        for thread in started:
            thread.join(patience)
        state.should_stop = None
        return not any(thread.is_alive() for thread in started)
