"""No client can keep a web process busy by sending slowly, reading slowly or sending many requests at once."""

from __future__ import annotations

import asyncio
import io
import select
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from itertools import islice
from typing import Any

import httpx
import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from django.urls import reverse

from portal.errors import Busy
from portal.server import intake
from portal.server.asgi_server import FILE_THREADS, PASSWORDS, PASSWORDS_WAITING
from tests import builders as make
from tests.portal.server.test_asgi_server import SITE
from tests.portal.server.web_server import WebServer, web_server


@pytest.fixture(scope="module")
def site() -> Iterator[WebServer]:
    with web_server(**SITE) as server:
        yield server


def send_raw(server: WebServer, text: str) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", server.port), timeout=30)
    connection.sendall(text.replace("\n", "\r\n").encode())
    return connection


def answer_of(connection: socket.socket) -> bytes:
    """At least the head of the response."""
    received = b""
    while b"\r\n\r\n" not in received and (part := connection.recv(4096)):
        received += part
    return received


class TestBodies:
    def test_large_body_of_an_unknown_sender_is_not_read(self, site: WebServer) -> None:
        """The body is never sent here, and the response arrives nevertheless."""
        head = "PUT /echo/files/model.bin HTTP/1.1\nHost: 127.0.0.1\nContent-Length: 400000000\n\n"
        with send_raw(site, head) as connection:
            received = answer_of(connection)
        assert received.startswith(b"HTTP/1.1 200"), received

    def test_body_of_unknown_length_from_an_unknown_sender_is_cut_off(self, site: WebServer) -> None:
        answer = httpx.put(f"{site.url}/echo/files/x", content=iter([b"x" * 40_000] * 3))
        assert answer.status_code == 413
        assert "64.0 KiB" in answer.text

    def test_known_sender_can_send_large_files(self, site: WebServer) -> None:
        answer = httpx.put(f"{site.url}/echo/files/x", content=b"x" * 7_000_000, headers={"X-Sender": "user:1"})
        assert answer.json()["size"] == 7_000_000

    def test_form_with_files_can_be_as_large_as_a_file(self, site: WebServer) -> None:
        """Such as the form for a new workload, whose address does not mention files."""
        known, files = {"X-Sender": "user:1"}, {"files": ("model.bin", b"x" * 7_000_000)}
        answer = httpx.post(f"{site.url}/echo/new/", files=files, headers=known)
        assert answer.json()["size"] > 7_000_000
        assert httpx.post(f"{site.url}/echo/new/", content=b"x" * 7_000_000, headers=known).status_code == 413

    def test_concurrent_large_bodies_of_one_sender_are_limited(self, site: WebServer) -> None:
        head = "PUT /echo/files/x HTTP/1.1\nHost: 127.0.0.1\nX-Sender: user:2\nContent-Length: 200000\n\n"
        stalled = [send_raw(site, head) for _ in range(intake.LARGE_EACH + 1)]
        try:
            refused, _, _ = select.select(stalled, [], [], 15)
            assert [answer_of(connection)[:12] for connection in refused] == [b"HTTP/1.1 429"]
            with send_raw(site, head.replace("user:2", "user:3")) as other:
                other.sendall(b"x" * 200_000)
                assert answer_of(other).startswith(b"HTTP/1.1 200")
        finally:
            for connection in stalled:
                connection.close()

    def test_slow_uploads_of_several_senders_give_way_to_others(self, site: WebServer) -> None:
        head = "PUT /echo/files/x HTTP/1.1\nHost: 127.0.0.1\nX-Sender: user:{}\nContent-Length: 90000000\n\n"
        slow = [send_raw(site, head.format(10 + n % 3)) for n in range(intake.LARGE_ALL)]
        known = {"X-Sender": "user:20"}
        try:
            for connection in slow:
                connection.sendall(b"x" * 20_000)
            end, answer = time.monotonic() + 30, httpx.Response(503)
            # until the slow ones have had their time to begin
            while answer.status_code == 503 and time.monotonic() < end:
                answer = httpx.put(f"{site.url}/echo/files/x", content=b"x" * 7_000_000, headers=known)
            assert answer.json()["size"] == 7_000_000
            gave_way, _, _ = select.select(slow, [], [], 15)
            assert [answer_of(connection)[:12] for connection in gave_way] == [b"HTTP/1.1 408"]
        finally:
            for connection in slow:
                connection.close()

    def test_refusal_before_django_is_a_page_in_a_browser(self, site: WebServer) -> None:
        browser = {"Accept": "text/html,*/*", "Accept-Language": "zh-CN", "X-Sender": "user:1"}
        answer = httpx.post(f"{site.url}/echo/new/", content=b"x" * 7_000_000, headers=browser)
        assert (answer.status_code, answer.headers["Content-Type"]) == (413, "text/html; charset=utf-8")
        assert "6.0 MiB" in answer.text
        assert "返回" in answer.text

    def test_unknown_senders_do_not_block_known_ones_at_the_same_address(self, site: WebServer) -> None:
        head = "POST /echo/x HTTP/1.1\nHost: 127.0.0.1\nContent-Length: 100\n\n"
        stalled = [send_raw(site, head) for _ in range(intake.MOST_BODIES + 1)]
        try:
            refused, _, _ = select.select(stalled, [], [], 15)
            assert [answer_of(connection)[:12] for connection in refused] == [b"HTTP/1.1 429"]
            known = {"X-Sender": "user:1"}
            assert httpx.post(f"{site.url}/echo/x", content=b"x" * 10, headers=known).json()["size"] == 10
            chinese = {"Accept-Language": "zh-CN,zh;q=0.9"}
            refusal = httpx.post(f"{site.url}/echo/x", content=b"x" * 10, headers=chinese)
            assert refusal.status_code == 429
            assert "您" in refusal.text
        finally:
            for connection in stalled:
                connection.close()

    @pytest.mark.parametrize("parts", [[], [b"x" * 10]])
    def test_body_that_stops_arriving_is_given_up(self, monkeypatch: pytest.MonkeyPatch, parts: list[bytes]) -> None:
        monkeypatch.setattr(intake, "START", 0.2)
        coming = iter(parts)

        async def receive() -> Any:
            part = next(coming, None)
            if part is None:
                await asyncio.sleep(60)
            return {"type": "http.request", "body": part, "more_body": True}

        scope = {"headers": [(b"content-length", b"1000")]}
        with pytest.raises(intake.TooSlow):
            asyncio.run(intake.read(scope, receive, io.BytesIO(), 2000))


