"""The web server: pages from threads, held requests from the event loop, and a quick end."""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from portal.server.asgi_server import notebook_hosts
from tests.portal.server import held_site
from tests.portal.server.web_server import WebServer, web_server

SITE = {"DJANGO_SETTINGS_MODULE": "tests.portal.server.held_site", "LOG_LEVEL": "CRITICAL"}


@pytest.fixture(scope="module")
def site() -> Iterator[WebServer]:
    with web_server(**SITE) as server:
        yield server


def open_stream(server: WebServer, path: str = "/held/") -> socket.socket:
    """Returns once the first line of the body has arrived: the request is held."""
    connection = socket.create_connection(("127.0.0.1", server.port), timeout=30)
    connection.sendall(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
    received = b""
    while b"open\n" not in received:
        part = connection.recv(4096)
        assert part, received
        received += part
    return connection


def rest_of(connection: socket.socket) -> bytes:
    received = b""
    while part := connection.recv(4096):
        received += part
    connection.close()
    return received


class TestAnswers:
    def test_page_is_served_by_a_page_thread_with_all_its_cookies(self, site: WebServer) -> None:
        answer = httpx.get(f"{site.url}/page/", params={"name": "贺"})
        assert re.fullmatch(r"page for 贺 in page_\d", answer.text)
        assert answer.headers.get_list("set-cookie") == ["one=1; Path=/", "two=2; Path=/"]
        assert answer.headers["x-request-id"]

    def test_request_line_headers_and_body_arrive_complete(self, site: WebServer) -> None:
        answer = httpx.post(
            f"{site.url}/echo/文件/a%20b",
            content=b"x" * 3_000_000,
            headers=[
                ("Cookie", "a=1"),
                ("Cookie", "b=2"),
                ("X-Two", "1"),
                ("X-Two", "2"),
                ("X_Forwarded_Proto", "https"),
                ("X-Sender", "user:1"),
            ],
        ).json()
        assert (answer["method"], answer["path"], answer["size"]) == ("POST", "/echo/文件/a b", 3_000_000)
        assert answer["headers"]["HTTP_COOKIE"] == "a=1; b=2"
        assert answer["headers"]["HTTP_X_TWO"] == "1,2"
        assert "HTTP_X_FORWARDED_PROTO" not in answer["headers"]

    def test_body_without_a_content_length_arrives_complete(self, site: WebServer) -> None:
        answer = httpx.post(f"{site.url}/echo/x", content=iter([b"a" * 10, b"b" * 20])).json()
        assert answer["size"] == 30

    def test_too_large_body_is_refused_unless_it_is_a_file(self, site: WebServer) -> None:
        known = {"X-Sender": "user:1"}
        for content in (b"x" * 7_000_000, iter([b"x" * 3_500_000] * 2)):
            assert httpx.post(f"{site.url}/echo/form", content=content, headers=known).status_code == 413
        answer = httpx.put(f"{site.url}/echo/files/model.bin", content=b"x" * 7_000_000, headers=known)
        assert answer.json()["size"] == 7_000_000

    def test_an_export_runs_in_one_thread_from_start_to_end(self, site: WebServer) -> None:
        assert httpx.get(f"{site.url}/export/").text == "x" * 100_000 + "\n1 thread"

    def test_a_file_is_streamed(self, site: WebServer) -> None:
        answer = httpx.get(f"{site.url}/file/")
        with open(held_site.__file__, "rb") as file:
            assert answer.content == file.read()
        assert int(answer.headers["content-length"]) == len(answer.content)

    def test_response_to_head_has_no_body(self, site: WebServer) -> None:
        for path in ("/page/", "/file/", "/held/"):
            answer = httpx.head(f"{site.url}{path}")
            assert (answer.status_code, answer.content) == (200, b"")

    def test_error_in_a_view_is_500_and_one_in_a_stream_aborts_it(self, site: WebServer) -> None:
        assert httpx.get(f"{site.url}/error/").status_code == 500
        with pytest.raises(httpx.RemoteProtocolError):
            httpx.get(f"{site.url}/broken/")
        assert httpx.get(f"{site.url}/page/").status_code == 200


class TestNotebookOrigin:
    def test_request_to_a_notebook_host_does_not_reach_the_portal(self, site: WebServer) -> None:
        host = f"w1.localhost:{site.port}"
        assert httpx.get(f"{site.url}/page/", headers={"Host": host}).text == f"notebook at {host}"
        assert httpx.get(f"{site.url}/page/", headers={"Host": f"127.0.0.1:{site.port}"}).text.startswith("page")

    def test_notebooks_cannot_share_the_portals_origin(self) -> None:
        from django.core.exceptions import ImproperlyConfigured

        with pytest.raises(ImproperlyConfigured, match="must not run on the portal's origin"):
            notebook_hosts("http://127.0.0.1:8000", "http://127.0.0.1:8000")

    @pytest.mark.parametrize(
        ("host", "expected"),
        [
            ("01k.notebooks.example.org", True),
            ("01K.Notebooks.Example.org", True),
            ("notebooks.example.org", False),
            ("a.b.notebooks.example.org", False),
            ("portal.example.org", False),
            ("xnotebooks.example.org", False),
        ],
    )
    def test_notebook_host_is_one_label_below_the_notebook_domain(self, host: str, expected: bool) -> None:
        assert notebook_hosts("https://*.notebooks.example.org", "https://portal.example.org")(host) is expected


class TestHeldRequests:
    def test_200_requests_are_held_while_pages_respond(self, site: WebServer) -> None:
        before = httpx.get(f"{site.url}/state/").json()
        with ThreadPoolExecutor(20) as openers:
            streams = list(openers.map(lambda _: open_stream(site), range(200)))
        for _ in range(50):  # if each held a thread, none would be served
            assert httpx.get(f"{site.url}/page/", timeout=60).status_code == 200
        during = httpx.get(f"{site.url}/state/").json()
        assert during["closed"] == before["closed"]
        assert during["threads"] - before["threads"] < 10  # not one for each
        for stream in streams:
            stream.close()
        end = time.monotonic() + 20
        while httpx.get(f"{site.url}/state/").json()["closed"] < before["closed"] + 200:
            assert time.monotonic() < end, "closed streams are still held"
            time.sleep(0.05)

    def test_sigterm_ends_streams_with_their_last_message_within_5_seconds(self) -> None:
        with web_server(**SITE) as server:
            streams = [open_stream(server) for _ in range(20)]
            deaf = open_stream(server, "/deaf/")
            assert server.terminate() < 5
            for stream in streams:
                assert b"goodbye\n" in rest_of(stream)
            assert rest_of(deaf).endswith(b"0\r\n\r\n")  # nevertheless a complete response
