"""The origin of notebooks and services: pass HTTP and WebSockets on to the one server that the reader's cookie opens.
A notebook server shows any output of its user's code, so nothing of the portal may be within its reach:
- it never receives a cookie of the portal or the reader's cookie for it, and cannot set cookies with those names;
- the secret that opens it is added here and never sent to the browser;
- with that secret the server trusts every request, so requests from other origins are refused here.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Iterable
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qs

import httpx
from django.conf import settings
from django.http import HttpRequest
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils import translation

from portal.errors import Problem
from portal.server.asgi_server import Receive, Scope, Send, hold
from portal.server.streams import look
from workloads.models import Kind
from workloads.notebooks import access
from workloads.notebooks.access import FromElsewhere, Holder, NoTicket, Seat, StillStarting, Unanswered
from workloads.notebooks.sockets import pass_socket, watch

COOKIE_LIFE = 12 * 3600  # seconds; the portal's session may end it earlier
HOP_BY_HOP = frozenset(
    b"connection keep-alive proxy-authenticate proxy-authorization proxy-connection te trailer "
    b"transfer-encoding upgrade".split()
)
NOT_PASSED_ON = HOP_BY_HOP | {
    b"host",
    b"cookie",
    b"authorization",
    b"origin",
    b"referer",
    b"forwarded",
    b"proxy",  # many programs read it as the variable HTTP_PROXY
}
NOT_PASSED_BACK = HOP_BY_HOP | {
    b"set-cookie",
    b"server",
    b"service-worker-allowed",
    b"access-control-allow-origin",
    b"x-frame-options",
}
IN_ITS_OWN_FRAMES = [(b"content-security-policy", b"frame-ancestors 'self'"), (b"x-frame-options", b"SAMEORIGIN")]
"""The server's own policy counts too: of several policies the strictest holds."""
FRAMES = frozenset({b"iframe", b"frame", b"embed", b"object", b"fencedframe"})
SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
log = logging.getLogger(__name__)
_clients: dict[asyncio.AbstractEventLoop, httpx.AsyncClient] = {}


def cookie_name() -> str:
    """The cookie's name. Its prefix makes browsers accept the cookie only from this very host over HTTPS."""
    return "__Host-notebook" if settings.NOTEBOOK_URL.startswith("https://") else "notebook"


def portal_cookies() -> set[str]:
    return {
        settings.SESSION_COOKIE_NAME,
        settings.CSRF_COOKIE_NAME,
        "sessionid",
        "csrftoken",
        settings.LANGUAGE_COOKIE_NAME,
        "messages",
        "theme",
        cookie_name(),
    }


async def application(scope: Scope, receive: Receive, send: Send) -> None:
    headers = dict(scope["headers"])
    try:
        if scope["type"] == "http" and scope["path"] == access.ENTER_PATH and b"ticket=" in scope["query_string"]:
            await enter(scope, send)
            return
        cookie = cookies_of(scope).get(cookie_name(), "")
        holder = access.unseal(cookie)
        refuse_other_origins(scope, headers, holder)
        if not scope["path"].startswith(holder.base_path):
            raise NoTicket
        seat = await look(lambda: access.seat_of(cookie), cluster=True)
        if scope["type"] == "websocket":
            await pass_socket(scope, receive, send, seat, upstream_headers(scope, seat), cookie)
        else:
            await pass_request(scope, receive, send, seat, cookie)
    except Problem as problem:
        await refuse(scope, send, problem, headers)


async def enter(scope: Scope, send: Send) -> None:
    """Exchange the ticket for the cookie; by a redirect, so that the address with the ticket stays in no history."""
    ticket = parse_qs(scope["query_string"].decode("latin1")).get("ticket", [""])[0]
    holder = await look(lambda: access.redeem(ticket))
    value = await look(lambda: access.seal(holder))
    secure = "; Secure" if settings.NOTEBOOK_URL.startswith("https://") else ""
    cookie = f"{cookie_name()}={value}; Path=/; HttpOnly; SameSite=Lax; Max-Age={COOKIE_LIFE}{secure}"
    first = holder.base_path + ("lab" if holder.kind == Kind.NOTEBOOK else "")
    await redirect(send, first, [(b"set-cookie", cookie.encode())])