class TestPasswords:
    @pytest.mark.parametrize("name", ["account_login", "portal:profile", "admin:login", "portal:invite"])
    def test_requests_with_a_password_are_kept_off_the_page_threads(self, name: str) -> None:
        assert PASSWORDS.fullmatch(reverse(name, args=["token"] if name == "portal:invite" else []))

    def test_pages_respond_while_passwords_are_hashed_and_their_queue_is_limited(self) -> None:
        """One address fills half of the queue; a client at another address can still log in."""
        most = PASSWORDS_WAITING // 2
        second_address = httpx.HTTPTransport(local_address="127.0.0.2")
        with (
            web_server(**SITE) as site,
            httpx.Client(transport=second_address, timeout=60) as elsewhere,
            ThreadPoolExecutor(most + 5) as threads,
        ):
            tries = [threads.submit(httpx.post, f"{site.url}/login/", timeout=60) for _ in range(most + 4)]
            refused = [one.result() for one in islice(as_completed(tries, timeout=30), 4)]
            assert {(answer.status_code, answer.headers["retry-after"]) for answer in refused} == {(503, "3")}
            assert httpx.get(f"{site.url}/page/").status_code == 200
            other = threads.submit(elsewhere.post, f"{site.url}/login/")
            with pytest.raises(TimeoutError):  # it waits, while the first address is refused
                other.result(timeout=0.5)
            httpx.post(f"{site.url}/let-in/")
            answers = [one.result() for one in tries]
            assert {answer.text for answer in answers if answer.status_code == 200} == {"password_0"}
            assert len(answers) == most + 4
            assert other.result().text == "password_0"


class TestFiles:
    def test_one_sender_gets_at_most_half_of_the_file_threads(self) -> None:
        most = FILE_THREADS // 2
        with web_server(**SITE) as site, ThreadPoolExecutor(most + 2) as threads:

            def ask(number: int, sender: str = "user:1") -> httpx.Response:
                headers = {"X-Sender": sender, "Cookie": f"any={number}"}
                return httpx.post(f"{site.url}/files/waiting/", headers=headers, timeout=60)

            tries = [threads.submit(ask, number) for number in range(most + 1)]
            assert next(as_completed(tries, timeout=30)).result().status_code == 429
            other = threads.submit(ask, 0, "user:2")
            httpx.post(f"{site.url}/let-in/")
            assert other.result().text.startswith("files_")
            assert sorted(one.result().status_code for one in tries) == [200] * most + [429]


