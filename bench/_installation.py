"""A whole throw-away installation with its own cluster, for the benchmarks with Kubernetes.

It has PostgreSQL and Redis as in the tests, the processes of deploy/serve, and a Kubernetes of tests/cluster/kit with simulated
nodes. Everything is stopped afterwards. In the calling process, Django is set up on the same database.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
KIT = ROOT / "tests/cluster/kit"
PROCESSES = {
    "web": [sys.executable, "manage.py", "serve"],
    "watcher": [sys.executable, "manage.py", "watch"],
    "worker": [sys.executable, "-m", "celery", "--app", "portal", "worker", "--concurrency", "2", "--without-gossip",
               "--without-mingle", "--loglevel", "WARNING"],
    "beat": [sys.executable, "-m", "celery", "--app", "portal", "beat", "--scheduler", "celery.beat:Scheduler",
             "--loglevel", "WARNING"],
}  # fmt: skip


@dataclass
class Installation:
    admin: Any  # tests.clusters.realcluster.Admin of the cluster
    info: dict[str, Any]  # output of the kit: state folder, process ids
    log: Path
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def base(self) -> str:
        return f"http://127.0.0.1:{os.environ['PORT']}/api/v1"

    def start(self, *names: str) -> None:
        for name in names:
            with (self.log / f"{name}.log").open("ab") as log:
                self.running[name] = subprocess.Popen(PROCESSES[name], cwd=ROOT, stdout=log, stderr=log)

    def stop(self, *names: str) -> None:
        ended = [self.running.pop(name) for name in names if name in self.running]
        for process in ended:
            process.terminate()
        for process in ended:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(15)
            process.kill()

    def pids(self) -> dict[str, int]:
        return {**{name: process.pid for name, process in self.running.items()}, **self.info["pids"]}


@contextlib.contextmanager
def web_server() -> Iterator[str]:
    """The web server as in production, on the servers of `prepared`; yields its address."""
    from tests import servers

    web = subprocess.Popen(PROCESSES["web"], stderr=subprocess.DEVNULL)
    try:
        port = int(os.environ["PORT"])
        servers.wait("web", lambda: servers.listening(port))
        yield f"http://127.0.0.1:{port}"
    finally:
        web.terminate()
        web.wait(15)


def prepared(**environment: str) -> Path:
    """Starts throw-away servers with a migrated, empty database, and sets this process up on them. Returns the data folder."""
    from tests import servers

    folder = Path(tempfile.mkdtemp(prefix="gqp-bench-"))
    os.environ |= {
        "DEBUG": "false",
        "SECRET_KEY": "x" * 50,
        "ENCRYPTION_KEYS": "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=",
        "DATABASE_URL": servers.postgres() or sys.exit("needs PostgreSQL"),
        "REDIS_URL": servers.redis() or sys.exit("needs Redis"),
        "PORT": str(servers.free_port()),
        "WEB_WORKERS": "2",
        "DATABASE_POOL": "24",
        "LOG_LEVEL": "WARNING",
        "API_RATE_PER_MINUTE": "1000000",
        "DATA_DIR": str(folder),
        "DJANGO_SETTINGS_MODULE": "portal.settings",
        **environment,
    }
    import django

    django.setup()
    from django.core.management import call_command

    call_command("migrate", verbosity=0)
    call_command("collectstatic", interactive=False, verbosity=0)
    return folder


@contextlib.contextmanager
def installed(nodes: int, cards: int, lease: int = 40, **environment: str) -> Iterator[Installation]:
    """An empty installation with the cluster `bench` in its inventory; none of the portal's processes is started yet."""
    folder = prepared(**environment)
    from tests.clusters.realcluster import Admin

    arguments = ["start", "--apart", "--nodes", str(nodes), "--cards", str(cards), "--lease", str(lease)]
    info = json.loads(subprocess.run([KIT, *arguments], check=True, stdout=subprocess.PIPE).stdout)
    made = Installation(Admin(info), info, folder)
    try:
        with made.admin.account() as account:
            take_over(made, account)
            yield made
            made.stop(*made.running)
    finally:
        made.stop(*made.running)
        subprocess.run([KIT, "stop", "--state", info["state"]], check=True)


def take_over(made: Installation, account: str) -> None:
    """Adds the cluster and its nodes; the portal's account has only the rights of rights/cluster.yaml in deploy/helm."""
    from portal.infra.crypt import encrypt
    from quotas.models import Cluster
    from workloads.nodes import inventory

    options = {"volume": "emptyDir", "namespace_prefix": "bench-"}
    row = Cluster.objects.create(name="bench", kind="kubernetes", connection=encrypt(account), options=options)
    began = time.process_time()
    changed = inventory.refresh(row)
    print(f"inventory: {changed} nodes taken over in {time.process_time() - began:.1f} CPU s", flush=True)


def wait(what: str, fact: Callable[[], object], seconds: float = 120, pause: float = 0.05) -> None:
    end = time.monotonic() + seconds
    while not fact():
        if time.monotonic() > end:
            raise SystemExit(f"{what}: not in {seconds:.0f} s")
        time.sleep(pause)


def cpu_seconds(made: Installation) -> dict[str, float]:
    """CPU seconds used so far by each process with its children, including the servers and Kueue; `bench` is this process."""
    found = {name: _used(pid) for name, pid in made.pids().items()}
    for child in set(_children(os.getpid())) - set(made.pids().values()):
        found[Path(f"/proc/{child}/comm").read_text().strip()] = _used(child)
    return found | {"bench": time.process_time()}


def _used(pid: int) -> float:
    """CPU seconds of a process and its children, running and ended ones."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except FileNotFoundError:
        return 0.0
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK") + sum(map(_used, _children(pid)))


def _children(pid: int) -> list[int]:
    """The child processes of all its threads."""
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(FileNotFoundError):
            found += map(int, task.read_text().split())
    return found


def memory_mib(pid: int) -> float:
    """Resident memory of a process and its children, in MiB."""
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except FileNotFoundError:
        return 0.0
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20 + sum(memory_mib(int(child)) for child in children)
