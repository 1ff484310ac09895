"""Starts the web server: several granian processes, or for the demo one process that runs everything.

On SIGTERM or Ctrl-C held requests are ended (portal/server/shutdown.py), and the process stops within five seconds, however
many streams are open.
"""

from __future__ import annotations

import asyncio
import copy
import os
import resource
import signal
import socket
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import structlog
from django.conf import settings
from granian.constants import HTTPModes, Interfaces, Loops
from granian.http import HTTP1Settings
from granian.log import LogLevels
from granian.server.embed import Server as InProcess
from granian.server.mp import MPServer

from portal.background.embedded_runtime import Runtime
from portal.server import shutdown

BACKLOG = 2048  # connections that wait to be accepted
CONNECTIONS = 16_384  # per process, most of them idle; granian accepts no more until one ends
IDLE = 10_000  # ms without a complete request until a connection is closed
PATIENCE = 3  # seconds for open requests after the signal: leaves two of the five to end the processes
LAST_WORD = 0.2  # seconds
log = structlog.get_logger(__name__)


class PortTaken(Exception):
    """A port is in use; the message names it."""


class ClosingWorkers(MPServer):
    """Sends its processes SIGUSR1 shortly before it ends them, so that they close held requests
    (portal/server/application.py)."""

    def _stop_workers(self) -> None:
        for worker in self.wrks:
            with suppress(ProcessLookupError, TypeError):
                os.kill(worker.inner.pid, signal.SIGUSR1)
        super()._stop_workers()  # type: ignore[no-untyped-call]


def processes() -> None:
    """The web server of an installation, on BIND_HOST:PORT; notebooks are recognised by their host name. Raises
    PortTaken."""
    _refuse_taken(settings.PORT)
    allow_files(CONNECTIONS + 1024)
    ClosingWorkers(
        "portal.asgi:application",
        address=settings.BIND_HOST,
        port=settings.PORT,
        interface=Interfaces.ASGINL,
        workers=settings.WEB_WORKERS,
        loop=Loops.asyncio,
        backlog=BACKLOG,
        backpressure=CONNECTIONS,
        http=HTTPModes.http1,  # where HTTP/2 may come, too, a silent connection is waited for without end
        http1_settings=HTTP1Settings(header_read_timeout=IDLE),
        workers_kill_timeout=PATIENCE,
        respawn_failed_workers=True,
        log_level=LogLevels.warning,
        log_dictconfig=logging_config(),
    ).serve()


def one_process(listening: Callable[[], object], at_stop: Callable[[], object]) -> None:
    """The whole demo in one process.

    `listening` is called when both ports are open, `at_stop` after the background work has ended. Raises PortTaken.
    """
    from portal.server.application import application  # loads all views

    _refuse_taken(settings.PORT, settings.NOTEBOOK_PORT)
    runtime = Runtime()
    try:
        asyncio.run(_serve(application, runtime, listening))
    finally:
        runtime.stop()
        at_stop()


async def _serve(application: Any, runtime: Runtime, listening: Callable[[], object]) -> None:
    loop, signalled = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, signalled.set)
    ports = settings.PORT, settings.NOTEBOOK_PORT
    servers = [in_process(application, port) for port in ports]
    tasks = [asyncio.create_task(server.serve()) for server in servers]
    ends = [asyncio.create_task(signalled.wait()), *tasks]
    await asyncio.wait([asyncio.create_task(_opened(ports)), *ends], return_when=asyncio.FIRST_COMPLETED)
    runtime.start()
    await asyncio.to_thread(listening)  # it may query the database, which must not happen on the loop
    await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
    log.info("serve.stopping", held=shutdown.count())
    shutdown.close()
    for server in servers:
        server.stop()  # type: ignore[no-untyped-call]
    await asyncio.wait(tasks, timeout=PATIENCE)
    # A task that still sends something then waits for a server that is gone: cancel it again, before asyncio.run waits for it.
    if left := asyncio.all_tasks() - {asyncio.current_task()}:
        for task in left:
            task.cancel()
        await asyncio.wait(left, timeout=LAST_WORD)


async def _opened(ports: Iterable[int]) -> None:
    """Waits until the server listens, since granian does not report it."""
    for port in ports:
        while True:
            with suppress(OSError):
                _, writer = await asyncio.open_connection(settings.BIND_HOST, port)
                writer.close()
                break
            await asyncio.sleep(0.02)


def in_process(application: Any, port: int) -> InProcess:
    return InProcess(
        application,
        address=settings.BIND_HOST,
        port=port,
        interface=Interfaces.ASGINL,
        backlog=BACKLOG,
        backpressure=CONNECTIONS,
        http=HTTPModes.http1,  # where HTTP/2 may come, too, a silent connection is waited for without end
        http1_settings=HTTP1Settings(header_read_timeout=IDLE),
        log_level=LogLevels.error,
        log_dictconfig=logging_config(),
    )


def logging_config() -> dict[str, Any]:
    """A copy of the portal's logging settings for granian, which configures logging again and adds a logger of its
    own."""
    return copy.deepcopy(settings.LOGGING)


def allow_files(number: int) -> None:
    """Raises the limit on open files: each connection is one, and most systems start processes with a limit of 1,024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = number if hard == resource.RLIM_INFINITY else min(number, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


@contextmanager
def claimed(*ports: int) -> Iterator[None]:
    """Keeps the ports for this process while it prepares to listen. Raises PortTaken if one is in use, or claimed by another
    process: the UDP port of the same number is the claim, which the system ends with the process."""
    with ExitStack() as claims:
        for port in ports:
            claim = claims.enter_context(socket.socket(_family(), socket.SOCK_DGRAM))
            _bind(claim, port)
        _refuse_taken(*ports)
        yield


def _refuse_taken(*ports: int) -> None:
    """Raises PortTaken if one of the ports is in use. Granian shares ports, so a second server would start and get half of
    the requests."""
    for port in ports:
        with socket.socket(_family()) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            _bind(probe, port)


def _family() -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in settings.BIND_HOST else socket.AF_INET


def _bind(one: socket.socket, port: int) -> None:
    try:
        one.bind((settings.BIND_HOST, port))
    except OSError as error:
        raise PortTaken(f"{settings.BIND_HOST}:{port} cannot be listened on: {error.strerror}") from error
