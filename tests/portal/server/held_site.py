"""A site of a few views, served by the real server in tests of portal/server/asgi_server.py: the settings and the addresses."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Iterator

from django.http import FileResponse, HttpRequest, HttpResponse, HttpResponseBase, JsonResponse, StreamingHttpResponse
from django.urls import path
from django.views.decorators.csrf import csrf_exempt

from portal.settings import *  # noqa: F403

ROOT_URLCONF = __name__
SENDER_OF = f"{__name__}.sender_of"
logins = threading.Event()  # passwords are hashed once it is set
closed: list[str] = []


def page(request: HttpRequest) -> HttpResponse:
    response = HttpResponse(f"page for {request.GET.get('name', 'all')} in {threading.current_thread().name}")
    response.set_cookie("one", "1")
    response.set_cookie("two", "2")
    return response


def sender_of(environ: dict[str, str]) -> str | None:
    return environ.get("HTTP_X_SENDER")


@csrf_exempt
def login(request: HttpRequest) -> HttpResponse:
    logins.wait(60)
    return HttpResponse(threading.current_thread().name)


def let_in(request: HttpRequest) -> HttpResponse:
    logins.set()
    return HttpResponse("")


def endless(request: HttpRequest) -> HttpResponseBase:
    return StreamingHttpResponse((b"x" * (1 << 16) for _ in range(10**6)), content_type="text/plain")


@csrf_exempt
def echo(request: HttpRequest, **_: str) -> HttpResponse:
    headers = {key: value for key, value in request.META.items() if key.startswith("HTTP_") or key == "CONTENT_TYPE"}
    size = sum(len(part) for part in iter(lambda: request.read(1 << 16), b""))
    return JsonResponse({"method": request.method, "path": request.path, "size": size, "headers": headers})


def held(request: HttpRequest) -> HttpResponseBase:
    from portal.notify import event_bell
    from portal.server import streams

    async def body() -> AsyncIterator[bytes]:
        yield b"open\n"
        try:
            with streams.bell() as event:
                while not event_bell.closing.is_set():
                    await streams.wait_for_ring(event, 600)
            yield b"goodbye\n"
        finally:
            closed.append("held")

    assert streams.can_hold(request)
    return streams.streaming(body(), "text/event-stream")


def deaf(request: HttpRequest) -> HttpResponseBase:
    """A stream that does not check whether the process is ending."""

    async def body() -> AsyncIterator[bytes]:
        yield b"open\n"
        await asyncio.sleep(600)

    return StreamingHttpResponse(body(), content_type="text/plain")


def broken(request: HttpRequest) -> HttpResponseBase:
    async def body() -> AsyncIterator[bytes]:
        yield b"open\n"
        raise ValueError("in the middle")

    return StreamingHttpResponse(body(), content_type="text/plain")


def export(request: HttpRequest) -> HttpResponseBase:
    def body() -> Iterator[bytes]:
        threads = set()
        for _ in range(100):
            threads.add(threading.get_ident())
            yield b"x" * 1000
        yield f"\n{len(threads)} thread".encode()

    return StreamingHttpResponse(body(), content_type="text/plain")


def file(request: HttpRequest) -> HttpResponseBase:
    return FileResponse(open(__file__, "rb"), filename="site.py", as_attachment=True)


def error(request: HttpRequest) -> HttpResponse:
    raise ValueError("a bug")


def state(request: HttpRequest) -> HttpResponse:
    return JsonResponse({"closed": len(closed), "pid": os.getpid(), "threads": threading.active_count()})


async def notebooks(scope, receive, send) -> None:  # type: ignore[no-untyped-def]
    host = dict(scope["headers"])[b"host"]
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"notebook at " + host})


NOTEBOOK_APPLICATION = f"{__name__}.notebooks"
urlpatterns = [
    path("login/", login),
    path("files/waiting/", login),
    path("let-in/", csrf_exempt(let_in)),
    path("endless/", endless),
    path("page/", page),
    path("echo/<path:rest>", echo),
    path("held/", held),
    path("deaf/", deaf),
    path("broken/", broken),
    path("export/", export),
    path("file/", file),
    path("error/", error),
    path("state/", state),
]
