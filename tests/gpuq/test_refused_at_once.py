"""Calls that can never succeed end at once, with code 2 and one sentence that does not contain the token."""

from __future__ import annotations

import json
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.gpuq.front import TOKEN, Front, front, gpuq
from tests.servers import free_port

SECRET = TOKEN.rpartition("_")[2]


@pytest.fixture
def portal() -> Iterator[Front]:
    with front() as server:
        yield server


def refused(ran: Any, *expected: str) -> None:
    assert ran.code == 2, ran
    assert "Traceback" not in ran.err
    assert ran.seconds < 30, "it tried again"
    assert len(ran.err.strip().splitlines()) == 1, ran.err
    assert SECRET not in ran.err + ran.out
    assert [word for word in expected if word not in ran.err] == [], ran.err


@pytest.mark.parametrize(
    "url",
    [
        "gpu.example.org", "ftp://gpu.example.org", "https://", "http:///path", "https://gpu.example.org:port",
        "https://gpu.example.org:99999", "https://[::1", "not an IP address", "https://gpu example.org", "file:///etc/passwd",
        "https://gpu.example.org/?a=b", "https://gpu.example.org/#a", "https://me:secret@gpu.example.org", "//gpu.example.org",
        "https://gpu\x1b[2J.example.org", "localhost:8000", "https://gpu.example.org\nHost: b", TOKEN, f"https://{TOKEN}",
    ],
)  # fmt: skip
def test_invalid_address_is_refused(url: str) -> None:
    ran = gpuq("list", GPUQ_URL=url)
    refused(ran, "GPUQ_URL")
    assert "\x1b" not in ran.err


@pytest.mark.parametrize("patience", ["soon", "nan", "inf", "-1", "1e400", "5 minutes", "0x10", "٣", "1d"])
def test_invalid_patience_is_refused(portal: Front, patience: str) -> None:
    refused(gpuq("list", GPUQ_URL=portal.url, GPUQ_PATIENCE=patience), "GPUQ_PATIENCE")
    assert portal.requests == []


@pytest.mark.parametrize(
    "token",
    [f"{TOKEN} {TOKEN}", f"{TOKEN}\r\nX-Other: 1", f"{TOKEN}é", "ghp_0123456789", f"gqp_{SECRET}", "\x1b[31m", "gqp__"],
)
def test_invalid_token_is_refused_and_not_sent(portal: Front, token: str) -> None:
    ran = gpuq("list", GPUQ_URL=portal.url, GPUQ_TOKEN=token)
    refused(ran, "GPUQ_TOKEN")
    assert token.strip() not in ran.err
    assert portal.requests == []


@pytest.mark.parametrize(
    "given", [f" {TOKEN}\n", f"{TOKEN}\r\n", f'"{TOKEN}"', f"Bearer {TOKEN}", f"Authorization: Bearer {TOKEN}\n"]
)
def test_token_is_stripped_of_surrounding_text(portal: Front, given: str) -> None:
    portal.body = b'{"results": [], "next": null}'
    ran = gpuq("list", GPUQ_URL=f"  {portal.url}/api/v1/ \n", GPUQ_TOKEN=given, GPUQ_PATIENCE=" 5m ")
    assert (ran.code, portal.tokens) == (0, [f"Bearer {TOKEN}"]), ran
    assert portal.requests[0].startswith("GET /api/v1/workloads/?")


@pytest.mark.parametrize(
    ("status", "headers", "body"),
    [
        (401, {"Content-Type": "application/problem+json"}, b'{"detail": "This token is not valid here."}'),
        (403, {}, b"{}"),
        (404, {"Content-Type": "text/html"}, b"<h1>Not found</h1>"),
        (405, {}, b""),
        (418, {"Content-Type": "application/problem+json"}, b"{not json"),
        (500, {}, b""),
        (200, {"Content-Type": "text/html"}, b"<title>Log in</title>"),
        (200, {}, b"[]"),
        (200, {}, b""),
        (301, {"Location": "https://gpu.example.org/api/v1/workloads/"}, b""),
        (307, {"Location": f"/login/?{TOKEN}"}, b""),
    ],
)
@pytest.mark.parametrize("words", [("list",), ("stop", "a", "b"), ("logs", "a")])
def test_permanent_error_response_is_not_retried(
    portal: Front, words: tuple[str, ...], status: int, headers: dict[str, str], body: bytes
) -> None:
    json_only = status == 200 and "Content-Type" not in headers
    if json_only and words[0] in {"stop", "logs"}:
        pytest.skip("these commands accept any body")
    portal.status, portal.headers, portal.body = status, headers, body
    ran = gpuq(*words, GPUQ_URL=portal.url)
    refused(ran)
    assert len(portal.requests) == 1


def test_token_is_never_sent_to_another_server_named_in_a_response(portal: Front) -> None:
    with front() as other:
        portal.body = json.dumps(
            {"results": [ROW], "next": f"{other.url}/api/v1/workloads/?cursor=abc&limit=9"}
        ).encode()
        assert gpuq("list", "--most", "2", GPUQ_URL=portal.url).code == 0
        assert other.requests == []
    assert "cursor=abc" in portal.requests[1]


def test_unknown_host_is_reported() -> None:
    refused(gpuq("list", GPUQ_URL="https://gpu.portal.invalid"), "gpu.portal.invalid")


