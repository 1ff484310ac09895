"""One ASGI application: pages and API run synchronously in a few threads, what is held open lives on the event loop.

Measured on this stack, a synchronous view under Django's own ASGI handler costs three to five times the CPU of WSGI, and
every held request would keep a thread and a database connection. So there is one hop: the request is read here, Django's
WSGI handler answers it in a thread of a bounded pool, and the kind of answer decides the rest:

| answer | body is produced |
|---|---|
| HttpResponse | in that thread, sent at once |
| StreamingHttpResponse over an iterator (files, exports) | in one thread of a second pool, at the reader's pace |
| StreamingHttpResponse over an async iterator (portal/streams.py) | on the event loop: no thread, no connection |

Requests for the notebooks' origin (settings.NOTEBOOK_URL) never reach Django: they go to their own application.
"""

from __future__ import annotations

import asyncio
import logging
import re
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, MutableMapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from typing import IO, Any
from urllib.parse import urlsplit

from django.conf import settings
from django.core import signals
from django.core.exceptions import ImproperlyConfigured
from django.core.handlers.wsgi import WSGIHandler, WSGIRequest
from django.db import close_old_connections
from django.http import HttpResponseBase, StreamingHttpResponse
from django.urls import set_script_prefix

from portal import held

Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

LARGE_BODIES = re.compile(r"/files/")  # where files are uploaded; any other body is a form or JSON
IN_MEMORY = 1 << 20  # bytes of a body before it goes to a temporary file
CHUNK = 1 << 16
log = logging.getLogger(__name__)


class TooLarge(Exception):
    pass


class Gone(Exception):
    """The reader left before the request was complete."""


