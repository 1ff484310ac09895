"""Notebooks: who can open one, and what passes through the proxy, with real servers on both sides."""

from __future__ import annotations

import asyncio
import datetime as dt
import json
import socket
import threading
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from django.contrib.auth import HASH_SESSION_KEY, SESSION_KEY
from django.contrib.sessions.backends.db import SessionStore
from django.db import OperationalError
from django.test import Client
from django.urls import reverse
from django.utils import timezone
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from portal.access import Actor, Forbidden, NotVisible
from portal.accounts import sessions
from portal.models import Membership, Role, User
from portal.server import serve
from portal.server.asgi_server import Hybrid
from tests import builders as make
from tests.portal.server.web_server import free_port
from tests.workloads.conftest import Bed
from workloads import actions
from workloads.embedded.driver import EmbeddedCluster
from workloads.models import Attempt, Workload
from workloads.notebooks import access, sockets
from workloads.notebooks.access import NoTicket, NotRunning, NotYours
from workloads.notebooks.proxy import application, client, own_cookies
from workloads.requests.request import WorkloadRequest

# Stands for a notebook server: responds to GET with the request's headers, echoes WebSocket messages.
ECHO = """
import json, os, time
from websockets.datastructures import Headers
from websockets.http11 import Response
from websockets.sync.server import serve
def page(connection, request):
    if "Upgrade" in request.headers:
        return None
    if "slow" in request.path:
        time.sleep(3)
    headers = Headers()
    body = json.dumps({"path": request.path, "headers": list(request.headers.raw_items())}).encode()
    for name, value in (("Content-Length", str(len(body))), ("Set-Cookie", "mine=1; Path=/"),
                        ("Set-Cookie", "sessionid=stolen"), ("Set-Cookie", "wide=1; Domain=localhost"),
                        ("Service-Worker-Allowed", "/"), ("Access-Control-Allow-Origin", "*")):
        headers[name] = value
    return Response(200, "OK", headers, body)
def echo(socket):
    socket.send(json.dumps(list(socket.request.headers.raw_items())))
    for part in socket:
        if part == "leave":
            socket.close(4001)
        socket.send(part)
time.sleep(float(os.environ.get("LATE", "0")))
serve(echo, os.environ["PORTAL_ADDRESS"], int(os.environ["PORTAL_PORT"]), process_request=page).serve_forever()
"""

# Responds to "drip" with a body that never ends.
DRIPPING = """
import os, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        while "drip" in self.path:
            self.wfile.write(b"more")
            self.wfile.flush()
            time.sleep(0.1)
ThreadingHTTPServer((os.environ["PORTAL_ADDRESS"], int(os.environ["PORTAL_PORT"])), Handler).serve_forever()
"""


@dataclass
class Site:
    """The web server in a thread of the test, and a browser that needs no name server."""

    bed: Bed
    port: int

    def submit(self, program: str = ECHO, **fields: Any) -> Workload:
        """Returns the notebook once it runs."""
        bed = self.bed
        request = WorkloadRequest(
            kind="notebook", name="notebook", pool=bed.pool, image=bed.image, units_per_pod=1,
            command=bed.program(program) if program else (), **fields,
        )  # fmt: skip
        workload = actions.submit(actor=Actor(bed.alice), department=bed.vision, request=request)
        bed.until(lambda: bed.state(workload) == "running")
        return workload

    def session(self, user: User) -> str:
        store = SessionStore()
        store[SESSION_KEY], store[HASH_SESSION_KEY] = str(user.pk), user.get_session_auth_hash()
        store.create()
        return str(store.session_key)

    def open(self, workload: Workload, user: User | None = None, session: str = "") -> Reader:
        """Opens the notebook as the button does, up to setting the cookie."""
        reader_user = user or self.bed.alice
        address = access.issue_ticket(Actor(reader_user), session or self.session(reader_user), workload.public_id)
        reader = Reader(self, workload.public_id)
        response = reader.get(address.split(f":{self.port}")[1])
        assert response.status_code == 303
        assert response.headers["location"] == f"/notebooks/{workload.public_id}/lab"
        reader.cookie = response.headers["set-cookie"].split(";")[0]
        return reader