def test_missing_tls_and_untrusted_certificate_are_reported(portal: Front, tmp_path: Path) -> None:
    refused(gpuq("list", GPUQ_URL=portal.url.replace("http:", "https:")), "does not support TLS")
    key, certificate = tmp_path / "key", tmp_path / "certificate"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=localhost",
         "-keyout", key, "-out", certificate], check=True, capture_output=True,
    )  # fmt: skip
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(0.2)
        ended = threading.Event()

        def serve() -> None:
            while not ended.is_set():
                try:
                    connection, _address = listening.accept()
                    with context.wrap_socket(connection, server_side=True):
                        pass
                except OSError:
                    continue

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            port = listening.getsockname()[1]
            refused(gpuq("list", GPUQ_URL=f"https://localhost:{port}"), "certificate of localhost", "SSL_CERT_FILE")
        finally:
            ended.set()
            thread.join()


def test_unavailable_portal_is_retried_until_the_patience_ends(portal: Front) -> None:
    portal.status, portal.headers = 503, {"Retry-After": "Wed, 21 Oct 2026 07:28:00 GMT"}
    ran = gpuq("list", GPUQ_URL=portal.url, GPUQ_PATIENCE="2s")
    assert (ran.code, len(portal.requests) > 1) == (125, True), ran
    ran = gpuq("list", GPUQ_URL=f"http://127.0.0.1:{free_port()}", GPUQ_PATIENCE="1")
    assert ran.code == 125


@pytest.mark.parametrize("wrong", [{"HTTPS_PROXY": "nonsense://x"}, {"ALL_PROXY": "http://["}])
def test_invalid_proxy_is_refused(wrong: dict[str, str]) -> None:
    refused(gpuq("list", GPUQ_URL="https://gpu.example.org", **wrong))


def test_missing_or_unwritable_file_is_reported(portal: Front, tmp_path: Path) -> None:
    refused(gpuq("upload", "a", str(tmp_path / "none"), GPUQ_URL=portal.url), "none")
    portal.headers = {"Content-Type": "application/octet-stream"}
    refused(gpuq("download", "a", "b", str(tmp_path / "no" / "folder"), GPUQ_URL=portal.url), "No such file")


NASTY = "a\x1b]0;owned\x07\x9b31m\u202eb\n\r\ud800c"
ROW = {
    "id": "01", "name": NASTY, "state": "running", "units": 1, "unit": "card", "pool": NASTY, "author": NASTY,
    "state_since": "2026-01-01T00:00:00", "verdict": {"title": NASTY, "lines": [NASTY], "advice": []}, "attempts": [],
}  # fmt: skip
POOL = {"id": "p", "name": NASTY, "unit": "card", "present": 1, "free": 1, "largest": 1, "queue_len": 0}
FILE = {"size": 1, "changed": "2026-01-01T00:00:00", "path": NASTY}


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (("list",), {"results": [ROW], "next": None}),
        (("list", "--json"), {"results": [ROW], "next": None}),
        (("show", "01"), ROW),
        (("show", "01", "--json"), ROW),
        (("pools",), {"results": [POOL], "next": None}),
        (("files", "01"), {"results": [FILE], "next": None}),
        (("rerun", "01", "--json"), ROW),
        (("verdict", "--preset", "p"), {"headline": "now", "title": NASTY, "lines": [NASTY], "alternatives": [{"text": NASTY}],
                                        "advice": [NASTY], "contract": NASTY}),
        (("submit", "--preset", "p", "--json"), ROW),
    ],
)  # fmt: skip
@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_control_characters_in_names_are_not_printed(
    portal: Front, words: tuple[str, ...], answer: Any, encoding: str
) -> None:
    portal.body = json.dumps(answer).encode()
    ran = gpuq(*words, GPUQ_URL=portal.url, PYTHONIOENCODING=encoding)
    assert ran.code == 0, ran
    shown = ran.out.replace("\n", "")
    assert shown.isprintable(), ran.out
    assert "owned" in shown
    if "--json" in words:
        assert "owned" in json.dumps(json.loads(ran.out))


def test_error_message_is_printed_without_control_characters_and_token(portal: Front) -> None:
    portal.status, portal.headers = 422, {"Content-Type": "application/problem+json"}
    portal.body = json.dumps({"detail": f"no {NASTY} of {TOKEN}"}).encode()
    ran = gpuq("list", GPUQ_URL=portal.url)
    refused(ran, "owned", "gqp_…")
    assert ran.err.strip().isprintable()


@pytest.mark.parametrize(
    "words",
    [
        ("submit", "--preset", "p", "--name", "a\udcff"),
        ("submit", "--preset", "p", "--env", "A=\udcff"),
        ("submit", "--preset", "p", "--secret", "A=hunter2\udcff"),
        ("verdict", "--preset", "p", "--", "echo", "\udcc4\udce3"),
        ("request", "--pool", "p", "--total", "2", "--why", "\udcff"),
        ("list", "--department", "\udcff"),
        ("list", "--state", "\udcff"),
    ],
)
def test_arguments_that_are_not_utf8_are_refused(portal: Front, words: tuple[str, ...]) -> None:
    portal.body = b"{}"
    ran = gpuq(*words, GPUQ_URL=portal.url)
    refused(ran, "bytes that are not UTF-8")
    assert "hunter2" not in ran.err
    assert portal.requests == []


@pytest.mark.parametrize("name", ["../../departments", "a/b", "a?b=c", "a#b", "%2e%2e", "ä b", "\udcff"])
def test_name_is_escaped_as_one_part_of_the_address(portal: Front, name: str) -> None:
    portal.body = b"{}"
    gpuq("stop", name, GPUQ_URL=portal.url)
    [request_line] = portal.requests
    path = request_line.partition(" ")[2]
    assert path.startswith("/api/v1/workloads/")
    assert path.count("/") == 5
    assert "?" not in path
