"""A proxy between the portal and the API server: forwards everything, until its mode makes it slow, refuse requests or lose
responses."""

from __future__ import annotations

import random
import ssl
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import orjson
import urllib3

REFUSALS = {
    "429": (429, {"Retry-After": "1"}),
    "500": (500, {}),
    "503": (503, {}),
    "409": (409, {}),
}


class Proxy:
    """`mode` may be changed at any time: "" (forward), slow, deaf (requests do not reach the server), lost (the server acts,
    the response is lost), cut (streams end in the middle of a line), gone (watches get 410), 429, 500, 503, 409, 403 (over
    quota, pods only). It applies to a `share` of the requests."""

    def __init__(self, server: str, tls: ssl.SSLContext, seed: int) -> None:
        self.server, self.mode, self.share, self.met = server, "", 1.0, 0
        self.chance = random.Random(seed)
        self.pool = urllib3.PoolManager(maxsize=64, ssl_context=tls, retries=False)
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_any(self) -> None:
                proxy.serve(self)

            do_GET = do_POST = do_PATCH = do_DELETE = do_PUT = handle_any

            def log_message(self, *_: Any) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        threading.Thread(target=self.http.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.http.server_port}"

    def serve(self, request: BaseHTTPRequestHandler) -> None:
        body = request.rfile.read(int(request.headers.get("Content-Length", 0)))
        mode = self.mode if self.mode and self.chance.random() < self.share else ""
        self.met += bool(mode)
        watch = "watch=true" in request.path
        if mode == "slow":
            time.sleep(2)
        if mode == "deaf":
            return self._hang_up(request)
        if mode in REFUSALS:
            status, headers = REFUSALS[mode]
            return self._answer(request, status, _status(status, mode), headers)
        if mode == "403" and request.command == "POST" and request.path.endswith("/pods"):
            return self._answer(request, 403, _status(403, "exceeded quota: gpu-quota-portal"), {})
        if mode == "gone" and watch:
            return self._answer(request, 410, _status(410, "Expired"), {})
        kept = {k: v for k, v in request.headers.items() if k.lower() in ("authorization", "content-type", "accept")}
        try:
            answer = self.pool.request(
                request.command, self.server + request.path, body=body or None, headers=kept, preload_content=not watch,
                timeout=urllib3.Timeout(connect=3, read=200 if watch else 15),
            )  # fmt: skip
        except urllib3.exceptions.HTTPError:
            return self._hang_up(request)
        if watch:
            return self._stream(request, answer)
        if mode == "lost":
            return self._hang_up(request)
        return self._answer(request, answer.status, answer.data, {"Content-Type": answer.headers["Content-Type"]})

    def _stream(self, request: BaseHTTPRequestHandler, answer: urllib3.BaseHTTPResponse) -> None:
        request.send_response(answer.status)
        request.send_header("Transfer-Encoding", "chunked")
        request.end_headers()
        try:
            for part in answer.stream(65536):
                data = part[: len(part) // 2] if self.mode == "cut" else part
                request.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
                request.wfile.flush()
                if self.mode in ("cut", "deaf"):
                    break
            else:
                request.wfile.write(b"0\r\n\r\n")
        except (OSError, urllib3.exceptions.HTTPError):
            pass
        finally:
            answer.close()
            request.close_connection = True

    def _answer(self, request: BaseHTTPRequestHandler, status: int, data: bytes, headers: dict[str, str]) -> None:
        try:
            request.send_response(status)
            for name, value in ({"Content-Type": "application/json"} | headers).items():
                request.send_header(name, value)
            request.send_header("Content-Length", str(len(data)))
            request.end_headers()
            request.wfile.write(data)
        except OSError:
            request.close_connection = True

    def _hang_up(self, request: BaseHTTPRequestHandler) -> None:
        request.close_connection = True
        request.connection.close()


def _status(code: int, reason: str) -> bytes:
    return orjson.dumps({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "message": reason})