def refuse_other_origins(scope: Scope, headers: dict[bytes, bytes], holder: Holder) -> None:
    """Raise FromElsewhere or NoTicket for requests from other origins. Browsers send the origin of writes and sockets; links
    may come from anywhere."""
    own = access.origin_of(holder.workload)
    if headers.get(b"host", b"").decode("latin1").lower() != own.split("://")[1].lower():
        raise NoTicket
    origin = headers.get(b"origin", b"").decode("latin1")
    unsafe = scope["type"] == "websocket" or scope["method"] not in SAFE
    if origin != own and (origin or unsafe):
        raise FromElsewhere
    site, mode = headers.get(b"sec-fetch-site", b"none"), headers.get(b"sec-fetch-mode", b"")
    framed = headers.get(b"sec-fetch-dest", b"") in FRAMES
    if site not in {b"none", b"same-origin"} and (mode != b"navigate" or framed):
        raise FromElsewhere


async def pass_request(scope: Scope, receive: Receive, send: Send, seat: Seat, cookie: str) -> None:
    url = httpx.URL(scheme="http", host=seat.host, port=seat.port, raw_path=raw_path(scope))
    request = client().build_request(
        scope["method"], url, headers=upstream_headers(scope, seat), content=body_of(scope, receive)
    )
    try:
        answer = await client().send(request, stream=True)
    except httpx.TransportError as error:
        raise (StillStarting if seat.young and isinstance(error, httpx.ConnectError) else Unanswered) from error
    try:
        headers = [(name.lower(), value) for name, value in answer.headers.raw if name.lower() not in NOT_PASSED_BACK]
        headers += [
            (b"set-cookie", cookie.encode("latin1")) for cookie in own_cookies(answer.headers.get_list("set-cookie"))
        ]
        headers.append((b"referrer-policy", b"same-origin"))
        headers += IN_ITS_OWN_FRAMES
        await send({"type": "http.response.start", "status": answer.status_code, "headers": headers})
        await hold(while_seated(answer.aiter_raw(), cookie), receive, send)
    finally:
        await answer.aclose()


async def while_seated(parts: AsyncIterator[bytes], cookie: str) -> AsyncIterator[bytes]:
    """The response's parts; a long response is cut when the reader's right has ended."""
    watching = asyncio.create_task(watch(cookie))
    try:
        while True:
            part = asyncio.ensure_future(anext(parts, None))
            await asyncio.wait({part, watching}, return_when=asyncio.FIRST_COMPLETED)
            if not part.done():
                part.cancel()
                await asyncio.gather(part, return_exceptions=True)
                raise httpx.ReadError("the reader's right has ended")
            if (chunk := part.result()) is None:
                return
            yield chunk
    finally:
        watching.cancel()


def raw_path(scope: Scope) -> bytes:
    path: bytes = scope.get("raw_path") or httpx.URL(path=scope["path"]).raw_path
    return path.split(b"?")[0] + (b"?" + scope["query_string"] if scope["query_string"] else b"")


def upstream_headers(scope: Scope, seat: Seat) -> list[tuple[bytes, bytes]]:
    """The headers that the server behind gets. None of the browser's may look like one of the portal's: WSGI and CGI read
    X_Forwarded_User like X-Forwarded-User, so no name with an underscore is passed on."""
    forwarded = [
        (name, value)
        for name, value in scope["headers"]
        if b"_" not in name and name not in NOT_PASSED_ON and not name.startswith((b"sec-websocket", b"x-forwarded"))
    ]
    others = "; ".join(f"{name}={value}" for name, value in cookies_of(scope).items() if name not in portal_cookies())
    if others:
        forwarded.append((b"cookie", others.encode("latin1")))
    return [*forwarded, *seat.headers]