@dataclass
class Reader:
    site: Site
    workload: str
    cookie: str = ""

    @property
    def host(self) -> str:
        return access.origin_of(self.workload).removeprefix("http://")

    @property
    def origin(self) -> str:
        return f"http://{self.host}"

    def path(self, path: str) -> str:
        return path if path.startswith("/") else f"/notebooks/{self.workload}/{path}"

    def request(self, method: str, path: str, headers: dict[str, str] | None = None, **more: Any) -> httpx.Response:
        url = f"http://127.0.0.1:{self.site.port}{self.path(path)}"
        cookies = f"{self.cookie}; sessionid=of-the-portal; csrftoken=too; own=kept"
        return httpx.request(
            method, url, headers={"Host": self.host, "Cookie": cookies, **(headers or {})}, timeout=30, **more
        )

    def get(self, path: str, **headers: str) -> httpx.Response:
        return self.request("GET", path, headers)

    def ready(self) -> Reader:
        end = time.monotonic() + 60
        while (response := self.get("api")).status_code in {502, 503}:
            assert time.monotonic() < end, response.text
            time.sleep(0.1)
        assert response.status_code == 200, response.text
        return self

    def socket(self, path: str, origin: str | None = None, **more: Any) -> ClientConnection:
        return connect(
            f"ws://{self.host}{self.path(path)}",
            sock=socket.create_connection(("127.0.0.1", self.site.port)),
            origin=origin or self.origin,  # type: ignore[arg-type]
            additional_headers={"Cookie": f"{self.cookie}; sessionid=of-the-portal; own=kept"},
            **more,
        )