class TestReaders:
    def test_slow_downloads_of_one_client_are_limited_and_do_not_block_pages(self, site: WebServer) -> None:
        head = "GET /endless/ HTTP/1.1\nHost: 127.0.0.1\n\n"
        slow = [send_raw(site, head) for _ in range(intake.DOWNLOADS_EACH + 1)]
        try:
            codes = sorted(answer_of(connection)[9:12] for connection in slow)
            assert codes == [b"200"] * intake.DOWNLOADS_EACH + [b"429"]
            assert httpx.get(f"{site.url}/page/").status_code == 200
        finally:
            for connection in slow:
                connection.close()

    def test_many_browsers_at_one_address_can_load_static_files_at_once(self, site: WebServer) -> None:
        """Such as the browsers of a whole office that load the same scripts and styles."""
        style = f"{site.url}/static/vendor/tabler.min.css"
        with ThreadPoolExecutor(40) as browsers:
            answers = list(browsers.map(lambda _: httpx.get(style, timeout=60), range(120)))
        assert {answer.status_code for answer in answers} == {200}
        assert {len(answer.content) for answer in answers} == {int(answers[0].headers["content-length"])}

    def test_slow_readers_of_static_files_do_not_block_others(self, site: WebServer) -> None:
        slow = []
        for _ in range(2 * intake.DOWNLOADS_ALL):
            connection = socket.socket()
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.connect(("127.0.0.1", site.port))
            connection.sendall(b"GET /static/vendor/tabler.min.css HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            slow.append(connection)
        try:
            assert {connection.recv(12) for connection in slow} == {b"HTTP/1.1 200"}
            assert httpx.get(f"{site.url}/static/vendor/tabler.min.css").status_code == 200
        finally:
            for connection in slow:
                connection.close()

    def test_thousands_of_idle_connections_leave_room_for_requests(self, site: WebServer) -> None:
        idle = [socket.create_connection(("127.0.0.1", site.port), timeout=30) for _ in range(2500)]
        try:
            assert httpx.get(f"{site.url}/page/", timeout=30).status_code == 200
            closed, _, _ = select.select(idle[:500], [], [], 60)  # select is limited to some 1,000
            assert closed
        finally:
            for connection in idle:
                connection.close()


def test_allowance_is_given_back_and_senders_without_requests_are_forgotten() -> None:
    allowance = intake.Allowance(2, 3)
    with allowance.one("a"), allowance.one("a"):
        with pytest.raises(intake.TooMany), allowance.one("a"):
            pass
        with allowance.one("b"), pytest.raises(Busy), allowance.one("c"):
            pass
    with allowance.one("a"):
        pass
    assert not allowance.held


def test_fast_or_just_started_uploads_keep_their_place(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    places = intake.LargeBodies(2, 3)
    with places.one("a") as first, places.one("a") as second, places.one("b") as third:
        with pytest.raises(intake.Busy), places.one("c"):
            pass  # all have just begun
        now[0] = 10.0
        first.size, second.size, third.size = 10 * intake.HURRIED, 9, 1
        with pytest.raises(intake.TooMany), places.one("a"):
            pass
        with places.one("c"):
            assert [each.gave_way for each in (first, second, third)] == [False, True, False]
            with places.one("d"):
                assert third.gave_way
                with pytest.raises(intake.Busy), places.one("e"):
                    pass
    assert places.here == []


@pytest.mark.django_db
@pytest.mark.parametrize(("language", "words"), [("en", "At most 100 files"), ("zh-hans", "最多上传 100 个文件")])
def test_error_for_a_form_with_too_many_files_says_how_many_are_allowed(
    client: Client, language: str, words: str
) -> None:
    client.force_login(make.user("ann"), backend="django.contrib.auth.backends.ModelBackend")
    files = {"files": [SimpleUploadedFile(f"{n}.txt", b"x") for n in range(101)]}
    answer = client.post("/profile/", files, headers={"Accept-Language": language})
    assert answer.status_code == 422
    assert words in answer.content.decode()