def cookies_of(scope: Scope) -> dict[str, str]:
    text = "; ".join(value.decode("latin1") for name, value in scope["headers"] if name == b"cookie")
    pairs = (pair.strip().partition("=") for pair in text.split(";"))
    return {name: value for name, sign, value in pairs if sign}


def own_cookies(given: Iterable[str]) -> list[str]:
    """The cookies that the notebook may set: for its own host, and none with the portal's names."""
    own = []
    for text in given:
        try:
            jar: SimpleCookie = SimpleCookie(text)
        except CookieError:
            continue
        if jar and not any(name in portal_cookies() or morsel["domain"] for name, morsel in jar.items()):
            own.append(text)
    return own


def body_of(scope: Scope, receive: Receive) -> AsyncIterator[bytes] | None:
    """The request's body; None if it has none, because an empty stream would be sent as a chunked body."""
    names = {name for name, _ in scope["headers"]}
    if not names & {b"content-length", b"transfer-encoding"}:
        return None

    async def parts() -> AsyncIterator[bytes]:
        more = True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise httpx.ReadError("the reader left")
            yield message.get("body", b"")
            more = message.get("more_body", False)

    return parts()


def client() -> httpx.AsyncClient:
    """The client, one for each event loop. It has no time-out for reading, because a kernel may compute for long, follows no
    redirects, and reads no proxy from the environment."""
    loop = asyncio.get_running_loop()
    if loop not in _clients:
        _clients.clear()
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=50)
        _clients[loop] = httpx.AsyncClient(timeout=httpx.Timeout(None, connect=5), limits=limits, trust_env=False)
    return _clients[loop]


async def redirect(send: Send, path: str, more: Iterable[tuple[bytes, bytes]] = ()) -> None:
    headers = [
        (b"location", path.encode()),
        (b"referrer-policy", b"no-referrer"),
        (b"cache-control", b"no-store"),
        *more,
    ]
    await send({"type": "http.response.start", "status": 303, "headers": headers})
    await send({"type": "http.response.body", "body": b""})


def page_of(scope: Scope, headers: dict[bytes, bytes]) -> str:
    """The URL of the portal's page of the workload with this origin or path; else that of the portal."""
    for text, shape in (
        (headers.get(b"host", b"").decode("latin1").lower(), str(settings.NOTEBOOK_URL).split("://")[1]),
        (scope["path"], "/notebooks/*/"),
    ):
        before, star, after = shape.partition("*")
        match = re.match(re.escape(before) + r"([0-9a-z]{26})" + re.escape(after), text) if star else None
        if match:
            return str(settings.BASE_URL) + reverse("workloads:by_id", args=[match[1]])
    return f"{settings.BASE_URL}/"


async def refuse(scope: Scope, send: Send, problem: Problem, headers: dict[bytes, bytes]) -> None:
    if scope["type"] == "websocket":  # before it was accepted: the server answers 403
        await send({"type": "websocket.close", "code": 1008})
        return
    request = HttpRequest()
    request.META["HTTP_ACCEPT_LANGUAGE"] = headers.get(b"accept-language", b"").decode("latin1")
    with translation.override(translation.get_language_from_request(request)):
        page = render_to_string(
            "workloads/notebook_refused.html",
            {"problem": problem, "page": page_of(scope, headers), "again": isinstance(problem, StillStarting)},
        ).encode()
    answer = [(b"content-type", b"text/html; charset=utf-8"), (b"cache-control", b"no-store")]
    answer.append(
        (b"content-security-policy", b"default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'")
    )
    await send({"type": "http.response.start", "status": problem.status, "headers": answer})
    await send({"type": "http.response.body", "body": page})
