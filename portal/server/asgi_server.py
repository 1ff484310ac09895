"""One ASGI application: pages and API run synchronously in a few threads, held requests run on the event loop.

Measured on this stack, a synchronous view under Django's own ASGI handler costs three to five times the CPU of WSGI, and
every held request would keep a thread and a database connection. So there is one hop: the request is read here, Django's WSGI
handler answers it in a thread of a bounded pool, and the class of the response decides the rest:

| response | body is produced |
|---|---|
| HttpResponse | in that thread, sent at once |
| FileResponse (the portal's own scripts and styles) | on the event loop; each part is read in the one thread for disks |
| StreamingHttpResponse over an iterator (files, exports) | in one thread of a second pool, at the reader's pace |
| StreamingHttpResponse over an async iterator (portal/server/streams.py) | on the event loop: no thread, no connection |

Requests that hash a password, and those for files, which may wait for a cluster, have separate threads, so that they never take
those of pages. One address may occupy at most half of the places in the password queue.
How much of this one person or address may occupy: portal/server/intake.py.

Requests for the notebooks' origin (settings.NOTEBOOK_URL) never reach Django: they go to their own application.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, MutableMapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, aclosing, nullcontext
from typing import IO, Any
from urllib.parse import urlsplit

from django.conf import settings
from django.core import signals
from django.core.exceptions import ImproperlyConfigured
from django.core.handlers.wsgi import WSGIHandler, WSGIRequest
from django.db import close_old_connections
from django.http import FileResponse, HttpResponseBase, StreamingHttpResponse
from django.urls import set_script_prefix
from django.utils import translation
from django.utils.module_loading import import_string

from portal.errors import Busy, Problem
from portal.server import answers, intake, shutdown
from portal.web.problems import MEDIA_TYPE, body_of, page_of
from portal.web.problems import headers_of as headers_of_problem

Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

PASSWORDS = re.compile(r"/(login|admin/login|invite/[^/]+|profile)/")  # a POST there hashes a password
FILE_THREADS = 16
PASSWORDS_WAITING = 16  # further requests get 503: each takes about 0.1 s of CPU
IN_MEMORY = 1 << 20  # bytes of a body before it goes to a temporary file
CHUNK = 1 << 16
log = logging.getLogger(__name__)


class Hybrid:
    """The application of one process. `notebooks` is the ASGI application of the notebooks' origin."""

    def __init__(self, notebooks: Application, threads: int) -> None:
        self.sender_of: Callable[[dict[str, Any]], str | None] = import_string(settings.SENDER_OF)
        self.handler = WSGIHandler()
        self.notebooks = notebooks
        self.is_notebook_host = notebook_hosts(settings.NOTEBOOK_URL, settings.BASE_URL)
        self.pages = ThreadPoolExecutor(threads, thread_name_prefix="page")
        self.files = ThreadPoolExecutor(FILE_THREADS, thread_name_prefix="files")
        self.passwords = ThreadPoolExecutor(1, thread_name_prefix="password")
        self.downloads = ThreadPoolExecutor(intake.DOWNLOADS_ALL, thread_name_prefix="download")
        self.disk = ThreadPoolExecutor(1, thread_name_prefix="disk")
        self.bodies = intake.Allowance(intake.MOST_BODIES)
        self.large = intake.LargeBodies(intake.LARGE_EACH, intake.LARGE_ALL)
        self.filing = intake.Allowance(FILE_THREADS // 2)
        self.hashing = intake.Allowance(PASSWORDS_WAITING // 2, PASSWORDS_WAITING)
        self.streaming = intake.Allowance(intake.STREAMS_EACH)
        self.downloading = intake.Allowance(intake.DOWNLOADS_EACH, intake.DOWNLOADS_ALL)

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
        begun = time.monotonic()
        with tempfile.SpooledTemporaryFile(IN_MEMORY) as body:
            environ = environ_of(scope, body)
            try:
                environ["CONTENT_LENGTH"] = str(await self.receive(scope, receive, body, environ))
                response = await self.threads_for(scope, environ)
            except Problem as problem:
                answers.count(scope["path"], problem.status, time.monotonic() - begun)
                await refuse(send, problem, environ)
                return
            except intake.Gone:
                return
            answers.count(scope["path"], response.status_code, time.monotonic() - begun)
            try:
                with self.allowed(response):
                    await self.send(response, scope, receive, send)
            except Problem as problem:
                await refuse(send, problem, environ)
            finally:
                if isinstance(response, StreamingHttpResponse):  # all others are closed already
                    await asyncio.get_running_loop().run_in_executor(self.pages, response.close)

    async def receive(self, scope: Scope, receive: Receive, body: IO[bytes], environ: dict[str, Any]) -> int:
        """Reads the body; returns its size in bytes. Large bodies are accepted from authenticated senders only.

        Raises TooLarge, TooSlow, TooMany, Busy, Gone.
        """
        size = intake.announced(scope)
        if size == 0:
            return 0
        address = f"address:{intake.address_of(environ)}"
        small = size is not None and size <= intake.SMALL
        if small and not self.bodies.used_up(address):
            with self.bodies.one(address):
                return await intake.read(scope, receive, body, intake.SMALL)
        sender = await asyncio.get_running_loop().run_in_executor(self.pages, self.sender_of, {**environ})
        if small:  # other senders behind the same router must not block an authenticated one
            with self.bodies.one(sender or address):
                return await intake.read(scope, receive, body, intake.SMALL)
        if sender is None:  # the view will require a login; the body is not read
            with self.bodies.one(address):
                return 0 if size is not None else await intake.read(scope, receive, body, intake.SMALL)
        with self.large.one(sender) as arriving:
            return await intake.read(scope, receive, body, intake.limit_for(environ), arriving)

    async def threads_for(self, scope: Scope, environ: dict[str, Any]) -> HttpResponseBase:
        """The response, from the thread pool for this kind of request. Raises TooMany, Busy."""
        loop, address = asyncio.get_running_loop(), f"address:{intake.address_of(environ)}"
        if scope["method"] == "POST" and PASSWORDS.fullmatch(scope["path"]):
            try:
                with self.hashing.one(address):
                    return await loop.run_in_executor(self.passwords, self.respond, environ)
            except intake.TooMany:
                raise Busy from None
        if intake.concerns_files(environ):
            sender = await loop.run_in_executor(self.pages, self.sender_of, {**environ})
            with self.filing.one(sender or address):
                return await loop.run_in_executor(self.files, self.respond, environ)
        return await loop.run_in_executor(self.pages, self.respond, environ)

    def allowed(self, response: HttpResponseBase) -> AbstractContextManager[None]:
        """Counts a streamed response against its reader's allowance until it ends. Raises TooMany, Busy."""
        if not isinstance(response, StreamingHttpResponse):
            return nullcontext()
        holder: str = response._holder  # type: ignore[attr-defined]
        keeps_no_thread = response.is_async or isinstance(response, FileResponse)
        return (self.streaming if keeps_no_thread else self.downloading).one(holder)

    async def send(self, response: HttpResponseBase, scope: Scope, receive: Receive, send: Send) -> None:
        loop = asyncio.get_running_loop()
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
        elif isinstance(response, FileResponse):
            await hold(self.parts_of(response), receive, send)
        else:
            await loop.run_in_executor(self.downloads, stream, response, send, loop)

    async def parts_of(self, response: FileResponse) -> AsyncGenerator[bytes, None]:
        """The parts of a static file, read in the one disk thread, so that a slow reader keeps no thread."""
        response.block_size = CHUNK
        loop, parts = asyncio.get_running_loop(), iter(response)
        while (part := await loop.run_in_executor(self.disk, next, parts, None)) is not None:
            yield part

    def respond(self, environ: dict[str, Any]) -> HttpResponseBase:
        """Runs everything synchronous in one thread, whose database connection is returned at the end."""
        set_script_prefix("/")
        signals.request_started.send(sender=WSGIHandler, environ=environ)
        request = WSGIRequest(environ)
        response = self.handler.get_response(request)
        response._handler_class = WSGIHandler  # type: ignore[attr-defined]
        response._holder = intake.holder_of(request)  # type: ignore[attr-defined]
        if isinstance(response, StreamingHttpResponse):
            close_old_connections()
        else:
            response.close()
        return response


def environ_of(scope: Scope, body: IO[bytes]) -> dict[str, Any]:
    """The WSGI environment (PEP 3333). Headers with an underscore are dropped, because they would be taken for those with a
    hyphen."""
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
        "portal.can_hold": True,  # read by portal/server/streams.py
    }
    for raw_name, raw_value in scope["headers"]:
        name, value = raw_name.decode("latin1").upper(), raw_value.decode("latin1")
        if "_" in name or name in {"CONTENT-LENGTH", "TRANSFER-ENCODING"}:
            continue
        key = "CONTENT_TYPE" if name == "CONTENT-TYPE" else "HTTP_" + name.replace("-", "_")
        environ[key] = f"{environ[key]}{'; ' if name == 'COOKIE' else ','}{value}" if key in environ else value
    environ["CONTENT_LENGTH"] = "0"  # set after the body is read: some requests have no length
    return environ


def headers_of(response: HttpResponseBase) -> list[tuple[bytes, bytes]]:
    pairs = [*response.items(), *(("Set-Cookie", cookie.OutputString()) for cookie in response.cookies.values())]
    return [(name.lower().encode("latin1"), value.encode("latin1")) for name, value in pairs]


async def hold(parts: AsyncIterator[bytes], receive: Receive, send: Send) -> None:
    """Sends the parts of an async generator until it ends, the client disconnects, or the process stops."""

    async def pump() -> None:
        with shutdown.held():
            async with aclosing(parts):  # type: ignore[type-var]
                async for part in parts:
                    message = {"type": "http.response.body", "body": part, "more_body": True}
                    await asyncio.wait_for(send(message), intake.READER)

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
        raise error  # the server breaks off the connection, so that the client does not take this for the end
    await send({"type": "http.response.body", "body": b""})


def stream(response: StreamingHttpResponse, send: Send, loop: asyncio.AbstractEventLoop) -> None:
    """Runs in a download thread: each part is read after the client has taken the previous one."""

    async def put(part: bytes, more: bool) -> None:
        await asyncio.wait_for(send({"type": "http.response.body", "body": part, "more_body": more}), intake.READER)

    if hasattr(response, "block_size"):
        response.block_size = CHUNK
    parts: Iterable[bytes] = response
    try:
        for part in parts:
            asyncio.run_coroutine_threadsafe(put(part, True), loop).result()
        asyncio.run_coroutine_threadsafe(put(b"", False), loop).result()
    finally:
        close_old_connections()


async def refuse(send: Send, problem: Problem, environ: dict[str, Any]) -> None:
    """Sends a refusal in the browser's language, without Django."""
    request = WSGIRequest(environ)
    with translation.override(translation.get_language_from_request(request)):
        if request.path.startswith("/api/"):
            text, kind = json.dumps(body_of(problem, request.path)), MEDIA_TYPE
        elif "text/html" in request.headers.get("Accept", ""):
            text, kind = page_of(problem), "text/html; charset=utf-8"
        else:
            text, kind = f"{problem.detail}\n", "text/plain; charset=utf-8"
    body = text.encode()
    headers = {"content-type": kind, "connection": "close", **headers_of_problem(problem)}
    pairs = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": problem.status, "headers": pairs})
    await send({"type": "http.response.body", "body": body})


def notebook_hosts(notebook_url: str, base_url: str) -> Callable[[str], bool]:
    """A predicate on the Host header: whether it is the notebooks' origin. `*` in NOTEBOOK_URL is a placeholder for a
    workload's id."""
    notebooks, portal = urlsplit(notebook_url).netloc, urlsplit(base_url).netloc
    if notebooks == portal:
        raise ImproperlyConfigured(
            f"NOTEBOOK_URL and BASE_URL are both {portal}: a notebook's scripts must not run on the portal's origin"
        )
    pattern = re.compile(re.escape(notebooks.lower()).replace(r"\*", "[a-z0-9-]+"))
    return lambda host: pattern.fullmatch(host.lower()) is not None