@pytest.fixture
def site(bed: Bed, settings: Any, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[Site]:
    host = getattr(request, "param", "*.localhost")
    port = free_port()
    settings.BIND_HOST, settings.PORT = "127.0.0.1", port
    settings.BASE_URL, settings.NOTEBOOK_URL = f"http://127.0.0.1:{port}", f"http://{host}:{port}"
    monkeypatch.setattr(access, "RECHECK", 0.0)
    loop = asyncio.new_event_loop()
    server: Any = None

    async def run() -> None:
        nonlocal server
        server = serve.in_process(Hybrid(application, threads=2), port)
        await server.serve()
        await client().aclose()

    thread = threading.Thread(target=loop.run_until_complete, args=(run(),))
    thread.start()
    while server is None:
        time.sleep(0.01)
    yield Site(bed, port)
    loop.call_soon_threadsafe(server.stop)
    thread.join(20)
    assert not thread.is_alive()
    loop.close()


class TestStartup:
    def test_page_reloads_itself_while_the_server_can_still_start(
        self, site: Site, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A pod has its address before its program listens there."""
        reader = site.open(site.submit())
        unused_port = free_port()
        monkeypatch.setattr(EmbeddedCluster, "endpoint", lambda self, ref: ("127.0.0.1", unused_port))
        found = []
        for age in (0, 3600):
            Attempt.objects.update(started_at=timezone.now() - dt.timedelta(seconds=age))
            response = reader.get("lab", accept="text/html")
            found.append((response.status_code, 'http-equiv="refresh"' in response.text))
        assert found == [(503, True), (502, False)]


class TestAccess:
    def test_author_opens_the_notebook_with_a_single_use_ticket(self, site: Site) -> None:
        notebook = site.submit()
        address = access.issue_ticket(Actor(site.bed.alice), site.session(site.bed.alice), notebook.public_id)
        assert address.startswith(f"http://{notebook.public_id}.localhost:{site.port}/enter?ticket=")
        reader = Reader(site, notebook.public_id)
        first, second = (reader.get(address.split(f":{site.port}")[1]) for _ in range(2))
        assert (first.status_code, second.status_code) == (303, 403)
        assert "HttpOnly; SameSite=Lax" in first.headers["set-cookie"]
        assert "Domain" not in first.headers["set-cookie"]
        assert first.headers["referrer-policy"] == "no-referrer"
        assert "set-cookie" not in second.headers

    def test_others_can_open_it_only_if_shared_and_only_if_they_can_submit(self, site: Site) -> None:
        notebook = site.submit()
        colleague, viewer = make.member(site.bed.vision), make.member(site.bed.vision, Role.VIEWER)
        for user, error in ((site.bed.bob, NotVisible), (colleague, NotYours), (viewer, Forbidden)):
            with pytest.raises(error):
                access.issue_ticket(Actor(user), "s", notebook.public_id)
        Workload.objects.update(shared=True)
        assert site.open(notebook, colleague).ready()
        for user, error in ((site.bed.bob, NotVisible), (viewer, Forbidden)):
            with pytest.raises(error):
                access.issue_ticket(Actor(user), "s", notebook.public_id)

    def test_requests_without_the_notebooks_own_cookie_are_refused(self, site: Site) -> None:
        notebook = site.submit()
        reader = site.open(notebook).ready()
        cookie = reader.cookie
        for wrong in ("", "notebook=", "notebook=invented", cookie[:-4] + "abcd"):
            reader.cookie = wrong
            assert reader.get("api").status_code == 403
        reader.cookie = cookie
        assert reader.get("/notebooks/another/api").status_code == 403
        assert reader.get("/").status_code == 403
        assert reader.get("api", Host=f"other.localhost:{site.port}").status_code == 403

    def test_cookie_becomes_invalid_with_membership_session_sharing_and_attempt(self, site: Site) -> None:
        notebook = site.submit()
        Workload.objects.update(shared=True)
        colleague = make.member(site.bed.vision)
        session = site.session(site.bed.alice)
        author, guest = site.open(notebook, session=session).ready(), site.open(notebook, colleague).ready()
        Workload.objects.update(shared=False)
        assert (guest.get("api").status_code, author.get("api").status_code) == (403, 200)
        Membership.objects.filter(user=site.bed.alice).delete()
        assert author.get("api").status_code == 404
        Membership.objects.create(user=site.bed.alice, department=site.bed.vision, role=Role.MEMBER)
        assert author.get("api").status_code == 200
        SessionStore(session).delete()  # signed out of the portal
        assert author.get("api").status_code == 403
        again = site.open(notebook).ready()
        actions.cancel(actor=Actor(site.bed.alice), workload=notebook)
        site.bed.until(lambda: site.bed.state(notebook) == "cancelled")
        response = again.get("api")
        assert response.status_code == 409
        assert "is not running" in response.text
        with pytest.raises(NotRunning):
            access.issue_ticket(Actor(site.bed.alice), "s", notebook.public_id)

    @pytest.mark.parametrize("end", ["password", "everywhere", "deactivated"])
    def test_cookie_and_socket_end_on_password_change_logout_everywhere_or_deactivation(
        self, site: Site, end: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(sockets, "RECHECK", 0.1)
        notebook = site.submit()
        reader, alice = site.open(notebook).ready(), User.objects.get(pk=site.bed.alice.pk)
        with reader.socket("api/kernels") as channel:
            channel.recv()
            if end == "password":
                alice.set_password("another one of hers")
                alice.save()
            elif end == "everywhere":
                sessions.end_all(alice)
            else:
                User.objects.filter(pk=alice.pk).update(is_active=False)
            assert reader.get("api").status_code == 403
            with pytest.raises(ConnectionClosed) as closed:
                channel.recv(timeout=30)
            assert closed.value.rcvd is not None
            assert closed.value.rcvd.code == sockets.NOT_ALLOWED

    def test_open_socket_survives_a_database_outage(self, site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sockets, "RECHECK", 0.1)
        reader = site.open(site.submit()).ready()
        failed, original = threading.Event(), access.seat_of

        def failing_once(cookie: str) -> access.Seat:
            if failed.is_set():
                return original(cookie)
            failed.set()
            raise OperationalError("the database system is starting up")

        with reader.socket("api/kernels") as channel:
            channel.recv()
            monkeypatch.setattr(access, "seat_of", failing_once)
            assert failed.wait(30)
            channel.send("still here")
            assert channel.recv(timeout=30)
            sessions.end_all(site.bed.alice)
            with pytest.raises(ConnectionClosed) as closed:
                channel.recv(timeout=30)
            assert closed.value.rcvd is not None
            assert closed.value.rcvd.code == sockets.NOT_ALLOWED

    def test_streaming_response_is_cut_off_when_the_session_ends(
        self, site: Site, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(sockets, "RECHECK", 0.1)
        notebook = site.submit(DRIPPING)
        reader = site.open(notebook).ready()
        cookies = {"Host": reader.host, "Cookie": reader.cookie}
        url = f"http://127.0.0.1:{site.port}{reader.path('drip')}"
        with httpx.stream("GET", url, headers=cookies, timeout=30) as response:
            parts = response.iter_raw()
            assert next(parts)
            sessions.end_all(site.bed.alice)
            with pytest.raises(httpx.RemoteProtocolError):
                for _part in parts:
                    pass

    def test_other_sites_cannot_embed_it_in_a_frame(self, site: Site) -> None:
        """A page of the same site would send the reader's cookie and could hijack their clicks."""
        reader = site.open(site.submit()).ready()
        response = reader.get("lab")
        assert response.headers["X-Frame-Options"] == "SAMEORIGIN"
        assert "frame-ancestors 'self'" in response.headers["Content-Security-Policy"]
        framed = {"Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"}
        found = {
            where: reader.request("GET", "lab", {**framed, "Sec-Fetch-Site": where}).status_code
            for where in ("same-origin", "same-site", "cross-site")
        }
        assert found == {"same-origin": 200, "same-site": 403, "cross-site": 403}
        linked = {"Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document", "Sec-Fetch-Site": "same-site"}
        assert reader.request("GET", "lab", linked).status_code == 200
        reader.cookie = ""
        assert "frame-ancestors 'none'" in reader.get("lab").headers["Content-Security-Policy"]

    def test_open_button_redirects_to_the_notebook_with_a_ticket(self, site: Site) -> None:
        notebook = site.submit()
        address = reverse("workloads:notebook", args=["vision", notebook.public_id])
        browser = Client()
        browser.force_login(site.bed.alice)
        assert browser.get(address).status_code == 405  # a link must not open it
        response = browser.post(address)
        assert response.status_code == 303
        assert response["Location"].startswith(f"http://{notebook.public_id}.localhost:{site.port}/enter?ticket=")
        other = reverse("workloads:notebook", args=["nlp", notebook.public_id])
        assert browser.post(other).status_code == 404
        browser.force_login(site.bed.bob)
        assert browser.post(address).status_code == 404
        browser.logout()
        assert browser.post(address)["Location"].startswith("/login/")

    def test_ticket_redeemed_concurrently_works_only_once(self, site: Site) -> None:
        from concurrent.futures import ThreadPoolExecutor

        notebook = site.submit()
        address = access.issue_ticket(Actor(site.bed.alice), "s", notebook.public_id)

        def redeem(_: int) -> bool:
            try:
                return bool(access.redeem(address.split("ticket=")[1]))
            except NoTicket:
                return False

        with ThreadPoolExecutor(8) as pool:
            assert sum(pool.map(redeem, range(16))) == 1


class TestProxying:
    def test_notebook_server_gets_its_token_but_no_portal_cookie(self, site: Site) -> None:
        reader = site.open(site.submit()).ready()
        response = reader.get(
            "files/a%20b?x=%2F&y", Authorization="token guessed", Referer="http://127.0.0.1/d/vision/"
        )
        received = response.json()
        assert received["path"] == f"/notebooks/{reader.workload}/files/a%20b?x=%2F&y"
        headers = {name.lower(): value for name, value in received["headers"]}
        assert headers["cookie"] == "own=kept"
        assert headers["authorization"].startswith("token ")
        assert "guessed" not in headers["authorization"]
        assert not {"referer", "origin"} & set(headers)
        assert len(headers) == len(received["headers"])

    def test_notebook_server_cannot_set_portal_cookies_or_cookies_for_other_hosts(self, site: Site) -> None:
        response = site.open(site.submit()).ready().get("api")
        assert response.headers.get_list("set-cookie") == ["mine=1; Path=/"]
        assert not {"service-worker-allowed", "access-control-allow-origin"} & set(response.headers)
        assert own_cookies(["messages=x", "a=1", "b=2; Domain=example.org", "notebook=x"]) == ["a=1"]

    def test_writes_and_sockets_from_other_origins_are_refused(self, site: Site) -> None:
        reader = site.open(site.submit()).ready()
        for origin in ("http://127.0.0.1", f"http://other.localhost:{site.port}", "null"):
            assert reader.request("POST", "api", {"Origin": origin}).status_code == 403
            assert reader.get("api", Origin=origin).status_code == 403
            with pytest.raises(InvalidStatus) as refusal:
                reader.socket("echo", origin=origin)
            assert refusal.value.response.status_code == 403
        assert reader.request("DELETE", "api").status_code == 403  # a browser would have sent its origin
        embedded = {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "no-cors"}
        assert reader.request("GET", "api", embedded).status_code == 403
        assert (
            reader.request("GET", "api", {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}).status_code
            == 200
        )

    def test_socket_carries_messages_both_ways_and_passes_on_its_close_code(self, site: Site) -> None:
        reader = site.open(site.submit()).ready()
        with reader.socket("echo") as socket:
            headers = {name.lower(): value for name, value in json.loads(socket.recv())}
            assert headers["cookie"] == "own=kept"
            assert headers["authorization"].startswith("token ")
            assert "origin" not in headers
            for part in ("text 文", b"\x00\xff" * 100_000):
                socket.send(part)
                assert socket.recv() == part
            socket.send("leave")
            with pytest.raises(ConnectionClosed) as closed:
                socket.recv()
            assert closed.value.rcvd is not None
            assert closed.value.rcvd.code == 4001

    def test_open_socket_is_closed_when_the_membership_ends(self, site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sockets, "RECHECK", 0.1)
        reader = site.open(site.submit()).ready()
        with reader.socket("echo") as socket:
            socket.recv()
            Membership.objects.filter(user=site.bed.alice).delete()
            with pytest.raises(ConnectionClosed) as closed:
                socket.recv(timeout=10)
            assert closed.value.rcvd is not None
            assert closed.value.rcvd.code == 4403

    @pytest.mark.parametrize("site", ["localhost"], indirect=True)
    def test_with_one_host_for_all_notebooks_only_the_last_opened_is_reachable(self, site: Site) -> None:
        first, second = site.submit(), site.submit()
        reader, later = site.open(first).ready(), site.open(second).ready()
        assert reader.host == later.host == f"localhost:{site.port}"
        reader.cookie = later.cookie  # the browser has one for this host
        assert (later.get("api").status_code, reader.get("api").status_code) == (200, 403)

    def test_page_says_starting_and_reloads_until_the_server_listens(self, site: Site) -> None:
        reader = site.open(site.submit(env={"LATE": "60"}))
        response = reader.get("lab", **{"Accept-Language": "en"})
        assert response.status_code == 503
        assert "is starting" in response.text
        assert 'http-equiv="refresh"' in response.text


class TestJupyter:
    def test_notebook_cell_runs_through_the_proxy(self, site: Site) -> None:
        notebook = site.submit(program="")
        reader = site.open(notebook).ready()
        assert "JupyterLab" in reader.get("lab").text
        assert reader.get("api/kernels").json() == []
        kernel = reader.request("POST", "api/kernels", {"Origin": reader.origin}, json={"name": "python3"}).json()
        code = "import os; print(6 * 7, os.environ['CUDA_VISIBLE_DEVICES'], os.path.basename(os.getcwd()))"
        assert run_cell(reader, kernel["id"], code) == f"42 0 {notebook.volume}\n"
        assert [each["id"] for each in reader.get("api/kernels").json()] == [kernel["id"]]


def run_cell(reader: Reader, kernel: str, code: str) -> str:
    """Runs the code through Jupyter's kernel protocol and returns what it printed."""
    session = uuid.uuid4().hex
    header = {
        "msg_id": uuid.uuid4().hex,
        "msg_type": "execute_request",
        "session": session,
        "username": "",
        "version": "5.3",
    }
    content = {"code": code, "silent": False, "store_history": False, "user_expressions": {}, "allow_stdin": False}
    printed, done = "", False
    with reader.socket(f"api/kernels/{kernel}/channels?session_id={session}") as channels:
        message = {"header": header, "parent_header": {}, "metadata": {}, "content": content, "channel": "shell"}
        channels.send(json.dumps(message))
        while not done:
            answer = json.loads(channels.recv(timeout=60))
            if answer["parent_header"].get("msg_id") != header["msg_id"]:
                continue
            printed += answer["content"].get("text", "") if answer["msg_type"] == "stream" else ""
            assert answer["msg_type"] != "error", answer
            done = answer["msg_type"] == "status" and answer["content"]["execution_state"] == "idle"
    return printed
