"""`manage.py demo`: the whole portal on this machine, with people, quotas and running workloads."""

from __future__ import annotations

import fcntl
import shutil
import threading
import time
from pathlib import Path
from typing import IO, Any

from django.conf import settings
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import connections
from django.utils import timezone

from portal.models import AuditEntry
from portal.server.serve import PortTaken, claimed, one_process
from workloads.demo.logins import SharedFolder, ensure_logins, login_lines, logins_file, make_private
from workloads.demo.names import OTHER_LANGUAGE, of_environment

SEEDED = "demo.seeded"


class Command(BaseCommand):
    help = "Starts everything on this machine and fills it with a small installation. Ctrl-C stops it; data stay."
    requires_system_checks: list[str] = []
    requires_migrations_checks = False

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--reset", action="store_true", help="forget what was done in the demo and begin again")
        parser.add_argument("--no-load", action="store_true", help="people and quotas, but no work")

    def handle(self, *args: Any, reset: bool, no_load: bool, **options: Any) -> None:
        if not (settings.EMBEDDED and settings.DEBUG):
            raise CommandError(
                "The demo runs submitted commands as processes of this machine, so it starts only with DEBUG=true and "
                "EMBEDDED=true, as `make demo` does. For an installation see docs/operations.md."
            )
        begun = time.monotonic()
        folder = Path(settings.DATA_DIR)
        try:
            make_private(folder)
        except SharedFolder as error:
            raise CommandError(str(error)) from None
        with (folder / "lock").open("w") as lock:
            self.alone(lock, folder)
            try:
                with claimed(settings.PORT, settings.NOTEBOOK_PORT):  # before anything is deleted, or takes long
                    if reset:
                        self.reset(folder)
                    self.serve(begun, self.prepare(load=not no_load))
            except PortTaken as error:
                raise CommandError(f"{error}. Other ports: PORT=8010 NOTEBOOK_PORT=8011 make demo") from None

    def alone(self, lock: IO[str], folder: Path) -> None:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise CommandError(
                f"A demo with the data in {folder} is running already. Another one: DATA_DIR=… PORT=…"
            ) from None

    def reset(self, folder: Path) -> None:
        """Stops the programs of the old demo, then deletes everything but the lock."""
        from workloads.embedded.driver import EmbeddedCluster

        for root in (folder / "cluster").glob("*"):
            EmbeddedCluster(root.name, root, (), {}, debug=settings.DEBUG, bind_host=settings.BIND_HOST).shutdown(1.0)
        for path in folder.iterdir():
            if path.name != "lock":
                shutil.rmtree(path) if path.is_dir() else path.unlink()

    def prepare(self, *, load: bool) -> list[str]:
        """Prepares the data and returns the logins as lines to show. Each step is quick when there is nothing to do, and
        continues after an interruption."""
        from workloads.demo.history import fill
        from workloads.demo.load import submit_load
        from workloads.demo.seed import make_images, seed

        call_command("migrate", verbosity=0, interactive=False)
        call_command("compile_messages", verbosity=0)
        if AuditEntry.objects.filter(action=SEEDED).exists():
            make_images()
        else:
            self.stdout.write("Filling in people, quotas and work …")
            seed(of_environment())
            if load:
                fill(timezone.now())
            submitted = submit_load() if load else 0
            AuditEntry.objects.create(actor_name="system", action=SEEDED, target="demo", after={"workloads": submitted})
        logins = login_lines(ensure_logins())
        connections.close_all()
        return logins

    def serve(self, begun: float, logins: list[str]) -> None:
        from workloads.reconciler.watch import watch_all

        closing = threading.Event()

        def listening() -> None:
            threading.Thread(target=watch_all, args=(closing,), name="watch", daemon=True).start()
            self.greet(time.monotonic() - begun, logins)

        def at_stop() -> None:
            closing.set()
            self.stdout.write(f"\nStopped. {self.send_home()} programs were stopped and are queued again.")

        one_process(listening, at_stop)

    def send_home(self) -> int:
        """Stops the programs and queues their workloads again, as after a failure of the node; returns how many."""
        from quotas.models import Cluster, ClusterKind
        from workloads.clusters.drivers import driver_for
        from workloads.reconciler.reconcile import reconcile_cluster

        stopped = 0
        for cluster in Cluster.objects.filter(kind=ClusterKind.EMBEDDED, active=True):
            driver: Any = driver_for(cluster)
            stopped += driver.shutdown()
            reconcile_cluster(cluster)
        return stopped

    def greet(self, seconds: float, logins: list[str]) -> None:
        self.stdout.write(
            "\n".join(
                [
                    "",
                    f"GPU quota portal {settings.VERSION}: {settings.BASE_URL}/   (ready in {seconds:.1f} s)",
                    "",
                    *logins,
                    "",
                    f"The passwords are this demo's own; {logins_file()} keeps them, and those of the others.",
                    "The cards are declared: there is no CUDA here. Commands run as real processes of this machine.",
                    f"Data: {settings.DATA_DIR}. Ctrl-C stops everything and keeps it; `make demo-reset` begins again.",
                    OTHER_LANGUAGE[of_environment()],
                    "",
                ]
            )
        )
        self.stdout.flush()
