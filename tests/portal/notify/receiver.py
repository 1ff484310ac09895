"""A real HTTP server that records its requests, for tests of webhooks; it can also be slow in several ways."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

SLOW_BODY = b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n"


def is_closed(connection: socket.socket) -> bool:
    """Whether the other side has closed the connection."""
    try:
        return connection.recv(1) == b""
    except TimeoutError:
        return False


class Receiver:
    def __init__(self, address: str = "127.0.0.1") -> None:
        self.received: list[tuple[str, dict[str, str], bytes]] = []  # path, headers, body
        self.status, self.answer = 200, b'{"errcode":0,"code":0}'
        self.location = self.packed = ""
        self.manner = ""  # silent: never responds; head, body: sends this part byte by byte endlessly
        self.at_once = self.most_at_once = 0
        self.counting = threading.Lock()
        self.over = threading.Event()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.received.append((self.path, dict(self.headers.items()), body))
                with receiver.counting:
                    receiver.at_once += 1
                    receiver.most_at_once = max(receiver.most_at_once, receiver.at_once)
                try:
                    self.be_slow()
                    self.answer()
                except OSError:  # the other side has closed the connection
                    self.close_connection = True
                finally:
                    with receiver.counting:
                        receiver.at_once -= 1

            def do_GET(self) -> None:
                with contextlib.suppress(OSError):
                    self.be_slow()

            def be_slow(self) -> None:
                """Returns when the receiver should answer properly. Raises OSError when the sender has disconnected."""
                if not receiver.manner:
                    return
                self.connection.settimeout(0.1)
                heads = {"silent": b"", "head": b"HTTP/1.1 200 OK\r\nX-Slow: ", "body": SLOW_BODY}
                self.wfile.write(heads[receiver.manner])
                while not receiver.over.wait(0.1) and receiver.manner:
                    if receiver.manner != "silent":
                        self.wfile.write(b"1")
                    elif is_closed(self.connection):
                        break
                raise OSError("no answer")

            def answer(self) -> None:
                self.send_response(receiver.status)
                if receiver.location:
                    self.send_header("Location", receiver.location)
                if receiver.packed:
                    self.send_header("Content-Encoding", receiver.packed)
                self.send_header("Content-Length", str(len(receiver.answer)))
                self.end_headers()
                self.wfile.write(receiver.answer)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self.server = ThreadingHTTPServer((address, 0), Handler)
        self.port = self.server.server_address[1]
        self.rule = f"http://{address}:{self.port}"

    @property
    def last(self) -> dict[str, Any]:
        return dict(json.loads(self.received[-1][2]))


@contextmanager
def listening(address: str = "127.0.0.1") -> Iterator[Receiver]:
    receiver = Receiver(address)
    thread = threading.Thread(target=receiver.server.serve_forever, daemon=True)
    thread.start()
    try:
        yield receiver
    finally:
        receiver.over.set()
        receiver.server.shutdown()
        receiver.server.server_close()
