"""Executes a command in a container through the API server: no open port, no network policy needed.

The protocol is v5.channel.k8s.io on a WebSocket: the first byte of each message is its channel.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import orjson
import websocket
from kubernetes.stream.ws_client import create_websocket, get_websocket_url

from workloads.kubernetes.api import CONNECT_TIMEOUT, Api, status_message
from workloads.runtime.base import Unreachable

STDIN, STDOUT, STDERR, STATUS = range(4)
READ_TIMEOUT = 60.0  # s without data

websocket.setdefaulttimeout(CONNECT_TIMEOUT * 3)  # of the handshake: create_websocket has no parameter for it


class Exec:
    """One execution. Raises Unreachable if the connection, the container or the command fails."""

    def __init__(
        self, api: Api, pod: str, container: str, command: Sequence[str], timeout: float = READ_TIMEOUT
    ) -> None:
        """`pod` is the path of the Pod object; `timeout`: seconds without data after which the connection counts as broken."""
        query = [("container", container), ("stdin", "true"), ("stdout", "true"), ("stderr", "true")]
        query += [("command", word) for word in command]
        client = api.client()
        _method, url, headers, *_ = client.param_serialize("GET", f"{pod}/exec", auth_settings=["BearerToken"])
        lower = {name.lower(): value for name, value in headers.items()}
        try:
            address = get_websocket_url(url, query)  # type: ignore[no-untyped-call]
            self._socket: Any = create_websocket(client.configuration, address, lower)  # type: ignore[no-untyped-call]
        except (websocket.WebSocketException, OSError) as error:
            why = status_message(getattr(error, "resp_body", None)) or str(error)[:200]
            raise Unreachable(f"exec in {pod.rpartition('/')[2]}: {why}") from error
        self._socket.settimeout(timeout)
        self._rest = b""
        self._stderr = b""

    def send(self, data: bytes) -> None:
        try:
            self._socket.send_binary(bytes([STDIN]) + data)
        except (websocket.WebSocketException, OSError) as error:
            raise Unreachable(f"exec: the connection broke: {error}") from error

    def line(self) -> bytes:
        """The first line of the command's stdout."""
        output = b""
        for piece in self.output():
            output += piece
            if b"\n" in output:
                break
        first, _, self._rest = output.partition(b"\n")
        return first

    def output(self) -> Iterator[bytes]:
        """The rest of the command's stdout, until the command has exited. Raises Unreachable if it failed."""
        if self._rest:
            rest, self._rest = self._rest, b""
            yield rest
        while True:
            try:
                message = self._socket.recv()
            except (websocket.WebSocketException, OSError) as error:
                raise Unreachable(f"exec: the connection broke: {error}") from error
            if isinstance(message, str):
                message = message.encode()
            channel, data = (message[0], message[1:]) if message else (STATUS, b"")
            if channel == STDOUT and data:
                yield data
            elif channel == STDERR:
                self._stderr = (self._stderr + data)[-300:]
            elif channel == STATUS:
                return self._ended(data)

    def _ended(self, status: bytes) -> None:
        outcome = orjson.loads(status) if status else {}
        if outcome.get("status") != "Success":
            why = self._stderr.decode(errors="replace").strip() or outcome.get("message") or "the connection broke"
            raise Unreachable(f"exec: {why}"[:400])

    def close(self) -> None:
        with contextlib.suppress(websocket.WebSocketException, OSError):
            self._socket.close(timeout=1)
