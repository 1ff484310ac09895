"""WebSockets to a notebook server, in both directions. The reader's right is checked again while they are open."""

from __future__ import annotations

import asyncio
from typing import Any

import structlog
from django.db import Error as DatabaseError
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, WebSocketException
from websockets.typing import Subprotocol

from portal.errors import Problem
from portal.notify import event_bell
from portal.server import shutdown
from portal.server.asgi_server import Receive, Scope, Send
from portal.server.streams import look
from workloads.notebooks import access
from workloads.notebooks.access import Seat

log = structlog.get_logger(__name__)
RECHECK = 5.0  # seconds
LARGEST = 64 << 20  # bytes of one message
GOING_AWAY, NOT_ALLOWED, INTERNAL = 1001, 4403, 1011


async def pass_socket(
    scope: Scope, receive: Receive, send: Send, seat: Seat, headers: list[tuple[bytes, bytes]], cookie: str
) -> None:
    path = (scope.get("raw_path") or scope["path"].encode()).split(b"?")[0].decode("latin1")
    query = scope["query_string"].decode("latin1")
    await receive()  # websocket.connect
    try:
        upstream = await connect(
            f"ws://{seat.host}:{seat.port}{path}{'?' if query else ''}{query}",
            additional_headers=[(name.decode("latin1"), value.decode("latin1")) for name, value in headers],
            subprotocols=[Subprotocol(name) for name in scope.get("subprotocols", [])] or None,
            user_agent_header=None,
            compression=None,
            max_size=LARGEST,
            open_timeout=10,
            close_timeout=1,
            proxy=None,
        )
    except (OSError, WebSocketException, TimeoutError):
        await send({"type": "websocket.close", "code": INTERNAL})
        return
    async with upstream:
        await send({"type": "websocket.accept", "subprotocol": upstream.subprotocol})
        code = await both_ways(receive, send, upstream, cookie)
        if code is not None:
            await send({"type": "websocket.close", "code": code})


async def both_ways(receive: Receive, send: Send, upstream: ClientConnection, cookie: str) -> int | None:
    """Pass messages on until one side closes. Returns the code to close the reader's side with; None if the reader has gone."""
    ways = [
        asyncio.create_task(way) for way in (to_notebook(receive, upstream), to_reader(send, upstream), watch(cookie))
    ]
    try:
        with shutdown.held():
            done, _ = await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        return next(iter(done)).result()
    except asyncio.CancelledError:
        if not event_bell.closing.is_set():
            raise
        return GOING_AWAY
    finally:
        for way in ways:
            way.cancel()
        await asyncio.gather(*ways, return_exceptions=True)


async def to_notebook(receive: Receive, upstream: ClientConnection) -> int | None:
    while True:
        message = await receive()
        if message["type"] == "websocket.disconnect":
            await upstream.close(sendable(message.get("code")))
            return None
        text, data = message.get("text"), message.get("bytes")
        try:
            await upstream.send(text if text is not None else data or b"")
        except ConnectionClosed as closed:
            return sendable(closed.rcvd.code if closed.rcvd else None)


async def to_reader(send: Send, upstream: ClientConnection) -> int | None:
    try:
        async for part in upstream:
            message: dict[str, Any] = {"type": "websocket.send"}
            message["text" if isinstance(part, str) else "bytes"] = part
            await send(message)
    except ConnectionClosed:
        pass
    return sendable(upstream.close_code)


async def watch(cookie: str) -> int | None:
    """Return when the reader's right, or the attempt, has ended."""
    while True:
        await asyncio.sleep(RECHECK)
        try:
            await look(lambda: access.seat_of(cookie), cluster=True)
        except Problem as problem:
            if problem.status < 500:
                return NOT_ALLOWED
        except DatabaseError as error:  # the right cannot be checked: the connection stays until the database is back
            log.warning("notebook.database_away", error=str(error))


def sendable(code: int | None) -> int:
    """The close code to send: some codes are only for local use and must not be sent."""
    return 1000 if code in {None, 1005} else INTERNAL if code in {1006, 1015} else int(code or 1000)