class Hybrid:
    """`notebooks` is the application of the other origin."""

    def __init__(self, notebooks: Application, threads: int) -> None:
        self.handler = WSGIHandler()
        self.notebooks = notebooks
        self.is_notebook_host = notebook_hosts(settings.NOTEBOOK_URL, settings.BASE_URL)
        self.pages = ThreadPoolExecutor(threads, thread_name_prefix="page")
        self.downloads = ThreadPoolExecutor(32, thread_name_prefix="download")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in {"http", "websocket"}:
            return
        host = next((value.decode("latin1") for name, value in scope["headers"] if name == b"host"), "")
        if self.is_notebook_host(host):
            await self.notebooks(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
        else:
            await self.answer(scope, receive, send)

    async def answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        with tempfile.SpooledTemporaryFile(IN_MEMORY) as body:
            try:
                await read_body(scope, receive, body)
            except TooLarge:
                await refuse(send, 413, b"The request body is too large.")
                return
            except Gone:
                return
            loop = asyncio.get_running_loop()
            response = await loop.run_in_executor(self.pages, self.respond, environ_of(scope, body))
            await send({"type": "http.response.start", "status": response.status_code, "headers": headers_of(response)})
            is_head = scope["method"] == "HEAD"
            if not isinstance(response, StreamingHttpResponse):  # its content is complete and it is closed already
                content = b"" if is_head else getattr(response, "content", b"")
                await send({"type": "http.response.body", "body": content})
                return
            if is_head:
                await send({"type": "http.response.body", "body": b""})
            elif response.is_async:
                await hold(aiter(response), receive, send)
            else:
                await loop.run_in_executor(self.downloads, stream, response, send, loop)
            await loop.run_in_executor(self.pages, response.close)

    def respond(self, environ: dict[str, Any]) -> HttpResponseBase:
        """Everything synchronous, in one thread; its database connection is given back before it returns."""
        set_script_prefix("/")
        signals.request_started.send(sender=WSGIHandler, environ=environ)
        response = self.handler.get_response(WSGIRequest(environ))
        response._handler_class = WSGIHandler  # type: ignore[attr-defined]
        if isinstance(response, StreamingHttpResponse):
            close_old_connections()
        else:
            response.close()
        return response


async def read_body(scope: Scope, receive: Receive, body: IO[bytes]) -> None:
    """Raises TooLarge, before the body is read when it says its length; Gone."""
    small = settings.DATA_UPLOAD_MAX_MEMORY_SIZE + (1 << 20)
    limit = settings.FILE_UPLOAD_LIMIT + (1 << 20) if LARGE_BODIES.search(scope["path"]) else small
    said = next((value for name, value in scope["headers"] if name == b"content-length"), b"0")
    size = int(said) if said.isdigit() else 0
    if size > limit:
        raise TooLarge
    size, more = 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Gone
        size += len(message.get("body", b""))
        if size > limit:
            raise TooLarge
        body.write(message.get("body", b""))
        more = message.get("more_body", False)
    body.seek(0)
    scope["body_size"] = size


def environ_of(scope: Scope, body: IO[bytes]) -> dict[str, Any]:
    """PEP 3333. Header names with an underscore are dropped: they would pose as those with a hyphen."""
    server, client = scope.get("server") or ("localhost", 80), scope.get("client") or ("", 0)
    environ: dict[str, Any] = {
        "REQUEST_METHOD": scope["method"],
        "SCRIPT_NAME": "",
        "PATH_INFO": scope["path"].encode().decode("latin1"),
        "QUERY_STRING": scope["query_string"].decode("latin1"),
        "SERVER_PROTOCOL": "HTTP/" + scope["http_version"],
        "SERVER_NAME": server[0],
        "SERVER_PORT": str(server[1] or 80),
        "REMOTE_ADDR": client[0],
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": scope.get("scheme", "http"),
        "wsgi.input": body,
        "wsgi.errors": sys.stderr,
        "wsgi.multithread": True,
        "wsgi.multiprocess": True,
        "wsgi.run_once": False,
        "portal.can_hold": True,  # read by portal/streams.py
    }
    for raw_name, raw_value in scope["headers"]:
        name, value = raw_name.decode("latin1").upper(), raw_value.decode("latin1")
        if "_" in name or name in {"CONTENT-LENGTH", "TRANSFER-ENCODING"}:
            continue
        key = "CONTENT_TYPE" if name == "CONTENT-TYPE" else "HTTP_" + name.replace("-", "_")
        environ[key] = f"{environ[key]}{'; ' if name == 'COOKIE' else ','}{value}" if key in environ else value
    environ["CONTENT_LENGTH"] = str(scope["body_size"])
    return environ


def headers_of(response: HttpResponseBase) -> list[tuple[bytes, bytes]]:
    pairs = [*response.items(), *(("Set-Cookie", cookie.OutputString()) for cookie in response.cookies.values())]
    return [(name.lower().encode("latin1"), value.encode("latin1")) for name, value in pairs]


async def hold(parts: AsyncIterator[bytes], receive: Receive, send: Send) -> None:
    """Sends what an async generator gives until it ends, the reader leaves, or the process closes."""

    async def pump() -> None:
        with held.held():
            async with aclosing(parts):  # type: ignore[type-var]
                async for part in parts:
                    await send({"type": "http.response.body", "body": part, "more_body": True})

    async def until_gone() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    pumping, leaving = asyncio.create_task(pump()), asyncio.create_task(until_gone())
    try:
        await asyncio.wait({pumping, leaving}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        leaving.cancel()
        pumping.cancel()
        await asyncio.wait({pumping, leaving})
    if not pumping.cancelled() and (error := pumping.exception()) is not None:
        raise error  # the server breaks the connection off: the reader must not take this for the end
    await send({"type": "http.response.body", "body": b""})


def stream(response: StreamingHttpResponse, send: Send, loop: asyncio.AbstractEventLoop) -> None:
    """In a download thread: the next part is read when the reader has taken the last one."""

    async def put(part: bytes, more: bool) -> None:
        await send({"type": "http.response.body", "body": part, "more_body": more})

    if hasattr(response, "block_size"):
        response.block_size = CHUNK
    parts: Iterable[bytes] = response
    try:
        for part in parts:
            asyncio.run_coroutine_threadsafe(put(part, True), loop).result()
        asyncio.run_coroutine_threadsafe(put(b"", False), loop).result()
    finally:
        close_old_connections()


async def refuse(send: Send, status: int, text: bytes) -> None:
    headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"connection", b"close")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": text + b"\n"})


def notebook_hosts(notebook_url: str, base_url: str) -> Callable[[str], bool]:
    """Tells by the Host header who is asked. `*` in the notebooks' address stands for one workload's id."""
    notebooks, portal = urlsplit(notebook_url).netloc, urlsplit(base_url).netloc
    if notebooks == portal:
        raise ImproperlyConfigured(
            f"NOTEBOOK_URL and BASE_URL are both {portal}: a notebook's scripts must not run on the portal's origin"
        )
    pattern = re.compile(re.escape(notebooks.lower()).replace(r"\*", "[a-z0-9-]+"))
    return lambda host: pattern.fullmatch(host.lower()) is not None
